"""Find keys and names of annotators in texts that are to be published."""

import re

from automedeval.records.tables import packaged

SECRETS = {kind: re.compile(pattern.encode()) for kind, pattern in packaged("publishing", "secrets").items()}

# Where a text names annotators: as the value of a key, in a column, or as the judge of a person's own scores.
_EMPTY = rb"(?!(?:null|nan|true|false|~|-?[\d.]+)\s*(?:[,}\]\r\n#]|\Z)|\[\s*\]|\{\s*\}|\"\"|'')\S"
_NAME = rb"rater:[^\s`\"'\\]"
_PEOPLE = {
    "json": rb"(?i)\"annotators?\\*\"\s*:\s*" + _EMPTY + rb"|\"" + _NAME,
    "yaml": rb"(?im)(?:^|[{,\s-])[\"']?annotators?[\"']?\s*:\s*" + _EMPTY + rb"|[\s\"']" + _NAME,
    "csv": rb"(?i)\A(?:[^\n]*[,;|\t]|\xef\xbb\xbf)?[\"' ]*annotators?[\"' ]*(?:[,;|\t\r\n]|\Z)|\b" + _NAME,
    "txt": rb"\b" + _NAME,
}
_PEOPLE |= {"jsonl": _PEOPLE["json"], "yml": _PEOPLE["yaml"], "md": _PEOPLE["txt"]}


def secret_in(text: bytes) -> tuple[int, str] | None:
    """Return the line of the first key in a text, and its kind; None if there is none."""
    found = [(match.start(), kind) for kind, pattern in SECRETS.items() if (match := pattern.search(text))]
    if not found:
        return None
    start, kind = min(found)
    return text.count(b"\n", 0, start) + 1, kind


def names_annotators(text: bytes, kind: str) -> bool:
    """Return whether a text names annotators; `kind` is the suffix of its file, without the dot."""
    return kind in _PEOPLE and re.search(_PEOPLE[kind], text) is not None
