"""Repeated training runs in the report: which judges are runs of one, their mean, and how far they lie apart."""

import json
import re
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from doubles.agreement_study import CASES, FAST, RATINGS, meta_evaluate, right_verdicts, write

from automedeval.meta_evaluation.runs import TRAINING_MEASURES, repeated
from automedeval.stats import bootstrap

RIGHT = {"stage3": 15, "stage3-run2": 18, "stage3-run10": 12, "zero-shot": 9}


def test_runs_are_told_by_their_names() -> None:
    names = ["a-run10", "a", "b", "a-run2", "c-run2", "run2"]
    assert repeated(names) == {"a": ["a", "a-run2", "a-run10"]}


def test_a_mean_over_runs_is_paired_over_cases() -> None:
    first = np.array([1.0, 0.0] * 20)
    one, two = bootstrap.bootstrap([bootstrap.ratio(each, np.ones(40)) for each in (first, 1 - first)], 40, 500)
    told = bootstrap.average([one, two])
    assert (told.value, float(np.ptp(told.draws))) == pytest.approx(
        (0.5, 0.0)
    )  # what one run gives a case the other takes
    assert "the same value" in told.reason
    assert one.high - one.low > 0.2
    same = bootstrap.average([one, one, one])
    assert (same.value, same.low, same.high) == pytest.approx((one.value, one.low, one.high))


@pytest.fixture
def judged(tmp_path: Path) -> list[str]:
    return [f"{name}={write(tmp_path / f'{name}.jsonl', right_verdicts(count))}" for name, count in RIGHT.items()]


def test_the_report_has_a_line_for_the_runs_of_a_judge(judged: list[str], tmp_path: Path) -> None:
    given = ["--verdicts", *judged, "--cases", CASES, "--ratings", RATINGS, "--output", tmp_path / "out", *FAST]
    done = meta_evaluate(*given)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "agreement.json").read_text())
    (line,) = found["repeats"]
    runs = ["stage3", "stage3-run2", "stage3-run10"]
    assert (line["judge"], line["names"], line["scores"]) == ("stage3", runs, "own")
    for measure in TRAINING_MEASURES:
        values = [found["judges"][name][measure]["value"] for name in runs]
        assert line[measure]["mean"]["value"] == pytest.approx(mean(values))
        assert line[measure]["mean"]["low"] < mean(values) < line[measure]["mean"]["high"]
        assert line[measure]["spread"] == pytest.approx(stdev(values))
    told = f"{100 * line['triple_accuracy']['spread']:.2f}"
    for kind in ("html", "md"):
        text = re.sub(r"\s+", " ", (tmp_path / "out" / f"report.{kind}").read_text())
        assert "Repeated runs" in text
        assert told in text


def test_judges_without_a_second_run_have_no_such_table(judged: list[str], tmp_path: Path) -> None:
    given = ["--cases", CASES, "--ratings", RATINGS, "--output", tmp_path / "out", *FAST]
    assert meta_evaluate("--verdicts", judged[0], judged[3], *given).returncode == 0
    assert "repeats" not in json.loads((tmp_path / "out" / "agreement.json").read_text())
    assert "Repeated runs" not in (tmp_path / "out" / "report.md").read_text()
