"""Take the answer out of a model's raw text: the last thing it says to the patient, outside its thoughts and calls of tools."""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from automedeval.records.errors import RecordError
from automedeval.records.tables import packaged

_FORMS = packaged("records", "thoughts")
LONGEST_ANSWER = 100_000  # characters that are read of an answer: forty pages
_HELD = {  # by the key of `Response.extra`
    "cut": f"more than {LONGEST_ANSWER:,} characters, of which only the first {LONGEST_ANSWER:,} are read",
    "thoughts": "thoughts or control tokens, which are removed",
    "unclear": "the marks of a raw text, and are judged whole: decode them with skip_special_tokens=True",
}


def _form(name: str) -> str:
    forms = _FORMS[name] if isinstance(_FORMS[name], list) else [_FORMS[name]]
    return re.sub(r"\{([a-z]+)\}", lambda part: f"(?:{_form(part[1])})", "|".join(forms))


@cache
def _pattern(name: str) -> re.Pattern:
    return re.compile(_form(name), re.I | re.M)


CONTROL_TOKEN, CHAT_TOKEN, MARK_IN_QUOTATION = map(_pattern, ("control", "token", "quoted"))


def without_thoughts(text: str) -> str:
    """Return what the model's last turn says outside its thoughts and calls of tools; nothing of one unfinished thought.

    Some chat templates open the thought in the prompt, so that the text has only the end of it. A raw text may begin with its
    prompt, and end with turns that the model invents. RecordError if the answer in it cannot be told from the rest.
    """
    if not _pattern("sign").search(text):
        return text
    turns, answer, due, prompted, called = _turns(text), None, "", False, False
    for number, (whose, part) in enumerate(turns):
        if (
            whose == ""
            and CONTROL_TOKEN.match(part.lstrip())
            and _bare(part)
            and [*turns, ("", "")][1][0] == "user"
        ):
            whose = "user"  # of the system, after the first token of all
        if whose == "tool" or (whose == "user" and called):
            due, called = "tool", False
        elif whose == "user":
            if answer and not prompted:
                break  # the model invents what follows
            due, prompted = "user", True
        elif whose in ("", "model", "final") or (whose == "end" and not answer and not prompted):
            if whose == "model" and answer and not due and turns[number - 1][0] == "":
                raise _unclear("whose first turn has no end")
            if whose == "final" or due or not answer:
                said, called = _said(part), bool(_pattern("called").search(part))
                if said or whose in ("model", "final"):
                    answer, due = said, ""
    if due and (answer is None or due == "tool" or whose == "end"):
        raise _unclear(f"whose last turn is the {due}'s")
    return text if answer == text.strip() else answer or ""


def _unclear(what: str) -> RecordError:
    return RecordError(
        f"a raw text {what}: it is unclear what the answer is (decode it with skip_special_tokens=True)"
    )


def _bare(part: str) -> str:
    """Return a part without the tokens at its ends."""
    return _pattern("borders").sub("", part).strip()


def _turns(text: str) -> list[tuple[str, str]]:
    """Return (whose, what) of the turns: "user" and "model" as the YAML has them, "end" after a turn, "" before any mark."""
    turns, whose, start = [], "", 0
    for mark in _pattern("words" if _pattern("told").match(text) else "mark").finditer(text):
        name = re.sub(
            r"^<(?=\w+\|>)", "/", mark[mark.lastgroup or 0]
        )  # the words after a token, or its own
        kind = _pattern("whose").fullmatch(re.sub(r"[^\w/.]+|_+", "_", name).strip("_"))
        if kind and (
            mark.lastgroup or whose in ("user", "tool", "end") or _is_written(text, *mark.span())
        ):
            turns.append((whose, text[start : mark.start()]))
            whose, start = kind.lastgroup or "", mark.end()
    return [*turns, (whose, text[start:])]


def _is_written(text: str, start: int, end: int) -> bool:
    """Return whether a template wrote a mark; a sentence may name it anywhere."""
    return bool(
        _pattern("written").match(text, end)
        or not _pattern("named").search(text, max(0, start - 2), start)
    )


def _said(text: str) -> str:
    """Return what a turn of the model says outside thoughts and calls of tools."""
    kept: list[str] = []
    position, begun = 0, False
    while mark := _pattern("thoughts").search(text, position):
        start, end = mark.span("open") if mark["open"] else mark.span()
        hides = written = _is_written(text, start, end)
        if mark["hidden"]:
            hides, end = written or not _pattern("listed").fullmatch(mark["hidden"]), mark.end()
        elif mark["open"] and written:
            end = len(text)
        if mark["close"] and written and not begun:
            kept = []  # the thought began in the prompt
        elif mark["close"] and written and _bare(text[end:]):
            raise _unclear(f"with {mark[0]} more than once")
        else:
            kept.append(
                text[position : start if hides or not (mark["open"] or mark["close"]) else end]
            )
        position, begun = end, begun or hides
    said = _pattern("around").sub(
        lambda mark: mark["inner"] or mark["end"] or "", "".join([*kept, text[position:]])
    )
    own = _bare(said)
    for mark in _pattern("mark").finditer(own):
        if not mark["struck"] and _is_written(own, *mark.span()):
            raise _unclear(f"has {mark[0]} in its answer")
    return own


def read_answer(text: str) -> tuple[str, dict[str, bool]]:
    """Return the answer in a model's text, or the text if it cannot be told, and the keys of `Response.extra` for it."""
    try:
        own = _without_reasons(without_thoughts(text))
    except RecordError:
        return text, {"unclear": True}
    marks = _pattern("mark").finditer(own) if _pattern("sign").search(own) else ()
    # a sentence may name a mark in quotation marks
    stray = (
        mark
        for mark in marks
        if not mark["struck"] and own[max(0, mark.start() - 1)] not in "\"'`“‘(["
    )
    unclear = _pattern("foreign").match(own) or any(stray)
    return own, {
        key: True for key, found in (("thoughts", own != text), ("unclear", unclear)) if found
    }


def _without_reasons(text: str) -> str:
    """Return the answer of an object in JSON that has only thoughts beside it; another text as it is."""
    try:
        found = _pattern("object").fullmatch(text)
        parts = json.loads(found["object"], strict=False) if found else {}
    except (ValueError, RecursionError):
        return text
    said = [(key, value) for key, value in parts.items() if not _pattern("reasons").fullmatch(key)]
    if len(said) != 1 or len(parts) == 1 or not _pattern("wraps").fullmatch(said[0][0]):
        return text
    return said[0][1].strip() if isinstance(said[0][1], str) else text


def note_on_thoughts(cases: Sequence[Any]) -> list[str]:
    """Return a line for each thing that answers of cases held beside the answer when they were read, with their number."""
    counts = {
        key: sum(key in each.extra for case in cases for each in case.responses) for key in _HELD
    }
    return [
        f"{count:,} answer{'s' * (count > 1)} held {_HELD[key]}"
        for key, count in counts.items()
        if count
    ]


def own_text(text: str) -> str:
    """Return the text before the first control token: what follows it is not the model's answer."""
    return CONTROL_TOKEN.split(text, maxsplit=1)[0]
