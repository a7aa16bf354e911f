"""Runs and repeated trainings in the report: which judges are runs of one, their mean, and how far they lie apart."""

from statistics import stdev
from types import SimpleNamespace

import numpy as np
import pytest

from automedeval.meta_evaluation.agreement.runs import over_runs, trainings_of
from automedeval.meta_evaluation.verdicts.table import Row
from automedeval.stats import bootstrap
from automedeval.stats.bootstrap import Estimate


def test_runs_are_told_by_their_names():
    names = ("a-run10", "a", "a-run2", "c-run2", "run2")
    last, first, second, *others = rows = [Row(SimpleNamespace(name=name)) for name in names]
    wanted = {"a": [first, second, last]} | {row.name: [row] for row in others}
    assert trainings_of(rows) == wanted


def test_a_mean_over_runs_is_paired_over_cases():
    first = np.array([1.0, 0.0] * 20)
    figures = [bootstrap.ratio(each, np.ones(40)) for each in (first, 1 - first)]
    right, wrong = bootstrap.bootstrap(figures, 40, 500)
    average = bootstrap.average([right, wrong])
    # What one run gives a case the other takes.
    assert (average.value, float(np.ptp(average.draws))) == pytest.approx((0.5, 0.0))
    assert "the same value" in average.reason
    assert right.high - right.low > 0.2
    same = bootstrap.average([right, right, right])
    assert (same.value, same.low, same.high) == pytest.approx((right.value, right.low, right.high))


def test_trainings_of_a_criterion_belong_together():
    names = (("a-run2", "harm"), ("a", "truth"), ("b", None), ("a-run2", "truth"))
    rows = [Row(SimpleNamespace(name=judge), criterion) for judge, criterion in names]
    harm, truth, b, again = rows
    trainings = {"a-run2: harm": [harm], "a: truth": [truth, again], "b": [b]}
    assert trainings_of(rows) == trainings


def estimate_of(value: float) -> Estimate:
    return Estimate(value, 0.0, 1.0, 10, cases=10, draws=value + np.linspace(0, 0.1, 100))


def test_a_training_counts_once_however_often_it_was_asked():
    asked_twice = {0: estimate_of(0.1), 1: estimate_of(0.3)}
    average = over_runs({"a": asked_twice, "a-run2": {0: estimate_of(0.6)}})
    assert average["values"] == pytest.approx([0.2, 0.6])
    assert average["mean"].value == pytest.approx(0.4)
    assert average["sd"] == pytest.approx(stdev([0.2, 0.6]))
