"""Plans of cases, against pingouin and in simulation."""

from dataclasses import replace

import numpy as np
import pingouin
import pytest
import scipy

from automedeval.stats.bootstrap import Estimate, estimate, mean
from automedeval.stats.power import POWER, cases_needed


@pytest.mark.parametrize("difference", [0.05, 0.1, 0.3, 1.0, -0.3])
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_it_is_the_t_test_s_plan(difference: float, level: float) -> None:
    theirs = pingouin.power_ttest(d=difference, power=POWER, alpha=level, contrast="one-sample")
    draws = difference + np.array([-0.1, 0.1])  # of a hundred cases with the standard deviation 1
    measured = Estimate(difference, cases=100, draws=draws)
    assert cases_needed(measured, level) == pytest.approx(np.ceil(theirs), abs=1)
    assert cases_needed(replace(measured, value=0.0001), level) is None


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
