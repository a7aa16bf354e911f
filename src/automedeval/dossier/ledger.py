"""The ledger of a pack: one line for each file and each person, and each line holds the sha256 of the line before it.

The hash of the last line stands in the pages too, and head.json seals ledger and pages, so that a ledger that was cut is found.
Who can rewrite all of them can rewrite the whole pack: keep the last hash elsewhere.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from automedeval.records import RecordError

LEDGER, HEAD = "ledger.jsonl", "head.json"
PAGES = ("dossier.html", "dossier.md")
SEALED = (LEDGER, *PAGES)
START = "0" * 64  # before the first line


def sha256_of(content: Path | bytes) -> str:
    """Return the sha256 of a file, or of bytes, in hexadecimal digits."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def chained(entries: Iterable[Mapping[str, Any]]) -> tuple[bytes, str]:
    """Return entries as a ledger, and the hash of its last line."""
    lines, last = [], START
    for entry in entries:
        lines.append(json.dumps({**entry, "previous": last}).encode() + b"\n")
        last = sha256_of(lines[-1])
    return b"".join(lines), last


def head_of(hashes: Mapping[str, Any]) -> bytes:
    """Return the content of head.json: the sha256 of each file in `SEALED`."""
    return (json.dumps(hashes, indent=1) + "\n").encode()


def verify(pack: Path) -> tuple[list[str], int, str]:
    """Return what was changed in a pack, in sentences, the number of lines of its ledger, and the hash of the last one.

    Raises:
        RecordError: the folder is not there, or has no ledger.
    """
    there = {path.relative_to(pack).as_posix(): path for path in sorted(pack.rglob("*")) if not path.is_dir()}
    if LEDGER not in there:
        raise RecordError(f"{pack}: no pack of automedeval dossier: it has no {LEDGER}")
    entries, last, problems = _follow(there[LEDGER].read_bytes())
    sealed = there[HEAD].read_bytes() if HEAD in there else b""
    head = _mapping(sealed)
    if HEAD in there and (tuple(head) != SEALED or head_of(head) != sealed):
        problems, head = [*problems, f"{HEAD}: changed"], {}
    for name in PAGES:
        if name in there and last.encode() not in there[name].read_bytes():
            problems.append(f"{LEDGER}: ends with another hash than {name} says: it was cut, or one of them changed")
    listed = {str(entry["file"]): entry["sha256"] for entry in entries if entry.keys() >= {"file", "sha256"}} | head
    problems += [f"{name}: missing" for name in {**listed, HEAD: "", **dict.fromkeys(PAGES)} if name not in there]
    problems += [f"{name}: not in the ledger" for name in there if name not in {*listed, HEAD, *SEALED}]
    for name, digest in listed.items():
        if name in there and sha256_of(there[name]) != digest:
            problems.append(f"{name}: changed{f', or {HEAD} is' if name in SEALED else ''}")
    return problems, len(entries), last


def _follow(ledger: bytes) -> tuple[list[dict[str, Any]], str, list[str]]:
    """Return the entries of a ledger, empty where a line is none, the hash of the last line, and the broken links."""
    *lines, rest = ledger.split(b"\n")
    problems, entries, last = [f"{LEDGER}: its last line is not whole"] * bool(rest), [], START
    for number, line in enumerate(lines, 1):
        entry = _mapping(line)
        if entry.get("previous") != last:
            problems.append(f"{LEDGER}, line {number}: does not follow the line before: one was changed, cut or moved")
        entries.append(entry)
        last = sha256_of(line + b"\n")
    return entries, last, problems


def _mapping(content: bytes) -> dict[str, Any]:
    """Return a JSON object, empty where there is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
