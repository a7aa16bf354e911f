"""`judge --columns`: a table whose columns say nothing by their names, beside what `prepare --columns` makes of it."""

from pathlib import Path

import pytest
from doubles.agreement_study import read
from programs import error_line, run_command, succeeded
from tables import rows_of, write_csv

COLUMNS = ("question=Frage", "reference=Gold", "Bot A", "Bot B")
NAMES = ("Frage", "Gold", "Bot A", "Bot B", "tie")
ROWS = [
    ("Is it safe?", "Yes, with food.", "Yes.", "Yes, if you eat first.", "old"),
    ("How often?", "Twice a day.", "Daily, at noon or so.", "Twice.", "new"),
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_csv("t.csv", NAMES, ROWS)
    return "t.csv"


def judged(table: str, *more: str):
    return run_command("judge", table, "--judge", "baseline:longer text", "--output", "v", *more)


def test_named_columns_are_judged_as_prepare_reads_them(table: str) -> None:
    assert "no column is called question" in error_line(judged(table))
    done = succeeded(judged(table, "--columns", *COLUMNS))
    assert "not read: tie" in done.stdout
    assert "--cases v/cases.jsonl" in done.stdout
    succeeded(run_command("prepare", table, "--columns", *COLUMNS, "--output", "p"))
    cases, of_prepare = read(Path("v/cases.jsonl")), read(Path("p/cases.jsonl"))
    for name in ("question", "reference", "responses"):
        assert [each[name] for each in cases] == [each[name] for each in of_prepare]
    before = Path("v/verdicts.jsonl").read_bytes()
    succeeded(judged(table, "--columns", *COLUMNS))
    assert Path("v/verdicts.jsonl").read_bytes() == before


@pytest.mark.parametrize(("more", "fault"), rows_of(__file__)["test_bad_columns_are_one_line"])
def test_bad_columns_are_one_line(table: str, more: tuple[str, ...], fault: str) -> None:
    line = error_line(run_command("judge", table, *more, "--judge", "baseline:longer text", "--output", "v"))
    assert fault in line
    assert not Path("v").exists()


def test_other_columns_leave_what_is_written(table: str) -> None:
    succeeded(judged(table, "--columns", *COLUMNS))
    kept = {file: file.read_bytes() for file in Path("v").iterdir()}
    assert "holds other cases than this table" in error_line(judged(table, "--columns", COLUMNS[0], "Bot A", "Gold"))
    assert {file: file.read_bytes() for file in Path("v").iterdir()} == kept
