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
def test_it_is_the_t_test_s_plan(difference, level):
    theirs = pingouin.power_ttest(d=difference, power=POWER, alpha=level, contrast="one-sample")
    draws = difference + np.array([-0.1, 0.1])  # of a hundred cases with the standard deviation 1
    measured = Estimate(difference, cases=100, draws=draws)
    assert cases_needed(measured, level) == pytest.approx(np.ceil(theirs), abs=1)
    assert cases_needed(replace(measured, value=0.0001), level) is None


def test_of_cases_that_all_agree_the_sign_test_tells_how_many_are_enough():
    ones = np.ones(3)
    same = estimate(mean(ones, ones, 3), 3)
    for level in (0.05, 0.01):
        needed = cases_needed(same, level)
        enough = scipy.stats.binomtest(needed, needed)
        fewer = scipy.stats.binomtest(needed - 1, needed - 1)
        assert enough.pvalue < level < fewer.pvalue
    opposed = estimate(mean(np.array([1.0, -1.0]), np.ones(2), 2), 2)
    assert cases_needed(opposed) is None
