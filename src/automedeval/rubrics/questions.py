"""Read the questions that a teacher asks before it judges (paper, section 3.1, Algorithm 1)."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from automedeval.models.base import Answer, own_text
from automedeval.rubrics.grammar import parse_verdict
from automedeval.rubrics.rubric import Rubric

_MOST_AT_ONCE = 3  # questions of one message that are looked up
_LONGEST_QUESTION = 500  # characters
_QUESTION = re.compile(
    r"(?:\[\s{0,3}Question\s{0,3}[0-9]{0,2}\s{0,3}\][*_`]{0,4}[ \t]{0,3}[:：]?"
    r"|^[-+•*#_>` \t]{0,20}Question[ \t]{0,3}[0-9]{0,2}[*_`]{0,4}[:：](?=[^\n]{0,500}[?？]))"
    r"[*_`]{0,4}\s{0,20}((?:(?!\[\s{0,3}Question)[^\n]){1,2000})",
    re.I | re.M,
)
Search = Callable[[Sequence[str]], list[list[Any]]]  # questions in; for each the passages that were found


def normalised(question: str) -> str:
    """Return a question's words alone: two questions with the same ones are the same."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold()))


def questions_of(answer: Answer, rubric: Rubric, slots: int, may_ask: bool = True) -> list[str]:
    """Return the questions of a teacher's message, at most three; none if the message is a verdict, or neither.

    A complete question after the last complete score line wins over it where the teacher may ask. Where it was told not to,
    a verdict is a verdict whatever follows.
    """
    text = own_text(answer.text)
    reading = parse_verdict(text, rubric, slots, truncated=answer.truncated)
    if answer.error or (reading.valid and not may_ask):
        return []
    start = max(end for _, end in reading.spans) if reading.valid else 0
    found = {}
    for match in _QUESTION.finditer(text, start):
        question = match[1].strip(" \t\r*_`")[:_LONGEST_QUESTION]
        broken_off = answer.truncated and not text[match.end() :].strip() and not question.endswith(("?", "？"))
        if not broken_off and normalised(question) not in ("", "what is"):  # the bare form asks nothing
            found.setdefault(normalised(question), question)
    return list(found.values())[:_MOST_AT_ONCE]
