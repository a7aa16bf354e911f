"""Take the answer out of a model's raw text: what it says outside its thoughts, calls of tools and special tokens.

Read are `<think>` and its kin, the channels of Harmony, and turns between special tokens. Anything else that looks like a
thought or a chat template is counted, and judged whole.
"""

import re
from collections.abc import Sequence
from typing import Any

from automedeval.records.errors import RecordError
from automedeval.records.tables import packaged

LONGEST_ANSWER = 100_000  # characters that are read of an answer: forty pages
_HELD = {  # by the key of `Response.extra`
    "cut": f"more than {LONGEST_ANSWER:,} characters, of which only the first {LONGEST_ANSWER:,} are read",
    "thoughts": "thoughts or control tokens, which are removed",
    "unclear": "what looks like thoughts or marks of a raw text, and are judged whole",
}
_FORMS = packaged("records", "thoughts")
_ROLES = {word: role for role, words in _FORMS["roles"].items() for word in words}


def _form(name: str) -> str:
    """Return an entry of the YAML, in which {name} stands for another entry."""
    return re.sub(r"\{([a-z]+)\}", lambda part: f"(?:{_form(part[1])})", _FORMS[name])


def _pattern(name: str) -> re.Pattern:
    return re.compile(_form(name), re.IGNORECASE | re.MULTILINE)


CONTROL_TOKEN, CHAT_TOKEN, MARK_IN_QUOTATION = map(_pattern, ("control", "token", "quoted"))
_SIGN, _CHANNELS, _MESSAGE, _TURN = map(_pattern, ("sign", "channels", "message", "turn"))
_HIDDEN, _CLOSE, _END, _WRAPPED = map(_pattern, ("hidden", "close", "end", "wrapped"))
_MARK, _SUSPECT = map(_pattern, ("mark", "suspect"))
_BEGINNING, _BORDERS, _NAMED = map(_pattern, ("beginning", "borders", "named"))
_QUOTES = tuple("\"'`“‘([")
_FOLLOWED = re.compile(r"[ \t]*\n\s*\S")


def without_thoughts(text: str) -> str:
    """Return what the model's turn says outside its thoughts and calls of tools; nothing of one unfinished thought.

    Some chat templates open the thought in the prompt, so that the text has only the end of it. A raw text may begin with its
    prompt, and end with turns that the model invents. RecordError if the answer in it cannot be told from the rest.
    """
    if not _SIGN.search(text):
        return text
    messages = _MESSAGE.findall(text)
    if _CHANNELS.match(text):  # Harmony without its tokens
        _, is_final, answer = text.rpartition("assistantfinal")
        messages = [("final" if is_final else "analysis", answer)]
    elif not messages:
        messages = [("final", _answering(_turns(text)))]
    final = [content for channel, content in messages if channel == "final"]
    said = _said(final[-1]) if final else ""
    return text if said == text.strip() else said


def _unclear(what: str) -> RecordError:
    return RecordError(
        f"a raw text {what}: it is unclear what the answer is (decode it with skip_special_tokens=True)"
    )


def _bare(text: str) -> str:
    """Return a text without the tokens at its ends."""
    return _BORDERS.sub("", text).strip()


def _is_written(text: str, mark: re.Match) -> bool:
    """Return whether a template wrote a mark; a sentence may name it anywhere."""
    start, end = mark.span("open" if "open" in mark.re.groupindex else 0)
    return bool(_FOLLOWED.match(text, end) or not _NAMED.search(text, max(0, start - 2), start))


def _written(pattern: re.Pattern, text: str) -> list[re.Match]:
    """Return the marks that a template wrote; what a text strikes out in HTML is none."""
    marks = (mark for mark in pattern.finditer(text) if mark.lastgroup != "struck")
    return [mark for mark in marks if _is_written(text, mark)]


def _turns(text: str) -> list[tuple[str, str]]:
    """Return (role, text) of the turns; the role is "user", "model", "tool", or "" before any mark."""
    turns, role, start = [], "", 0
    for mark in _TURN.finditer(text):
        if role in ("user", "tool") or _is_written(text, mark):
            part = text[start : mark.start()]
            turns.append(("tool" if role == "user" and "<tool_response>" in part else role, part))
            role, start = _ROLES[mark[mark.lastgroup or 0].casefold()], mark.end()
    turns.append((role, text[start:]))
    return [turn for turn in turns if turn[0] in ("model", "tool") or _bare(turn[1])]


def _answering(turns: Sequence[tuple[str, str]]) -> str:
    """Return the text of the turn that answers: the last one after a prompt, the first one where there is no prompt."""
    (role, first), *others = turns or [("", "")]
    following = [role for role, _ in others]
    begun = _BEGINNING.sub("", first)
    is_ended, is_marked = bool(_written(_END, begun)), begun != first
    if not role and following and following[0] == "model" and (is_marked or not is_ended):
        raise _unclear("whose first turn is nobody's")
    if not role and following and is_marked and not is_ended:
        role = "user"  # of the system, after the first token of all
    if role in ("", "model") and "tool" not in following:
        return first
    if (role, first) == turns[-1] or following[-1] != "model":
        raise _unclear("whose last turn is not the model's")
    return others[-1][1]


def _said(turn: str) -> str:
    """Return what a turn of the model says outside thoughts and calls of tools, up to its end."""
    said = _HIDDEN.sub(lambda hidden: "" if _is_written(turn, hidden) else hidden[0], turn)
    if ends := _written(_CLOSE, said):  # of a thought that began in the prompt
        before, after = said[: ends[0].start()], said[ends[0].end() :]
        if len(ends) > 1 or (said != turn and _bare(after)):
            raise _unclear("with more ends of thoughts than beginnings")
        said = before if said != turn else after
    text = _BEGINNING.sub("", said)
    own, rest = text, ""
    if ends := _written(_END, text):
        own, rest = text[: ends[0].start()], text[ends[0].start() :]
    own = _WRAPPED.sub(r"\g<inner>", _bare(own))
    if _written(_MARK, own) or (_bare(rest) and len(CHAT_TOKEN.findall(rest)) > 1):
        raise _unclear("has other marks in its answer")
    return own.strip()


def read_answer(text: str) -> tuple[str, dict[str, bool]]:
    """Return the answer in a model's text, or the text if it cannot be told, and the keys of `Response.extra` for it."""
    try:
        own = without_thoughts(text)
    except RecordError:
        return text, {"unclear": True}
    suspect = (mark for mark in _SUSPECT.finditer(own) if mark.lastgroup != "struck")
    unquoted = (mark for mark in suspect if own[mark.start() - 1 : mark.start()] not in _QUOTES)
    found = {"thoughts": own != text, "unclear": any(unquoted)}
    return own, {key: True for key, is_found in found.items() if is_found}


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
