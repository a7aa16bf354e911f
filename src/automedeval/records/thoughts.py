"""Take the answer out of a model's raw text: what it says outside its thoughts, calls of tools and special tokens.

Read are `<think>` and its kin, the channels of Harmony, and turns between special tokens. Anything else that looks like a
thought or a chat template is counted, and judged whole.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from automedeval.records.errors import RecordError
from automedeval.records.package_data import packaged
from automedeval.records.patterns import all_filled

LONGEST_ANSWER = 100_000  # characters that are read of an answer: forty pages
_BESIDE = {  # by the key of `Response.extra`
    "cut": f"more than {LONGEST_ANSWER:,} characters, of which only the first {LONGEST_ANSWER:,} are read",
    "thoughts": "thoughts or control tokens, which are removed",
    "unclear": "what looks like thoughts or marks of a raw text, which are judged whole",
}
_FORMS = packaged("records", "thoughts")
_ROLES: dict[str, str] = _FORMS.pop("roles")  # of a word
_SIGNS: list[str] = _FORMS.pop("signs")
_EXPRESSIONS = all_filled(_FORMS, {"role": "|".join(_ROLES)})


def _pattern(name: str) -> re.Pattern:
    return re.compile(_EXPRESSIONS[name], re.IGNORECASE | re.MULTILINE)


CONTROL_TOKEN, CHAT_TOKEN, MARK_IN_QUOTATION = map(_pattern, ("control", "token", "quoted"))
_CHANNELS, _MESSAGE, _TURN = map(_pattern, ("channels", "message", "turn"))
_HIDDEN, _CLOSE, _END, _WRAPPED = map(_pattern, ("hidden", "close", "end", "wrapped"))
_MARK, _SUSPECT, _BEGUN = map(_pattern, ("mark", "suspect", "begun"))
_BEGINNING, _BORDERS, _NAMED = map(_pattern, ("beginning", "borders", "named"))
_QUOTES = tuple("\"'`“‘([")
_UNCLEAR = "a raw text, of which it is unclear what the answer is (decode it with skip_special_tokens=True)"
_FOLLOWED = re.compile(r"[ \t]*\n\s*\S")


def without_thoughts(text: str) -> str:
    """Return what the model's turn says outside its thoughts and calls of tools; nothing of one unfinished thought.

    Some chat templates open the thought in the prompt, so that the text has only the end of it. A raw text may begin with its
    prompt, and end with turns that the model invents. RecordError if the answer in it cannot be told from the rest.
    """
    if not _has_sign(text):
        return text
    messages = _MESSAGE.findall(text)
    finals = [content for channel, content in messages if channel == "final"]
    if _CHANNELS.match(text):  # Harmony without its tokens
        _, *finals = text.rsplit("assistantfinal", 1)
    elif not messages:
        finals = [_answering(_turns(text))]
    answer = _spoken(finals[-1] if finals else "")
    return text if answer == text.strip() else answer


def _has_sign(text: str) -> bool:
    """Return whether a text has a character or word that each mark of a template has."""
    lowered = text.lower()
    for sign in _SIGNS:  # noqa: SIM110  `any` takes twice the time
        if sign in lowered:
            return True
    return False


def _bare(text: str) -> str:
    """Return a text without the tokens at its ends."""
    return _BORDERS.sub("", text).strip()


def _is_written(text: str, mark: re.Match) -> bool:
    """Return whether a template wrote a mark; a sentence may name it anywhere."""
    start, end = mark.span("open" if "open" in mark.re.groupindex else 0)
    return bool(_FOLLOWED.match(text, end) or not _NAMED.search(text, max(0, start - 2), start))


def _written(pattern: re.Pattern, text: str) -> list[re.Match]:
    """Return the marks that a template wrote; what a text strikes out in HTML is none."""
    marks = pattern.finditer(text)
    return [mark for mark in marks if mark.lastgroup != "struck" and _is_written(text, mark)]


def _turns(text: str) -> list[tuple[str, str]]:
    """Return (role, text) of the turns; the role is "user", "model", "tool", or "" before any mark."""
    turns = []
    role = ""
    start = 0
    for mark in _TURN.finditer(text):
        if role not in ("user", "tool") and not _is_written(text, mark):
            continue
        part = text[start : mark.start()]
        if role == "user" and "<tool_response>" in part:
            role = "tool"
        turns.append((role, part))
        role = _ROLES[mark[mark.lastgroup or 0].casefold()]
        start = mark.end()
    turns.append((role, text[start:]))
    return [(role, part) for role, part in turns if role in ("model", "tool") or _bare(part)]


def _answering(turns: Sequence[tuple[str, str]]) -> str:
    """Return the text of the turn that answers: the last one after a prompt, the first one where there is no prompt."""
    (role, first), *others = turns or [("", "")]
    following = [role for role, _ in others]
    begun = _BEGINNING.sub("", first)
    is_ended = bool(_written(_END, begun))
    is_marked = begun != first
    if not role and following:
        if following[0] == "model" and (is_marked or not is_ended):
            raise RecordError(_UNCLEAR)
        if is_marked and not is_ended:
            role = "user"  # of the system, after the first token of all
    if role in ("", "model") and "tool" not in following:
        return first
    if not others or following[-1] != "model":
        raise RecordError(_UNCLEAR)
    return others[-1][1]


def _spoken(turn: str) -> str:
    """Return what a turn of the model says outside thoughts and calls of tools, up to its end."""
    text = _HIDDEN.sub(lambda hidden: "" if _is_written(turn, hidden) else hidden[0], turn)
    if ends := _written(_CLOSE, text):  # of a thought that began in the prompt
        before = text[: ends[0].start()]
        after = text[ends[0].end() :]
        is_cut = text != turn
        if len(ends) > 1 or (is_cut and _bare(after)):
            raise RecordError(_UNCLEAR)
        text = before if is_cut else after
    text = _BEGINNING.sub("", text)
    ends = _written(_END, text)
    end = ends[0].start() if ends else len(text)
    answer = _WRAPPED.sub(r"\g<inner>", _bare(text[:end]))
    rest = text[end:]
    if _written(_MARK, answer) or (_bare(rest) and len(CHAT_TOKEN.findall(rest)) > 1):
        raise RecordError(_UNCLEAR)
    return answer.strip()


def read_answer(text: str) -> tuple[str, dict[str, bool]]:
    """Return the answer in a model's text, or the text if it cannot be told, and the keys of `Response.extra` for it."""
    if not _has_sign(text):
        return text, {"unclear": True} if _BEGUN.match(text) else {}
    try:
        answer = without_thoughts(text)
    except RecordError:
        return text, {"unclear": True}
    notes = {"thoughts": True} if answer != text else {}
    for mark in _SUSPECT.finditer(answer):
        if mark.lastgroup != "struck" and answer[mark.start() - 1 : mark.start()] not in _QUOTES:
            notes["unclear"] = True
    return answer, notes


def note_on_thoughts(cases: Sequence[Any]) -> list[str]:
    """Return a line for each thing that answers of cases held beside the answer when they were read, with their number."""
    responses = chain.from_iterable(case.responses for case in cases)
    counts = Counter(chain.from_iterable(response.extra for response in responses))
    return [f"answers with {what}: {counts[key]:,}" for key, what in _BESIDE.items() if counts[key]]


def own_text(text: str) -> str:
    """Return the text before the first control token: what follows it is not the model's answer."""
    return CONTROL_TOKEN.split(text, maxsplit=1)[0]
