"""The measures of agreement, against examples worked by hand, published ones, and independent libraries."""

import json
from pathlib import Path

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from automedeval.stats import agreement, interrater
from automedeval.stats.agreement import Panel
from automedeval.stats.bootstrap import value_of

WORKED = json.loads((Path(__file__).parents[1] / "data" / "agreement.json").read_text(encoding="utf-8"))
NAN = float("nan")

# Shrout and Fleiss 1979, Table 2: six targets rated by four judges.


def floats(values: list) -> np.ndarray:
    return np.array([NAN if value is None else value for value in values], float)


def measures(sizes: list[int], people: np.ndarray, judge: np.ndarray) -> dict[str, float]:
    panel = Panel.of_sizes(sizes)
    statistics = agreement.accuracies(panel, panel.relations(people), panel.relations(judge))
    statistics |= agreement.correlations(panel, people, judge)
    return {name: value_of(statistic, panel.cases) for name, statistic in statistics.items()}


@pytest.mark.parametrize("example", WORKED, ids=[example["name"] for example in WORKED])
def test_examples_worked_by_hand(example: dict) -> None:
    figures = measures(example["sizes"], floats(example["people"]), floats(example["judge"]))
    for name, value in example["expected"].items():
        assert figures[name] == pytest.approx(NAN if value is None else value, nan_ok=True), name


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=3, max_size=3), min_size=3, max_size=12))
@settings(max_examples=60, deadline=None)
def test_alpha_is_the_librarys(rows: list) -> None:
    ratings = np.array([[NAN if value is None else value for value in row] for row in rows])
    pairable = ratings[(~np.isnan(ratings)).sum(axis=1) > 1]
    values = pairable[~np.isnan(pairable)]
    for level in ("ordinal", "interval"):
        alpha = value_of(interrater.krippendorff_alpha(ratings, np.arange(len(rows)), len(rows), level), len(rows))
        if len(np.unique(values)) < 2:
            assert np.isnan(alpha)
        else:
            assert alpha == pytest.approx(krippendorff.alpha(ratings.T, level_of_measurement=level), abs=1e-9)


def test_zero_divided_by_zero_is_not_what_rounding_makes_of_it() -> None:
    thirds = np.array([[0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]] * 2)  # 0.6, and 0.6 with another last digit
    assert np.ptp(thirds) > 0
    assert np.isnan(value_of(interrater.krippendorff_alpha(thirds, np.arange(2), 2, "interval"), 2))


def test_ordinal_alpha_of_fine_scales_is_refused() -> None:
    statistic = interrater.krippendorff_alpha(np.arange(80.0).reshape(40, 2), np.arange(40), 40, "ordinal")
    assert np.isnan(value_of(statistic, 40))
    assert "interval" in statistic.reason


def test_rounding_is_no_variance() -> None:
    people = np.array([3.3, 3.3 + 4e-16, 3.3 - 4e-16, 3.3])
    figures = measures([2, 2], people, np.array([1.0, 2.0, 3.0, 4.0]))
    assert np.isnan(figures["pearson"])
    assert np.isnan(figures["spearman"])


def test_choices_against_sklearn() -> None:
    rng = np.random.default_rng(4)
    people = rng.integers(0, 4, 60)
    judge = np.where(rng.random(60) < 0.6, people, rng.integers(-1, 4, 60))
    statistics = agreement.choice_agreement(people, judge, np.arange(60) // 3, 20)
    assert value_of(statistics["accuracy"], 20) == pytest.approx(np.mean(people == judge))
    valid, turned = judge >= 0, np.array([1, 0, 2, 3])
    both_ways = [np.concatenate([side[valid], turned[side[valid]]]) for side in (people, judge)]
    assert value_of(statistics["kappa"], 20) == pytest.approx(cohen_kappa_score(*both_ways))
    swapped = agreement.choice_agreement(turned[people], np.where(valid, turned[judge], -1), np.arange(60) // 3, 20)
    assert value_of(swapped["kappa"], 20) == pytest.approx(value_of(statistics["kappa"], 20))
