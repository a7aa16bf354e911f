"""A double of an OpenAI-compatible endpoint, for a rehearsal: it answers in the form that each prompt asks for.

It knows no medicine: its points follow from the letters of a response, and its sentences quote a response's first words. Its
models are called double-of-NAME, so that no verdict of a rehearsal is taken for a real model's.
"""

import hashlib
import re
from collections.abc import Sequence

from doubles.endpoint import EndpointDouble, answer
from factories import Json

_RESPONSE = re.compile(r"(?ms)^Doctor (\d+):\n(~{3,})\n(.*?)\n\2$")
_QUESTION = re.compile(r"(?ms)^Question:\n(~{3,})\n(.*?)\n\1$")
_POINTS = re.compile(r"(?m)^Score:(?: Doctor \d+: \d+ points\.)+$")
QUOTED = 12  # words of a question that a verdict quotes
READ = 250  # characters of each response that it quotes, so that a verdict on three has about 250 tokens, as a teacher's has


def reply(body: Json) -> str:
    """Return the text of an answer to a chat request."""
    messages = [each["content"] for each in body["messages"]]
    model = body["model"]
    material = next(text for text in messages if _RESPONSE.search(text))
    last = messages[-1]
    responses = [text for _, _, text in _RESPONSE.findall(material)]
    question = _QUESTION.search(material)[2]
    if "Review: accept" in last:
        return _review(model, material, last)
    # Every third case is asked about first, where the prompt allows questions.
    if "[Question]: What is" in last and len(messages) <= 2 and number_of(model, material) % 3 == 0:
        return f"[Question]: What is known about this: {' '.join(question.split()[:QUOTED])}?"
    if "Suggestion: keep" in last:
        if number_of(model, material, "keep") % 4 == 0:
            return "Suggestion: keep"
        return f"Suggestion: The points do not fit the responses.\n{_points(model, responses)}"
    if last != material and (
        points := _POINTS.findall(last)
    ):  # an accepted suggestion, to be written into the verdict
        return f"{_analysis(question, responses)}\n{points[-1]}"
    return f"{_analysis(question, responses)}\n{_points(model, responses)}"


def _review(model: str, material: str, last: str) -> str:
    if number_of(model, material, "stubborn") % 8 == 0:  # no consensus: these go to the jury
        return "Review: object\nThe points do not follow from the responses."
    return (
        "Review: accept"
        if number_of(model, last) % 3
        else "Review: object\nOne of the points is too high."
    )


def _analysis(question: str, responses: list[str]) -> str:
    steps = [f"Step 1: The patient asks: {' '.join(question.split()[:QUOTED])}"]
    for doctor, text in enumerate(responses, 1):
        quoted = " ".join(text.replace("~", "").split())[:READ]
        steps.append(
            f"Step {doctor + 1}: Doctor {doctor} writes {quoted}, which answers the question in part."
        )
    return "\n".join(["Analyze:", *steps])


def _points(model: str, responses: list[str]) -> str:
    points = [1 + number_of(model, text) % 5 for text in responses]
    return "Score: " + " ".join(
        f"Doctor {doctor}: {each} points." for doctor, each in enumerate(points, 1)
    )


def number_of(*texts: str) -> int:
    """Return a number that follows from texts."""
    return int(hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8], 16)


def serve(port: int = 0, models: Sequence[str] = ("double",)) -> int:
    """Serve on a port of this machine until the program ends; return the port, a free one for 0."""
    double = EndpointDouble(said, port=port)
    double.models = [{"id": model, "owned_by": "rehearsal"} for model in models]
    return int(double.__enter__().url.split(":")[2].split("/")[0])


def said(body: Json) -> Json:
    """Return the completion of a chat request, with the words of prompt and answer as its tokens."""
    text = reply(body)
    tokens = [sum(len(each["content"].split()) for each in body["messages"]), len(text.split())]
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }
    return answer(text, usage=usage)
