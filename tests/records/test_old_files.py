"""What commit 9445386 wrote (people's answers, teachers' answers, verdicts, a data set) is read unchanged."""

import json
import shutil
from pathlib import Path

import pytest
from doubles.agreement_study import read
from programs import (
    ROOT,
    error_line,
    needs_encoder,
    needs_judge,
    run_command,
    run_recipe,
    succeeded,
)
from pyarrow.parquet import read_table
from tables import rows_of

OLD = ROOT / "tests" / "fixtures" / "written_by_9445386"
RUNS, REPORTS = (rows_of(__file__)[name] for name in ("runs", "reports"))


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(OLD, tmp_path / "old")
    (folder / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(folder)
    return folder


def words(**options: object) -> list[object]:
    lists = {name: value if isinstance(value, list) else [value] for name, value in options.items()}
    return [word for name, values in lists.items() for word in (f"--{name}", *values)]


def judge(name: str):
    options = {
        "cases": "criteria_cases.jsonl" if name == "checklist" else "cases.jsonl",
        "dtype": "float32",
    }
    return run_command("judge", *words(output=f"verdicts/{name}", **options | RUNS[name]))


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, but for the locks."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".lock"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.parametrize("name", REPORTS)
def test_they_are_compared_with_peoples_answers(old: Path, name: str) -> None:
    """The figures are those of plain loops over the JSON lines."""
    succeeded(
        run_command("report", *words(output="report", resamples=100, **REPORTS[name]["options"]))
    )
    result = json.loads(Path("report", REPORTS[name]["file"]).read_text(encoding="utf-8"))
    for place, figure in REPORTS[name]["figures"].items():
        found = result
        for key in place.split("/"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert found == (pytest.approx(figure) if isinstance(figure, float) else figure), place


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("small", marks=needs_encoder),
        *(pytest.param(each, marks=needs_judge) for each in list(RUNS)[1:]),
    ],
)
def test_a_finished_run_judges_nothing_again_or_says_why_it_cannot_go_on(
    old: Path, name: str
) -> None:
    """The small judge's reading may change; a language model's prompts have a version, and stay what they are."""
    folder = old / "verdicts" / name
    before = content(folder)
    done = judge(name)
    after = content(folder)
    if done.returncode == 0:
        assert after["verdicts.jsonl"] == before["verdicts.jsonl"]
        assert after.keys() - {"cases-1.jsonl"} == before.keys()  # of --limit 1
        assert "(0 new)" in done.stdout
    elif name == "free":
        file = "verdicts/free/verdicts.jsonl"
        assert (
            error_line(done)
            == f"error: {file}: no verdict is valid, so that there is nothing to report"
        )
        assert after["verdicts.jsonl"] == before["verdicts.jsonl"]
    else:
        assert name == "small"
        assert "with other weights, wording or settings" in error_line(done)
        assert after == before


def test_teachers_verdicts_become_the_same_rows(old: Path) -> None:
    verdicts = "teachers/strong/verdicts.jsonl,teachers/weak/verdicts.jsonl"
    files = {
        "cases": "sample=cases.jsonl",
        "verdicts": verdicts,
        "licenses": "sample=apache-2.0",
        "plan": "plan.yaml",
    }
    succeeded(run_recipe("build_dataset", *words(**files, output="again")))
    for split in ("stage1", "test"):
        rows, again = (
            read_table(Path(place, f"{split}.parquet")).to_pylist()
            for place in ("instructions", "again")
        )
        assert again == rows
        (row,) = rows
        (taught,) = (
            each
            for each in read(old / "teachers/strong/verdicts.jsonl")
            if each["case_id"] == row["case_id"]
        )
        scores = " ".join(
            f"Doctor {n}: {taught['scores'][at]} points." for n, at in enumerate(row["order"], 1)
        )
        assert scores in row["completion"][0]["content"]
    checked = {"verdict_ratings": "page_verify/verdict_ratings.jsonl"}
    verified = succeeded(run_recipe("build_dataset", *words(**files | checked, output="verified")))
    ratings = read(old / "page_verify" / "verdict_ratings.jsonl")
    failed = {each["case_id"] for each in ratings if each["score"] < 1}
    assert (
        f"verification: 3 verdicts → {3 - len(failed)} kept, {len(failed)} rejected"
        in verified.stdout
    )


def test_the_jury_of_the_page_decides_the_mistake_that_waits(old: Path) -> None:
    files = {"dataset": "instructions", "cases": "cases.jsonl", "output": "round1"}
    done = run_recipe("introspect_discuss", *words(**files, verdicts="verdicts/training"))
    assert "1 mistake waits for the jury" in succeeded(done).stdout
    shutil.copytree(old / "page_jury", "round1.discussion/decided")
    succeeded(run_recipe("introspect_revise", *words(**files)))
    (decided,) = read(old / "page_jury" / "jury.jsonl")
    (row,) = read_table("round1/train.parquet").to_pylist()
    assert row["case_id"] == decided["case_id"]
    scores = [
        f"Doctor {n}: {decided['scores'][at]} points." for n, at in enumerate(row["order"], 1)
    ]
    assert " ".join(scores) in row["completion"][0]["content"]
