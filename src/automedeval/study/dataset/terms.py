"""What a text speaks of: the stems of its content words, and its numbers."""

import re
from importlib import resources

_WORD = re.compile(r"[0-9]+(?:[.,/][0-9]+)*|[^\W\d_]{3,}")
_ENDINGS = re.compile(r"(?:ations?|ings?|ies|ied|ed|es|s|ly|y|e)$")
# Words that judges and doctors use of any response.
_COMMON = frozenset(
    (resources.files(__package__) / "templates" / "common_words.txt")
    .read_text(encoding="utf-8")
    .split()
)


def terms(text: str) -> set[str]:
    """Return the stems of a text's content words and its numbers."""
    found = (word if word[0].isdigit() else word.lower() for word in _WORD.findall(text))
    stems = (
        each.replace(",", "") if each[0].isdigit() else _ENDINGS.sub("", each)[:8]
        for each in found
        if each not in _COMMON
    )
    return set(filter(None, stems))
