"""Read what an OpenAI-compatible endpoint returns: chat completions, batch files, and error messages."""

import contextlib
import html
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from automedeval.models.base import Answer, Rivals
from automedeval.records import JsonObject, RecordError, parse_json, read_lines
from automedeval.records.text import shown_address

# The exceptions of parsing text that is not JSON, or JSON of an unexpected shape.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
# Parameters that a run can do without, and what is different without them.
OPTIONAL = {
    "temperature": "the endpoint samples with its own temperature, so that answers can differ from run to run",
    "seed": "sampled answers cannot be repeated",
    "logprobs": "typed questions get no probabilities",
    "max_completion_tokens": "max_tokens is sent in its place",
}
MOST_ALIKE = 10  # requests that fail or are refused alike, before the fault is taken as that of all
REFUSED = (400, 413, 422)  # no retry helps; the fault may be this prompt's or every request's
_FILTERED = "the endpoint's content filter refused"
_OVERLONG = re.compile(
    r"(?i)context (?:length|window|size)"
)  # vLLM, SGLang and llama.cpp give no code
_NOT_TAKEN = re.compile(
    r"(?i)unsupported|not (?:\w+ )?support|n't support|not allowed|not permitted|not enabled|unrecogni[sz]ed|unknown|unexpected"
    r"|extra.forbidden|deprecated|may only be|only (?:\S+ ){1,3}allowed",
)


def answer_from_completion(completion: JsonObject) -> Answer:
    """Return the answer in a chat completion, without thoughts before it; UNREADABLE is raised if there is none."""
    if not completion.get("choices"):
        raise ValueError("it has no choices")
    choice = completion["choices"][0]
    reason = choice.get("finish_reason")
    message = choice["message"]
    usage = token_counts(completion.get("usage") or {})
    content = message.get("content") or message.get("refusal") or ""
    if isinstance(content, list):  # in parts, of which those of another type are thoughts
        content = "".join(part["text"] for part in content if part["type"] == "text")
    if not isinstance(content, str):
        raise TypeError(f"the content is {type(content).__name__}, not text")
    if reason == "content_filter":
        return Answer(content, error=_FILTERED, usage=usage)
    # Of a provider behind the endpoint; a text beside it is not whole.
    problem = choice.get("error") or completion.get("error")
    if problem or reason == "error":
        raise ValueError(endpoint_words(problem) or "finish_reason error")
    cut = reason == "length"
    answer = Answer.of_text(content, truncated=cut, usage=usage)
    if answer.text.strip() or answer.error:
        return replace(answer, rivals=first_alternatives(choice, answer.text))
    why = f"the answer is empty (finish_reason {reason})"
    if cut:
        why += "; a larger --max_new_tokens may leave room for an answer behind the thoughts"
    return Answer(error=why, truncated=cut, usage=usage)


def token_counts(counts: JsonObject) -> dict[str, int]:
    """Return what a completion took: a request, and its tokens by kind; kinds that it does not count are left out."""
    details = counts.get("prompt_tokens_details") or {}
    given = {
        "prompt_tokens": counts.get("prompt_tokens"),
        "completion_tokens": counts.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens") or None,
        "requests": 1,
    }
    usage = {name: count for name, count in given.items() if isinstance(count, int)}
    cached = usage.get("cached_tokens", 0)
    if cached > usage.get("prompt_tokens", cached):  # some count only what was not cached
        usage["prompt_tokens"] += cached
    return usage


def first_alternatives(choice: JsonObject, text: str) -> Rivals:
    """Return the alternatives of the first token with a letter or digit of a choice's text; none if they are not told."""
    with contextlib.suppress(*UNREADABLE):  # a verdict does not need them
        tokens = (choice.get("logprobs") or {}).get("content") or []
        # A server may list the tokens of thoughts before the text, and strip the ends of the text.
        start = b"".join(map(_token_bytes, tokens)).rfind(text.strip().encode())
        end = 0
        for token in tokens:
            piece = _token_bytes(token)
            end += len(piece)
            if end > start >= 0 and re.search(rb"\w", piece):
                return _chances(token)
    return ()


def _chances(token: JsonObject) -> Rivals:
    chances = defaultdict[bytes, float](float)
    for alternative in token.get("top_logprobs") or []:
        chances[_token_bytes(alternative)] += math.exp(min(0.0, alternative["logprob"]))
    if chances and not chances[_token_bytes(token)]:
        chances[_token_bytes(token)] = math.exp(min(0.0, token["logprob"]))
    return tuple(chances.items())


def _token_bytes(token: JsonObject) -> bytes:
    return bytes(token["bytes"]) if token.get("bytes") else token["token"].encode()


