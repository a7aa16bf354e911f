"""The journal: whole lines or none, one writer, whatever happens."""

import resource
import signal
import subprocess
import sys
import time

import pytest
from doubles.agreement_study import read

from automedeval.records import RecordError
from automedeval.records.journal import Journal, replacing, write_whole


def test_appends_and_goes_on(tmp_path):
    path = tmp_path / "new/j.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 1, "text": "ä\u2028\n"})
    with Journal(path) as journal:
        journal.append({"n": 2, "lone": "\ud800"})
        assert [record["n"] for record in journal.records()] == [1, 2]
    assert path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("before", [b'{"n": 1}\n', b""])
@pytest.mark.parametrize("torn", [b'{"n": 2, "te', b'{"n": 2}', b"\xff" * 200_000])
def test_a_torn_line_is_removed(tmp_path, before, torn):
    path = tmp_path / "j.jsonl"
    path.write_bytes(before + torn)
    with Journal(path) as journal:
        assert path.read_bytes() == before
        journal.append({"n": 3})
    assert path.read_bytes() == before + b'{"n": 3}\n'


def test_a_second_writer_is_refused(tmp_path):
    with Journal(tmp_path / "j.jsonl"), pytest.raises(RecordError, match="another process"):
        Journal(tmp_path / "j.jsonl").__enter__()
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.append({"n": 1})


APPEND = """
import sys
from pathlib import Path
from automedeval.records.journal import Journal
with Journal(Path(sys.argv[1])) as journal:
    for number in range(10**9):
        journal.append({"n": number, "text": "x" * int(sys.argv[2])})
"""
WRITE_WHOLE = """
import sys
from pathlib import Path
from automedeval.records.journal import write_whole
for _ in range(100):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 2_000_000)
"""


def started(program, path, more, **options):
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path), more], stderr=subprocess.PIPE, **options
    )


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """A limit on the file's size refuses a write as a full disk does: part of the line first, then an error."""
    path = tmp_path / "j.jsonl"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))  # noqa: E731
    done = started(APPEND, path, "100", preexec_fn=limit)
    said = done.communicate()[1].decode()
    assert done.returncode != 0
    assert "RecordError" in said
    written = read(path)
    assert [record["n"] for record in written] == list(range(len(written)))
    assert 30 < len(written) < 50
    assert path.read_bytes().endswith(b"\n")


def test_a_killed_writer_leaves_whole_lines_and_no_lock(tmp_path):
    path = tmp_path / "j.jsonl"
    for _ in range(3):
        writer = started(APPEND, path, "0")
        before = path.stat().st_size if path.exists() else 0
        while not path.exists() or path.stat().st_size < before + 5000:
            assert writer.poll() is None
            time.sleep(0.01)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        with Journal(path) as journal:
            written = list(journal.records())
        assert len(written) > 100
        assert all("n" in record for record in written)


def test_of_two_writers_of_one_file_each_reader_gets_a_whole_content(tmp_path):
    """Two reports into one folder, as two shells start them."""
    path = tmp_path / "report.html"
    writers = [started(WRITE_WHOLE, path, letter) for letter in "ab"]
    seen = []
    running = True
    while running:
        running = any(writer.poll() is None for writer in writers)
        if path.exists():
            text = path.read_text()
            seen.append((len(text), len(set(text))))
    assert [writer.stderr.read() for writer in writers] == [b"", b""]
    assert set(seen) == {(2_000_000, 1)}
    assert [left.name for left in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file/j.jsonl"
    why = "cannot be written: a file stands where a folder is needed"
    with pytest.raises(RecordError, match=f"^{place}: {why}$"):
        Journal(place).__enter__()


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_whole(path, "old\n")
    with pytest.raises(ZeroDivisionError), replacing(path) as scratch:
        scratch.write_text("half") / 0
    path.with_name("folder").mkdir()
    with pytest.raises(RecordError, match="folder: Is a directory"):
        write_whole(path.with_name("folder"), "text")
    assert path.read_text() == "old\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json", "folder"]
