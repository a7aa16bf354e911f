"""Plans of cases, in simulation with scipy's sign test."""

from functools import cache

import numpy as np
import pytest
import scipy

from automedeval.stats.bootstrap import estimate, mean
from automedeval.stats.power import POWER, cases_needed

SHARES = [(0.6, 0.2, 0.2), (0.8, 0.1, 0.1), (0.1, 0.02, 0.88), (0.2, 0.3, 0.5)]


@cache
def p_value(better: int, worse: int) -> float:
    return scipy.stats.binomtest(better, better + worse).pvalue if better + worse else 1.0


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_the_sign_test_finds_the_difference_as_often_as_planned(shares, level):
    values = np.repeat([1.0, -1.0, 0.0], np.round(np.array(shares) * 100).astype(int))
    needed = cases_needed(estimate(mean(values, np.ones(100)), 100), level)
    draws = np.random.default_rng(0).multinomial(needed, shares, size=2_000)
    found = [p_value(better, worse) < level for better, worse, _ in draws.tolist()]
    assert np.mean(found) == pytest.approx(POWER, abs=0.05)


def test_of_cases_that_all_agree_so_many_are_enough():
    ones = np.ones(3)
    same = estimate(mean(ones, ones), 3)
    for level in (0.05, 0.01):
        needed = cases_needed(same, level)
        assert p_value(needed, 0) < level < p_value(needed - 1, 0)


def test_no_number_of_cases_shows_a_mean_that_is_0_or_nearly():
    opposed = np.array([1.0, -1.0])
    assert cases_needed(estimate(mean(opposed, np.ones(2)), 2)) is None
    nearly = np.append(np.tile(opposed, 1_000), 1)
    assert cases_needed(estimate(mean(nearly, np.ones(2_001)), 2_001)) is None


def test_of_clusters_that_all_agree_so_many_are_enough():
    halves = np.tile([1.0, 0.0], 30)
    clusters = np.repeat(range(3), 20)
    assert cases_needed(estimate(mean(halves, np.ones(60)), clusters)) == 6
    assert p_value(6, 0) < 0.05 < p_value(5, 0)
