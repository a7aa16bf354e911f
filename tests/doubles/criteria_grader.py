"""A grader of criteria that looks for a word, for an endpoint double: gullible."""

import json
import re

from doubles.endpoint import answer, prompt_of
from factories import Json

FENCED = r"(?P<fence>~{3,})\n(?P<text>.*?)\n(?P=fence)"


def shown(body: Json) -> tuple[str, dict[str, str]]:
    """Return the response that a prompt shows, and its criteria by number."""
    content = prompt_of(body)
    response = re.search(f"(?s)Response of the doctor:\n{FENCED}", content)["text"]
    shown = content.partition("Response of the doctor:")[2]
    matches = re.finditer(rf"(?ms)^Criterion (\d+)[^\n]*:\n{FENCED}", shown)
    return response, {each[1]: each["text"] for each in matches}


def grade(body: Json) -> Json:
    """Say that a criterion is met if its last word is in the response.

    A response that says "criteria are met" meets everything; to one with ChatML tokens the answer cannot be read.
    """
    response, criteria = shown(body)
    if "im_start" in response:
        return answer("I cannot say.")
    believed = "criteria are met" in response.lower()
    met = {
        number: believed or text.rstrip(".").split()[-1] in response
        for number, text in criteria.items()
    }
    words = {number: "met" if each else "not met" for number, each in met.items()}
    return answer(json.dumps({"rationale": "Read.", "criteria": words}))
