"""Take a reasoning model's thoughts out of its answer: a patient does not read them, and a judge may change its mind."""

import re
from typing import Any

from automedeval.records.tables import packaged

_FORMS = packaged("records", "thoughts")
_OPEN, _CLOSE, _ROUND, _ASKED = (
    re.sub(r"\{([a-z]+)\}", lambda part: _FORMS[part[1]], "|".join(_FORMS[name]))
    for name in ("open", "close", "around", "prompt")
)
# Where a model writes a mark: a text may name it anywhere, "models use <think> tags".
_MARK = re.compile(
    rf"(?P<begins>^[ \t]*|(?<=[.!?…。>▷])|(?<=[.!?…] ))?(?P<open>{_OPEN})"
    rf"|(?P<ends>^[ \t]*|(?<=[^\s\"'“‘(`\[])|(?<=[.!?…] ))?(?P<close>{_CLOSE})(?P<last>(?=[ \t]*\n\s*\S))?",
    re.I | re.M,
)
_AROUND, _PROMPT = re.compile(_ROUND, re.I), re.compile(_ASKED, re.I)
_LISTED = re.compile(r"""[\s`"'”’]*(?:and|or|to|,|/|…|\.\.\.)?[\s`"'“‘]*""")
THOUGHT_TAG = re.compile(rf"(?=[<&\[◁])(?:{_OPEN}|{_CLOSE})", re.I)  # that a quotation may hold
# Chat-template tokens of the common model families. In an answer they mark where the model's own text ends.
CONTROL_TOKEN = re.compile(
    r"<\|[^<>|\n]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>|\[/?(?:INST|SYSTEM_PROMPT)\]|<</?SYS>>"
    r"|<｜[^<>｜\n]{1,40}｜>"
)


def without_thoughts(text: str) -> str:
    """Return an answer without thoughts, tool calls and turns around it; nothing of it if it is one unfinished thought.

    Some chat templates open the thought in the prompt, so that the text has only the end of it.
    """
    seen = text.casefold()  # each mark has one of the signs
    if not any(sign in seen for sign in ("<", "&lt;", "[inst]", "think", "thought", "assistantfinal")):
        return text
    given, text = text, _PROMPT.sub("", text)
    kept: list[str] = []
    position, inside, begun, name = 0, False, False, ""
    marks = list(_MARK.finditer(text))
    last = {_name(mark): mark.start() for mark in marks if mark["close"]}
    told: str | None = None  # a mark that a sentence names, "<think> and </think>"
    for mark, after in zip(marks, [*marks[1:], None]):
        if mark["pair"] and not inside:
            continue  # of a part that a reader may open, or a heading of the answer
        if mark["close"]:
            if inside and name != _name(mark) and last.get(name, 0) > mark.start():
                continue  # of a thought in this one
            if not inside and (told == _name(mark) or mark["ends"] is mark["last"] is None):
                told = None
                continue
            if not inside and begun:  # it ends no thought: the mark alone goes
                kept.append(text[position : mark.start()])
            elif not inside:
                kept = []
            inside, position, begun = False, mark.end(), True
        elif not inside:
            name = _name(mark)
            if mark["begins"] is None:
                listed = after and after["close"] and _LISTED.fullmatch(text, mark.end(), after.start())
                if listed or last.get(name, 0) < mark.start():
                    told = name if listed else None
                    continue
            kept.append(text[position : mark.start("open")])
            inside, begun = True, True
    said = "".join(kept + [text[position:]] * (not inside))
    own = _AROUND.sub("", said)
    if not re.search(r"\w", own) and re.search(r"\w", re.sub("<[^<>]*>", "", said)):
        own = said  # the end of a turn before any word is none
    return given if own == given else own.strip()


def _name(mark: re.Match) -> str:
    """Return the name of a mark that is a tag, "think" for "</think>", else nothing."""
    found = re.match(r"(?:<|&lt;)/?([\w:]+)", mark["open"] or mark["close"])
    return found[1].casefold() if found else ""


def count_thoughts(case: Any) -> int:
    """Return how many answers of a case held thoughts when it was read."""
    return sum("thoughts" in response.extra for response in case.responses)


def note_on_thoughts(count: int) -> list[str]:
    """Return a line that tells of so many answers, none of 0."""
    return [f"{count:,} answer{'s' * (count > 1)} held thoughts or control tokens, which are removed"] if count else []


def own_text(text: str) -> str:
    """Return the text before the first control token: what follows it is not the model's answer."""
    control = CONTROL_TOKEN.search(text)
    return text[: control.start()] if control else text
