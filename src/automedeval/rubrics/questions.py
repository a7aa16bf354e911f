"""Read the questions of a model's message and look them up (paper, section 3.1, Algorithm 1)."""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from automedeval.models.base import Answer
from automedeval.records import JsonObject
from automedeval.records.language import normalise
from automedeval.records.thoughts import own_text
from automedeval.rubrics.grammar import parse_verdict
from automedeval.rubrics.rubric import Rubric

_MOST_AT_ONCE = 3  # questions of one message that are looked up
_LONGEST_QUESTION = 500  # characters
_QUESTION = re.compile(
    r"(?im)(?:\[\s{0,3}Question\s{0,3}[0-9]{0,2}\s{0,3}\][*_`]{0,4}[ \t]{0,3}[:：]?"
    r"|^[-+•*#_>` \t]{0,20}Question[ \t]{0,3}[0-9]{0,2}[*_`]{0,4}[:：](?=[^\n]{0,500}[?？]))"
    r"[*_`]{0,4}\s{0,20}((?:(?!\[\s{0,3}Question)[^\n]){1,2000})",
)
Search = Callable[
    [Sequence[str]], list[list[Any]]
]  # questions → for each question the passages found


def look_up(
    search: Search | None, questions: Sequence[str], seen: set[str]
) -> tuple[list[str], list[JsonObject] | None]:
    """Return the questions that are new, with the passages found for any of them, each passage once; None without a new one.

    `seen` are the questions that were asked before, normalised; the new ones are added.
    """
    new = [question for question in questions if normalise(question) not in seen]
    seen.update(map(normalise, new))
    if not new or search is None:
        return new, None
    passages = chain.from_iterable(search(new))
    found = {passage.id: passage.to_dict() for passage in passages}
    return new, list(found.values())


def questions_of(answer: Answer, rubric: Rubric, slots: int) -> list[str]:
    """Return the questions of a message, at most three; an empty list if the message is a verdict or has no question.

    `slots` is the number of responses that a verdict scores. A message that asks behind its scores is no verdict.
    """
    text = own_text(answer.text)
    if answer.error or parse_verdict(text, rubric, slots, truncated=answer.truncated).valid:
        return []
    questions: dict[str, str] = {}
    for match in _QUESTION.finditer(text):
        question = match[1].strip(" \t\r*_`")[:_LONGEST_QUESTION]
        is_last = not text[match.end() :].strip()
        broken_off = answer.truncated and is_last and not question.endswith(("?", "？"))
        asked = normalise(question)
        if not broken_off and asked not in ("", "what is"):  # the bare form asks nothing
            questions.setdefault(asked, question)
    return list(questions.values())[:_MOST_AT_ONCE]
