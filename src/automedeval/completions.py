"""Completions: what an OpenAI-compatible endpoint answers, and what its errors say."""

import email.utils
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from automedeval.prompts import Answer

# What reading raises where there is no JSON, or where it has another shape than it should.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_FILTERED = "the endpoint's content filter refused"
_OVERLONG = re.compile(r"context (?:length|window|size)", re.I)  # vLLM, SGLang and llama.cpp give no code
_NUMBER = re.compile(r"\s*([0-9]+)")


def answer_from_completion(completion: Mapping[str, Any]) -> Answer:
    """Read a chat completion.

    Raises:
        UNREADABLE: it has another shape than a completion, or no choice.
    """
    choice = completion["choices"][0]
    reason, message = choice.get("finish_reason"), choice.get("message") or {}
    usage = completion.get("usage") or {}
    kept = {name: usage[name] for name in ("prompt_tokens", "completion_tokens") if isinstance(usage.get(name), int)}
    text = message.get("content") or message.get("refusal") or ""
    if not isinstance(text, str):
        raise TypeError(f"the content is {type(text).__name__}, not text")
    if reason == "content_filter":
        return Answer(text, error=_FILTERED, usage=kept)
    try:
        scored = _scored(choice.get("logprobs"), text)
    except UNREADABLE:  # the verdict stands without them
        scored = ()
    return Answer(text, scored=scored, truncated=reason == "length", usage=kept)


def refusal(code: Any, said: str) -> Answer | None:
    """Return the answer, which is none, where an endpoint's error refuses a prompt for what it is; None for other errors."""
    if code == "context_length_exceeded" or _OVERLONG.search(said):
        return Answer(error="prompt and --max_new_tokens exceed the endpoint's context window")
    return Answer(error=_FILTERED) if code == "content_filter" else None


def said(error: Exception) -> str:
    """Return what an error says, in one line."""
    body = getattr(error, "body", None)
    message = (body.get("message") or body.get("detail")) if isinstance(body, dict) else None
    return " ".join(str(message or error).split())[:200]


def retry_after(told: str) -> float:
    """Return the seconds that a Retry-After header asks to wait for, 0 where it asks for none."""
    date = email.utils.parsedate_tz(told)
    try:
        seconds = email.utils.mktime_tz(date) - time.time() if date else float(told)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, seconds)


def _scored(logprobs: Mapping[str, Any] | None, text: str) -> tuple[tuple[int, dict[str, float]], ...]:
    """Return, per token that begins with a number, where that stands in the text and which numbers competed there."""
    tokens = (logprobs or {}).get("content") or []
    # Tokens may hold parts of a character, so places are counted in bytes.
    pieces = [bytes(token["bytes"]) if token.get("bytes") else token["token"].encode() for token in tokens]
    whole = text.encode("utf-8", "surrogatepass")
    before = b"".join(pieces).find(whole)  # an endpoint may strip what opens or ends its answer
    if before < 0:
        return ()
    found, position = [], -before
    for token, piece in zip(tokens, pieces):
        own = _NUMBER.match(token["token"])
        if own and position >= 0:
            odds: dict[str, float] = {}
            for rival in token.get("top_logprobs") or []:
                number = _NUMBER.match(rival["token"])
                if number:
                    odds[number[1]] = odds.get(number[1], 0.0) + math.exp(min(0.0, rival["logprob"]))
            if odds.get(own[1]):  # without the number that stands there, the others tell nothing
                start = position + own.start(1)
                found.append((len(whole[:start].decode("utf-8", "replace")), odds))
        position += len(piece)
    return tuple(found)
