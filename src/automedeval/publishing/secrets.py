"""Find keys and names of annotators in texts that are to be published."""

import re

from automedeval.records import RATER

# Only keys of a known form: whatever merely looks random is, in these repositories, a digest. Each pattern begins with plain
# letters, for which a text is searched fast; in JSON backslashes may stand in front of quotes and slashes.
SECRETS = {
    "a Hub token": rb"hf_[A-Za-z0-9]{20,}",
    "an API key": rb"sk-(?:(?<![\w-]sk-)|(?<=\\[bfnrt]sk-)|(?<=\\u\w{4}sk-))(?=[\w-]*[0-9])[\w-]{20,}",
    "an access key": rb"A(?:KIA|SIA)[A-Z0-9]{16}",
    "a GitHub token": rb"gh[pousr]_[A-Za-z0-9]{20,}",
    "a GitHub access token": rb"github_pat_\w{20,}",
    "a GitLab token": rb"glpat-[\w-]{20,}",
    "a chat token": rb"xox[abeoprs][.-][A-Za-z0-9.-]{10,}",
    "a chat webhook": rb"hooks\.slack\.com\\*/services\\*/T\w+\\*/B\w+\\*/\w{10,}",
    "a Google key": rb"AIza[\w-]{35}",
    "a storage key": rb"AccountKey=[A-Za-z0-9+/\\]{60,}",
    "an npm token": rb"npm_[A-Za-z0-9]{36}",
    "a PyPI token": rb"pypi-AgE[\w-]{50,}",
    "a payment key": rb"[rs]k_live_[A-Za-z0-9]{20,}",
    "a mail key": rb"SG\.[\w-]{22}\.[\w-]{43}",
    "a signed token": rb"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",
    "a password in an address": rb":\\*/\\*/[^\s:/?#@\"'\[\]]{1,99}:[^\s:/?#@\"'\[\]${}<>*]{1,99}@[\w\[]",
    "a bearer token": rb"(?i:authorization[\\\"']*\s*[:=]\s*[\\\"']*bearer\s+[\w.~+/=-]{8,})",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}
_SECRETS = {kind: re.compile(pattern) for kind, pattern in SECRETS.items()}

# Where a text names annotators: as the value of a key, in a column, or as the judge of a person's own scores.
_EMPTY = rb"(?!(?:null|nan|true|false|~|-?[\d.]+)\s*(?:[,}\]\r\n#]|\Z)|\[\s*\]|\{\s*\}|\"\"|'')\S"
_NAME = RATER.encode() + rb"[^\s`\"'\\]"
_PEOPLE = {
    "json": rb"(?i)\"annotators?\\*\"\s*:\s*" + _EMPTY + rb"|\"" + _NAME,
    "yaml": rb"(?im)(?:^|[{,\s-])[\"']?annotators?[\"']?\s*:\s*" + _EMPTY + rb"|[\s\"']" + _NAME,
    "csv": rb"(?i)\A(?:[^\n]*[,;|\t]|\xef\xbb\xbf)?[\"' ]*annotators?[\"' ]*(?:[,;|\t\r\n]|\Z)|\b" + _NAME,
    "txt": rb"\b" + _NAME,
}
_PEOPLE |= {"jsonl": _PEOPLE["json"], "yml": _PEOPLE["yaml"], "md": _PEOPLE["txt"]}


def secret_in(text: bytes) -> tuple[int, str] | None:
    """Return the line of the first key in a text, and its kind; None if there is none."""
    found = [(match.start(), kind) for kind, pattern in _SECRETS.items() if (match := pattern.search(text))]
    if not found:
        return None
    start, kind = min(found)
    return text.count(b"\n", 0, start) + 1, kind


def names_annotators(text: bytes, kind: str) -> bool:
    """Return whether a text names annotators; `kind` is the suffix of its file, without the dot."""
    return kind in _PEOPLE and re.search(_PEOPLE[kind], text) is not None
