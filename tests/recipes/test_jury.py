"""recipes/jury.py by its command: the mean, effective votes, judges that fail, and bad input."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import CASES, FAST, RATINGS, meta_evaluate, noisy_verdicts, read, write
from programs import error_line, run_recipe

jury = partial(run_recipe, "jury")


@pytest.fixture
def judges(tmp_path: Path) -> list[object]:
    """Write three judges' verdicts; return the recipe's arguments."""
    files = [write(tmp_path / f"{name}.jsonl", noisy_verdicts(name, 0.6, seed)) for seed, name in enumerate("abc")]
    return ["--verdicts", *files, "--cases", CASES, "--output", tmp_path / "out"]


def failed(record: dict) -> dict:
    return record | {"valid": False, "scores": None, "expected_scores": None, "error": "no score line"}


def test_the_average_is_of_valid_verdicts_and_a_verdict_that_reports_read(judges: list, tmp_path: Path) -> None:
    lines_of = [read(tmp_path / f"{name}.jsonl") for name in "abc"]
    first, second = lines_of[0][0]["case_id"], lines_of[0][1]["case_id"]
    for number, name in enumerate("abc"):
        bad = {first, second} if number < 2 else {first}  # all fail on the first case, two on the second
        lines_of[number] = [failed(each) if each["case_id"] in bad else each for each in lines_of[number]]
        write(tmp_path / f"{name}.jsonl", lines_of[number])
    done = jury(*judges)
    assert done.returncode == 0, done.stderr
    assert "scores, not of their errors" in done.stdout
    assert "effective" not in done.stdout
    verdicts = {each["case_id"]: each for each in read(tmp_path / "out" / "verdicts.jsonl")}
    assert len(verdicts) == 30
    assert (verdicts[first]["valid"], verdicts[first]["expected_scores"], verdicts[first]["scores"]) == (
        False,
        None,
        None,
    )
    assert "no judge has a valid score" in verdicts[first]["error"]
    by_judge = [{each["case_id"]: each["expected_scores"] for each in records} for records in lines_of]
    assert verdicts[second]["expected_scores"] == by_judge[2][second]
    for case in set(verdicts) - {first, second}:
        assert verdicts[case]["expected_scores"] == pytest.approx(
            np.mean([scores[case] for scores in by_judge], axis=0)
        )
    again = meta_evaluate("--verdicts", tmp_path / "out", "--cases", CASES, "--output", tmp_path / "report", *FAST)
    assert again.returncode == 0, again.stderr


def test_ratings_give_effective_votes(judges: list, tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", [each | {"judge": "b"} for each in read(tmp_path / "a.jsonl")])  # a and b are equal
    done = jury(*judges, "--ratings", RATINGS)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out" / "jury.json").read_text(encoding="utf-8"))
    assert record["correlations"][0][1] == pytest.approx(1)
    assert 1 < record["effective_votes"] < 2.2, "two equal judges and a third"


def test_a_jury_of_one_judge_is_one_line(judges: list, tmp_path: Path) -> None:
    alone = ["--verdicts", tmp_path / "a.jsonl", *judges[4:]]
    assert "two judges or more" in error_line(jury(*alone))
