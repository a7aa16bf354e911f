"""Regular expressions that are put together of named parts."""

import string
from collections.abc import Iterable, Mapping


class _Pattern(string.Template):
    delimiter = "@"


def filled(pattern: str, parts: Mapping[str, str]) -> str:
    """Return a regular expression with parts in the place of their names, "@number"; KeyError for a name without a part."""
    return _Pattern(pattern).substitute(parts)


def all_filled(patterns: Mapping[str, str], parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parts and these patterns by name, each filled with the parts and with the patterns above it."""
    known = dict(parts)
    for name, pattern in patterns.items():
        known[name] = filled(pattern, known)
    return known


def one_of(words: Iterable[str]) -> str:
    """Return the pattern of any of some words, the longest first."""
    return f"(?:{'|'.join(sorted(words, key=len, reverse=True))})"