def batch_answers(path: Path, resumed: bool) -> tuple[dict[str, Answer], list[str]]:
    """Return the answers of a batch by custom id, `failed` ones in place of other errors, and the parameters to leave out.

    These are those that were left out before, which hyphens join to a custom id, and those that the endpoint refuses without
    an answer to any request. If it answered one, or the run is `resumed`, a prompt that it refuses has its words as error,
    unless it refuses `MOST_ALIKE` in the same words.
    RecordError: a line is no answer.
    """
    answers = {}
    refused: dict = defaultdict(dict)  # in which words → custom id → answer
    parameters = set()
    for place, record in read_lines(path) if path.exists() else ():
        name = record.get("custom_id")
        if not isinstance(name, str):
            raise RecordError(f"{place}: not an answer of a batch: no custom_id")
        response = _mapping(record.get("response"))
        problem: Any = record.get("error") or response.get("body")
        with contextlib.suppress(*UNREADABLE):
            answers[name] = answer_from_completion(problem)
            continue
        words = endpoint_words(problem) or "the answer cannot be read"
        error = _mapping(_mapping(problem).get("error", problem))
        answer = refusal(error.get("code"), words)
        answers[name] = answer or Answer(error=f"{place}: {words}", failed=True)
        status = response.get("status_code")
        if status in REFUSED and not answer:
            refused[without_numbers(words)][name] = Answer(
                error=f"the endpoint answered {status}: {words}"
            )
            parameters.add(refused_parameter(error.get("param"), words, OPTIONAL))
    asked = any(not answer.error for answer in answers.values())
    for alike in refused.values():
        if (asked or resumed) and len(alike) < MOST_ALIKE:
            answers |= alike
    left_out = {*"-".join(answers).split("-"), *([] if asked else parameters)}
    return answers, [name for name in OPTIONAL if name in left_out]


def _mapping(value: Any) -> Mapping:
    return value if isinstance(value, Mapping) else {}


def without_numbers(words: str) -> str:
    """Return an endpoint's words without those with digits, such as the ids of requests: what is left tells faults apart."""
    return re.sub(r"\S*\d\S*", "", words)


def refusal(code: Any, message: str) -> Answer | None:
    """Return an answer with an error if the endpoint's error refuses this very prompt; None for other errors."""
    if code == "context_length_exceeded" or _OVERLONG.search(message):
        return Answer(
            error="prompt and --max_new_tokens exceed the endpoint's context window", overlong=True
        )
    return Answer(error=_FILTERED) if code == "content_filter" else None


def refused_parameter(parameter: Any, message: str, sent: Collection[str]) -> str | None:
    """Return which of the optional parameters that were `sent` an endpoint's error refuses; None if it refuses none.

    `parameter` is the error's own field for it, if it has one.
    """
    names = "|".join(name for name in OPTIONAL if name in sent)
    if not names or not _NOT_TAKEN.search(message):
        return None
    text = parameter if isinstance(parameter, str) else message
    # What follows the first may be a list of what the endpoint takes.
    first = re.search(rf"(?i)\b(?:top_)?({names})\b", text)
    return first[1].lower() if first else None


def endpoint_words(body: Any, most: int = 200) -> str:
    """Return what an endpoint says in a body that is no completion, in one line: an error in any form, a page, or a text."""
    if isinstance(body, bytes):
        body = body.decode(errors="replace")
        with contextlib.suppress(ValueError):
            body = parse_json(body, others=True)
    words = ": ".join(dict.fromkeys(filter(None, _phrases(body))))
    if not words and body and isinstance(body, Mapping):
        words = str(dict(body))
    return shown_address(words)[:most]


def _phrases(body: Any) -> Iterator[str]:
    if isinstance(body, Mapping):
        if isinstance(body.get("loc"), list):  # FastAPI's name of a field
            yield ".".join(map(str, body["loc"]))
        if re.fullmatch("[45][0-9][0-9]", str(body.get("code"))):
            yield str(body["code"])
        for name in ("error", "errors", "message", "detail", "msg", "raw", "metadata", "choices"):
            yield from _phrases(body.get(name))
    elif isinstance(body, list):
        for part in body:
            yield from _phrases(part)
    elif body is not None:
        page = re.sub(r"<(script|style)\b.*?</\1>|<[^>]{0,500}>", " ", str(body), flags=re.I | re.S)
        yield " ".join(html.unescape(page).split())


def error_text(error: Exception, most: int = 200) -> str:
    """Return the message of an error in one line of at most so many characters."""
    return endpoint_words(getattr(error, "body", None) or str(error), most)
