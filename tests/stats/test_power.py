"""Plans of ratings, against pingouin and in simulation."""

import numpy as np
import pingouin
import pytest
import scipy

from automedeval.stats.bootstrap import estimate, mean
from automedeval.stats.power import POWER, cases_needed, ratings_needed
from automedeval.stats.prediction_powered import prediction_powered


@pytest.mark.parametrize("difference", [0.05, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_without_a_judge_it_is_the_t_test_s_plan(difference: float, level: float) -> None:
    theirs = pingouin.power_ttest(d=difference, power=POWER, alpha=level, contrast="one-sample")
    assert ratings_needed(difference, 1.0, level=level) == pytest.approx(np.ceil(theirs), abs=1)
    assert ratings_needed(-3 * difference, 3.0) == ratings_needed(difference, 1.0)


def test_a_judge_saves_ratings_and_too_few_verdicts_are_said() -> None:
    without = ratings_needed(0.2, 1.0)
    assert ratings_needed(0.2, 1.0, 0.5, 5000) < without / 2
    assert ratings_needed(0.2, 1.0, 1.0, 5000) == without
    assert ratings_needed(0.2, 1.0, 0.5, 150) is None
    assert ratings_needed(0.4, 1.0, 0.3, 50) is None
    assert ratings_needed(0.0, 1.0) is None
    assert ratings_needed(0.0001, 1.0) is None


@pytest.mark.parametrize(("cases", "rest", "gap"), [(100, 0.1, 0.3), (300, 0.1, 0.2), (100, 0.6, 0.3)])
def test_with_a_judge_it_is_the_least_number_that_has_the_power(cases: int, rest: float, gap: float) -> None:
    needed = ratings_needed(gap, 1.0, rest, cases)
    rated = np.array([needed - 1, needed])
    shift = gap / np.sqrt(rest**2 / rated + (1 - rest**2) / cases)
    fewer, enough = scipy.stats.nct.sf(scipy.stats.t.ppf(1 - 0.05 / 2, rated - 1), rated - 1, shift)
    assert fewer < POWER <= enough


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_so_many_cases_tell_two_models_apart(level: float) -> None:
    """Margins of wins and losses, 1, 0 or -1 a case: as many cases as are said find the difference by scipy's t-test."""
    rng, odds = np.random.default_rng(0), [0.3, 0.25, 0.45]
    margins = rng.choice([-1.0, 0.0, 1.0], 60, p=odds)
    shares = [float((margins == each).mean()) for each in (-1, 0, 1)]
    needed = cases_needed(estimate(mean(margins, np.ones(60), 60), 60), level)
    draws = rng.choice([-1.0, 0.0, 1.0], (2000, needed), p=shares)
    assert np.mean(scipy.stats.ttest_1samp(draws, 0.0, axis=1).pvalue < level) == pytest.approx(POWER, abs=0.05)


def test_of_cases_that_all_agree_the_sign_test_tells_how_many_are_enough() -> None:
    for level in (0.05, 0.01):
        needed = cases_needed(estimate(mean(np.ones(3), np.ones(3), 3), 3), level)
        enough, fewer = (scipy.stats.binomtest(n, n).pvalue for n in (needed, needed - 1))
        assert enough < level < fewer
    assert cases_needed(estimate(mean(np.array([1.0, -1.0]), np.ones(2), 2), 2)) is None


def test_a_plan_comes_true() -> None:
    """So many rated cases tell the difference as often as was planned."""
    spread, rest, cases = 1.0, 0.6, 800
    planned = ratings_needed(0.25, spread, rest, cases)
    detected = 0
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        judge = rng.normal(0, 0.8, cases)
        people = np.where(np.arange(cases) < planned, 0.25 + judge + rng.normal(0, rest, cases), np.nan)
        interval = prediction_powered(people, judge).interval
        detected += interval.low * interval.high > 0
    assert detected / 1500 == pytest.approx(0.8, abs=0.04)
