"""What an answer says, and which words of it are the same."""

import re
import unicodedata
from dataclasses import dataclass

from automedeval.rubrics.rubric import Rubric


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer in slot order: `choices` are "a", "b", "tie" or "neither".

    `criterion_scores` maps each criterion that an answer scores to the scores of the slots. `scores` are then their means,
    rounded to whole numbers, a half upwards.
    """

    valid: bool
    error: str | None = None
    rationale: str | None = None
    scores: tuple[int, ...] | None = None
    choices: dict[str, str] | None = None
    criterion_scores: dict[str, tuple[int, ...]] | None = None


class _Seen(dict[int, str | None]):
    """What a reader sees of each character: nothing of an invisible one, a plain blank for every blank, and line breaks."""

    def __missing__(self, letter: int) -> str | None:
        sign = chr(letter)
        kind = unicodedata.category(sign)
        invisible = kind in ("Cf", "Me") or (kind == "Cc" and not sign.isspace())
        blank = sign if sign in "\t\n\r" else " " if kind == "Zs" else "\n"
        self[letter] = None if invisible else blank if sign.isspace() else sign
        return self[letter]


SEEN = _Seen()


def folded(text: str) -> str:
    """Return what keys and labels of an answer are compared by: capitals, blanks and "_" make no difference."""
    return re.sub(r"[\s_-]+|(?<=[a-z])(?=[A-Z0-9])", "_", text.translate(SEEN).strip()).casefold()


def words(rubric: Rubric, name: str) -> dict[str, str]:
    """Return the words that answer a criterion → what a verdict records."""
    plain = {folded(word): choice for choice, word in rubric.labels(name).items()}
    return {f"response_{word}": choice for word, choice in plain.items()} | plain
