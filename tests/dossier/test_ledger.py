"""The ledger: its chain by a plain loop, and every changed byte, cut, order and missing file found."""

import hashlib
import json
from pathlib import Path

import pytest

from automedeval.dossier.ledger import chained, head_of, verify

FILES = {"cases/c.jsonl": b'{"id": "1"}\n', "ratings/r.jsonl": b"\n", "report/agreement.json": b"{}"}


def plain_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Write a pack of three small files, with pages that name the last hash."""
    entries = [{"kind": "f", "file": name, "sha256": plain_hash(content)} for name, content in FILES.items()]
    ledger, last = chained([*entries, {"kind": "jury", "annotator": "chief-é", "overruled": "small", "cases": ["1"]}])
    pages = {name: f"{name} {last}".encode() for name in ("dossier.html", "dossier.md")}
    sealed = {"ledger.jsonl": ledger} | pages
    head = head_of({name: plain_hash(content) for name, content in sealed.items()})
    for name, content in (FILES | sealed | {"head.json": head}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_each_line_holds_the_hash_of_the_line_before(pack: Path) -> None:
    before = "0" * 64
    for line in (pack / "ledger.jsonl").read_bytes().splitlines(keepends=True):
        assert json.loads(line)["previous"] == before
        before = plain_hash(line)
    assert verify(pack) == ([], 4, before)


def test_every_single_changed_byte_is_found(pack: Path) -> None:
    files = [path for path in pack.rglob("*") if path.is_file()]
    assert len(files) == 7
    for path in files:
        content = path.read_bytes()
        for place, byte in enumerate(content):
            other = byte ^ (0x20 if chr(byte).isalpha() else 1)  # 0x20: a letter in the other case
            path.write_bytes(content[:place] + bytes([other]) + content[place + 1 :])
            assert verify(pack)[0], f"{path.name}, byte {place}: {byte} became {other}"
        path.write_bytes(content)
    assert verify(pack)[0] == []


def test_a_ledger_that_is_cut_or_longer_is_found(pack: Path) -> None:
    path = pack / "ledger.jsonl"
    content = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content[:-1]) if byte == ord("\n")]
    for length in (*ends, *range(0, len(content), 17), len(content) - 1):
        path.write_bytes(content[:length])
        assert verify(pack)[0], f"cut to {length} bytes"
    for more in (b"\n", b" ", b"{}\n", content.splitlines(keepends=True)[-1]):
        path.write_bytes(content + more)
        assert verify(pack)[0], f"{more!r} added"


def test_a_cut_is_found_in_the_pages_though_the_head_was_written_anew(pack: Path) -> None:
    path = pack / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[:-1]
    path.write_bytes(b"".join(lines))
    sealed = ("ledger.jsonl", "dossier.html", "dossier.md")
    (pack / "head.json").write_bytes(head_of({name: plain_hash((pack / name).read_bytes()) for name in sealed}))
    problems, length, _ = verify(pack)
    assert length == 3
    assert len(problems) == 2
    assert "than dossier.html says" in problems[0]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}\n", b'{"ledger.jsonl": null, "dossier.html": null, "dossier.md": null}']
)
def test_a_head_without_hashes_is_found(pack: Path, content: bytes) -> None:
    (pack / "head.json").write_bytes(content)
    assert verify(pack)[0] == ["head.json: changed"]


def test_a_reordered_ledger_is_found(pack: Path) -> None:
    path = pack / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for order in [(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2), (3, 2, 1, 0)]:
        path.write_bytes(b"".join(lines[place] for place in order))
        assert any("does not follow the line before" in problem for problem in verify(pack)[0])


@pytest.mark.parametrize("name", [*FILES, "head.json", "dossier.md", "dossier.html"])
def test_a_missing_file_is_named(pack: Path, name: str) -> None:
    (pack / name).unlink()
    assert verify(pack)[0] == [f"{name}: missing"]


def test_a_file_that_the_ledger_does_not_have_is_named(pack: Path) -> None:
    (pack / "cases" / "more.jsonl").write_text("{}\n")
    assert verify(pack)[0] == ["cases/more.jsonl: not in the ledger"]
