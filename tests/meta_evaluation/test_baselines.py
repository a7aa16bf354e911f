"""Whether a judge is better than the best baseline: what is decided from the differences, and how often wrongly."""

import numpy as np
import pytest
from tables import each_row

from automedeval.meta_evaluation.agreement.baselines import best_baseline
from automedeval.metrics.embedding import QUESTION
from automedeval.stats.bootstrap import (
    Estimate,
    adjust,
    bootstrap,
    difference,
    estimate_from,
    ratio,
)

LONGER = "longer text"
BM25 = "BM25 to the question"


def gap(value: float, spread: float = 0.02) -> Estimate:
    """Return a difference over 100 cases whose draws have this standard deviation."""
    draws = value + spread * np.random.default_rng(0).standard_normal(2000)
    return estimate_from(value, draws, 100, 300, (-1.0, 1.0))


def best(gaps: dict[str, float | Estimate]) -> dict | None:
    records = [{"second": name, "concordances": [None, None]} for name in gaps]
    for record, each in zip(records, gaps.values()):
        record["difference"] = each if isinstance(each, Estimate) else gap(each)
    adjust(records, "difference")
    return best_baseline(records)


@each_row("gaps, outcome")
def test_every_baseline_counts(gaps, outcome):
    assert best({name: gap(*drawn) for name, drawn in gaps.items()})["outcome"] == outcome


def test_worse_is_adjusted_for_the_number_of_baselines():
    loss = gap(-0.044)  # p is about .03
    assert 0.02 < best({BM25: loss})["p"] < 0.04
    among = best({BM25: loss, LONGER: gap(0.0)})
    assert (among["name"], among["outcome"]) == (BM25, "not better")
    assert among["p_adjusted"] == pytest.approx(2 * among["p"])


def test_without_an_interval_nothing_is_said():
    lone = estimate_from(0.3, np.full(100, 0.3), 1, 3)
    assert best({}) is None
    assert best({BM25: lone}) is None
    assert best({BM25: Estimate(None, reason="no pair")}) is None
    assert best({BM25: lone, LONGER: gap(0.3)})["name"] == LONGER


def test_a_judge_as_good_as_the_best_baseline_is_seldom_called_better_or_worse():
    """One of three baselines is as good as the judge: a wrong claim in about 5 of 100 studies at most, each way in half."""
    rng, outcomes, names = np.random.default_rng(7), [], (QUESTION, BM25, LONGER)
    for _ in range(200):
        right = rng.random((80, 4)) < [0.7, 0.7, 0.6, 0.5]  # the judge, and three baselines
        judge, *others = bootstrap(
            [ratio(column.astype(float), np.ones(80)) for column in right.T], 80, 400
        )
        found = best({name: difference(judge, other) for name, other in zip(names, others)})
        outcomes.append(found["outcome"])
    assert outcomes.count("better") <= 0.05 * 200
    assert outcomes.count("worse") <= 0.05 * 200
    assert outcomes.count("not better") < 200
