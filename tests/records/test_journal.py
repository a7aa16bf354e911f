"""The journal: whole lines or none, one writer, whatever happens."""

import json
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from automedeval.records import RecordError
from automedeval.records.journal import Journal


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_appends_and_goes_on(tmp_path):
    path = tmp_path / "new" / "j.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 1, "text": "ä\u2028\n"})
    with Journal(path) as journal:
        journal.append({"n": 2, "lone": "\ud800"})
        assert [record["n"] for record in journal.records()] == [1, 2]
    assert path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("torn", [b'{"n": 2, "te', b'{"n": 2}', b"\xff" * 200_000])
def test_a_torn_line_is_removed(tmp_path, torn):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"n": 1}\n' + torn)
    with Journal(path) as journal:
        assert journal.removed == len(torn)
        journal.append({"n": 3})
    assert lines(path) == [{"n": 1}, {"n": 3}]


def test_a_file_of_one_torn_line_becomes_empty(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"n"')
    with Journal(path):
        assert path.read_bytes() == b""


def test_a_second_writer_is_refused(tmp_path):
    with Journal(tmp_path / "j.jsonl"), pytest.raises(RecordError, match="another process"):
        Journal(tmp_path / "j.jsonl").__enter__()
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.append({"n": 1})


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """A limit on the file's size refuses a write as a full disk does: part of the line first, then an error."""
    path = tmp_path / "j.jsonl"
    program = f"""
        from automedeval.records.journal import Journal
        with Journal({str(path)!r}) as journal:
            for number in range(10_000):
                journal.append({{"n": number, "text": "x" * 100}})
    """
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))  # noqa: E731
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], preexec_fn=limit, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "RecordError" in done.stderr
    written = lines(path)
    assert [record["n"] for record in written] == list(range(len(written)))
    assert 30 < len(written) < 50
    assert path.read_bytes().endswith(b"\n")


def test_a_killed_writer_leaves_whole_lines_and_no_lock(tmp_path):
    path = tmp_path / "j.jsonl"
    program = f"""
        from automedeval.records.journal import Journal
        with Journal({str(path)!r}) as journal:
            for number in range(10**9):
                journal.append({{"n": number}})
    """
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
        before = path.stat().st_size if path.exists() else 0
        while not path.exists() or path.stat().st_size < before + 5000:
            time.sleep(0.01)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        with Journal(path) as journal:
            assert all("n" in record for record in journal.records())
