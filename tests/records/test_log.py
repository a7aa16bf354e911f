"""The log: what is there is kept, other settings are refused, and the parts of several processes become one file."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from factories import verdicts_in, write

from automedeval.records import RecordError, Verdict, read_records
from automedeval.records.journal import Processes
from automedeval.records.log import Log, replaced_file

AUTHOR = ("judge", "automedeval@1")


def verdict(number: int, settings: str = "s1", **more: object) -> Verdict:
    more |= {"settings": settings, "case_digest": f"d{number}"}
    return Verdict(f"c{number}", *AUTHOR, order=(0, 1), valid=True, **more)


def log_of(folder: Path, settings: str = "s1", processes: Processes = Processes()) -> Log:  # noqa: B008
    return Log(folder / "verdicts.jsonl", Verdict, AUTHOR, settings, processes)


def ids(folder: Path) -> list[str]:
    return [verdict.case_id for verdict in verdicts_in(folder)]


def test_only_what_is_missing_is_written(tmp_path):
    digests = {f"c{number}": f"d{number}" for number in range(4)}
    with log_of(tmp_path) as log:
        assert log.done(digests) == set()
        log.fill(map(verdict, range(2)), 2)
    assert (log.new, ids(tmp_path)) == (2, ["c0", "c1"])
    with open(log.path, "a") as file:
        file.write('{"case_id": "c2", "ju')  # a run was killed here
    with log_of(tmp_path) as log:
        assert log.done(digests) == {verdict(0).key, verdict(1).key}
        assert log.done({"c1": "d1"}) == {verdict(1).key}
        log.fill(map(verdict, range(2, 4)), 2)
    assert (log.new, ids(tmp_path)) == (2, ["c0", "c1", "c2", "c3"])


def test_other_settings_and_changed_texts_are_refused(tmp_path):
    with log_of(tmp_path) as log:
        log.fill([verdict(0), replace(verdict(0, "s9"), judge="other")], 2)
    cases = [
        ("s2", {}, r"\(s1, now s2\): choose another --output"),
        ("s1", {"c0": "d1"}, r"the texts of case 'c0' changed .*another --output"),
    ]
    for settings, digests, said in cases:
        with log_of(tmp_path, settings) as log, pytest.raises(RecordError, match=said):
            log.done(digests)
    assert [record.judge for record in log.records()] == ["judge"]


def test_records_on_changed_texts_are_moved_where_they_are_made_anew(tmp_path):
    digests = {f"c{number}": f"d{number}" for number in range(3)}
    with log_of(tmp_path) as log:
        log.fill([*map(verdict, range(3)), replace(verdict(1), judge="other")], 4)
    log = Log(log.path, Verdict, AUTHOR, "s1", renewed=digests | {"c1": "new"})
    left = {verdict(0).key, verdict(2).key}
    assert log.done(log.renewed) == left, "a dry run moves nothing"
    with log:
        (note,) = log.notes()
        assert note.startswith("1 of 3 cases changed in texts or answers: asked anew")
        assert log.done(log.renewed) == left
    assert ids(tmp_path) == ["c0", "c2", "c1"], "another judge's verdict stays"
    (moved,) = read_records(replaced_file(log.path), Verdict)
    assert moved == verdict(1)


def test_processes_share_a_file_and_leave_no_part(tmp_path):
    write(tmp_path / "verdicts.jsonl", [verdict(0)])
    # an interrupted run: the first record of the part was moved already, the last one is torn
    part = write(tmp_path / "verdicts.part1.jsonl", map(verdict, range(3)))
    part.write_bytes(part.read_bytes()[:-9])
    barrier = threading.Barrier(2, timeout=20)

    def one(rank):
        with log_of(tmp_path, processes=Processes(rank, 2, barrier.wait)) as log:
            done = log.done({f"c{number}": f"d{number}" for number in range(6)})
            log.fill((verdict(number) for number in range(2 + rank, 6, 2)), 2)
        return done, log.new

    with ThreadPoolExecutor(2) as processes:
        (done, new), (done_of_second, _) = processes.map(one, range(2))
    assert done == done_of_second == {verdict(0).key, verdict(1).key}
    assert new == 4
    assert ids(tmp_path) == ["c0", "c1", "c2", "c4", "c3", "c5"]
    assert not list(tmp_path.glob("*part*"))
