"""What a text speaks of: the stems of its content words, and its numbers."""

import re
from importlib import resources

_WORD = re.compile(r"[0-9]+(?:[.,/][0-9]+)*|[^\W\d_]{3,}")
_ENDINGS = re.compile(r"(?:ations?|ings?|ies|ied|ed|es|s|ly|y|e)$")
# Words that judges and doctors use of any response.
_COMMON = frozenset(
    (resources.files(__package__) / "templates/common_words.txt")
    .read_text(encoding="utf-8")
    .split()
)


def terms(text: str) -> set[str]:
    """Return the stems of a text's content words and its numbers."""
    stems = set()
    for word in _WORD.findall(text):
        if word[0].isdigit():
            stems.add(word.replace(",", ""))
        elif word.lower() not in _COMMON:
            stems.add(_ENDINGS.sub("", word.lower())[:8])
    return stems - {""}
