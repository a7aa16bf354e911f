"""Runs and repeated trainings in the report: which judges are runs of one, their mean, and how far they lie apart."""

import json
import re
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from doubles.agreement_study import CASES, FAST, RATINGS, meta_evaluate, right_verdicts, write
from programs import succeeded

from automedeval.meta_evaluation.agreement.runs import SCORES, over_runs, repeated, trainings_of
from automedeval.stats import bootstrap
from automedeval.stats.agreement import ACCURACIES, CORRELATIONS
from automedeval.stats.bootstrap import Estimate

RIGHT = {"stage3": 15, "stage3-run2": 18, "stage3-run10": 12, "zero-shot": 9}


def test_runs_are_told_by_their_names() -> None:
    names = ["a-run10", "a", "b", "a-run2", "c-run2", "run2"]
    assert repeated(names) == {"a": ["a", "a-run2", "a-run10"]}


def test_a_mean_over_runs_is_paired_over_cases() -> None:
    first = np.array([1.0, 0.0] * 20)
    right, wrong = bootstrap.bootstrap([bootstrap.ratio(each, np.ones(40)) for each in (first, 1 - first)], 40, 500)
    average = bootstrap.average([right, wrong])
    # What one run gives a case the other takes.
    assert (average.value, float(np.ptp(average.draws))) == pytest.approx((0.5, 0.0))
    assert "the same value" in average.reason
    assert right.high - right.low > 0.2
    same = bootstrap.average([right, right, right])
    assert (same.value, same.low, same.high) == pytest.approx((right.value, right.low, right.high))


@pytest.fixture
def judged(tmp_path: Path) -> list[str]:
    return [f"{name}={write(tmp_path / f'{name}.jsonl', right_verdicts(count))}" for name, count in RIGHT.items()]


def test_the_report_has_a_line_for_the_runs_of_a_judge(judged: list[str], tmp_path: Path) -> None:
    args = ["--verdicts", *judged, "--cases", CASES, "--ratings", RATINGS, "--output", tmp_path / "out", *FAST]
    succeeded(meta_evaluate(*args))
    result = json.loads((tmp_path / "out" / "agreement.json").read_text())
    line, alone = result["over_runs"]
    runs = ["stage3", "stage3-run2", "stage3-run10"]
    assert (line["judge"], line["names"], line["runs"], line["of"]) == ("stage3", runs, 3, "trainings")
    for measure in (name + end for end in SCORES.values() for name in ACCURACIES + CORRELATIONS):
        values = [result["judges"][name][measure]["value"] for name in runs]
        averaged = line[measure]
        if None in values:
            assert averaged["mean"]["value"] is averaged["sd"] is None
            continue
        assert averaged["values"] == values
        assert averaged["mean"]["value"] == pytest.approx(mean(values))
        if averaged["mean"]["low"] is not None:
            assert averaged["mean"]["low"] <= averaged["mean"]["value"] <= averaged["mean"]["high"]
        assert averaged["sd"] == pytest.approx(stdev(values))
    assert (alone["judge"], alone["runs"], alone["concordance"]["sd"]) == ("zero-shot", 1, None)
    assert alone["concordance"]["mean"] == result["judges"]["zero-shot"]["concordance"]
    deviation = f"{line['triple_accuracy']['sd']:.3f}"
    text = re.sub(r"\s+", " ", (tmp_path / "out" / "report.html").read_text())
    assert re.search("[Rr]uns of stage3: stage3, stage3-run2, stage3-run10", text)
    assert "uns of zero-shot" not in text
    assert deviation in text


def test_trainings_of_a_criterion_belong_together() -> None:
    names = {"a-run2: harm": ("a-run2", "harm"), "a: truth": ("a", "truth"), "b": ("b", None)}
    trainings = trainings_of(names | {"a-run2: truth": ("a-run2", "truth")})
    assert trainings == {"a-run2: harm": ["a-run2: harm"], "a: truth": ["a: truth", "a-run2: truth"], "b": ["b"]}


def test_a_training_counts_once_however_often_it_was_asked() -> None:
    def estimate_of(value: float) -> Estimate:
        return Estimate(value, 0.0, 1.0, 10, cases=10, draws=np.full(100, value) + np.linspace(0, 0.1, 100))

    average = over_runs({"a": {0: estimate_of(0.1), 1: estimate_of(0.3)}, "a-run2": {0: estimate_of(0.6)}})
    assert average["values"] == pytest.approx([0.2, 0.6])
    assert average["mean"].value == pytest.approx(0.4)
    assert average["sd"] == pytest.approx(stdev([0.2, 0.6]))
    average = over_runs({"a": {0: estimate_of(0.1), 2: Estimate(None, reason="no valid verdict")}})
    assert (average["mean"].value, average["mean"].reason, average["sd"]) == (None, "run 2: no valid verdict", None)
    average = over_runs({"a": {0: estimate_of(0.1)}})
    assert (average["mean"].value, average["sd"]) == (0.1, None)
