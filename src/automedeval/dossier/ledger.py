"""The ledger of a pack: one line for each file and each person, and each line holds the sha256 of the line before it.

The hash of the last line stands in the pages and in head.json too, so that a ledger that was cut is found. Who can rewrite all
three can rewrite the whole pack: keep the last hash elsewhere.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from automedeval.records import RecordError

LEDGER, HEAD = "ledger.jsonl", "head.json"
PAGES = ("dossier.html", "dossier.md")
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


def head_of(entries: int, last: str, pages: Mapping[str, Any]) -> bytes:
    """Return the content of head.json: the length of the ledger, its last hash, and the sha256 of each page."""
    return (json.dumps({"entries": entries, "last": last, **pages}, indent=1) + "\n").encode()


def verify(pack: Path) -> tuple[list[str], int, str]:
    """Return what was changed in a pack, in sentences, the number of lines of its ledger, and the hash of the last one.

    Raises:
        RecordError: the folder is not there, or has no ledger.
    """
    there = {path.relative_to(pack).as_posix(): path for path in sorted(pack.rglob("*")) if not path.is_dir()}
    if LEDGER not in there:
        raise RecordError(f"{pack}: no pack of automedeval dossier: it has no {LEDGER}")
    entries, last, problems = _follow(there[LEDGER].read_bytes())
    pages = {name: sha256_of(there[name]) for name in PAGES if name in there}
    if HEAD in there:
        problems += _against_head(there[HEAD].read_bytes(), len(entries), last, pages)
    for name in pages:
        if last.encode() not in there[name].read_bytes():
            problems.append(
                f"{LEDGER}: ends with another hash than {name} says: it was cut, or one of them was changed"
            )
    listed = {str(entry["file"]): entry["sha256"] for entry in entries if entry.keys() >= {"file", "sha256"}}
    problems += [f"{name}: missing" for name in (*listed, HEAD, *PAGES) if name not in there]
    problems += [f"{name}: not in the ledger" for name in there if name not in {*listed, LEDGER, HEAD, *PAGES}]
    changed = (name for name, digest in listed.items() if name in there and sha256_of(there[name]) != digest)
    return [*problems, *(f"{name}: changed" for name in changed)], len(entries), last


def _follow(ledger: bytes) -> tuple[list[dict[str, Any]], str, list[str]]:
    """Return the entries of a ledger, empty where a line is none, the hash of the last line, and the broken links."""
    *lines, rest = ledger.split(b"\n")
    problems, entries, last = [f"{LEDGER}: its last line is not whole"] * bool(rest), [], START
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        entry = entry if isinstance(entry, dict) else {}
        if entry.get("previous") != last:
            problems.append(f"{LEDGER}, line {number}: does not follow the line before: one was changed, cut or moved")
        entries.append(entry)
        last = sha256_of(line + b"\n")
    return entries, last, problems


def _against_head(head: bytes, entries: int, last: str, pages: Mapping[str, str]) -> list[str]:
    """Return in what head.json differs from the ledger and the pages that are there."""
    try:
        said = dict(json.loads(head))
    except (ValueError, TypeError, RecursionError):
        return [f"{HEAD}: changed"]
    if head == head_of(entries, last, {**{name: said.get(name) for name in PAGES}, **pages}):
        return []
    problems = [f"{name}: changed, or {HEAD} is" for name, digest in pages.items() if said.get(name) != digest]
    if (said.get("entries"), said.get("last")) != (entries, last):
        problems.append(f"{LEDGER}: {entries} lines, the last hash {last}; {HEAD} says otherwise: cut or changed")
    return problems or [f"{HEAD}: changed"]
