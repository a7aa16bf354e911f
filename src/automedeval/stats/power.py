"""Plan how many cases people have to rate to find a difference between two candidates.

The plan inverts the variance of `prediction_powered`. Let σ be the standard deviation over cases of people's difference of two
models, and τ that of the part that the judge does not explain. The mean of n rated out of N judged cases has the variance

    V(n) = τ² / n + (σ² - τ²) / N,          and without the judge σ² / n.

The power of a two-sided t test of level 5 % for a difference δ is that of the noncentral t distribution with n - 1 degrees of
freedom and noncentrality δ / √V(n).
"""

import math
from bisect import bisect_left
from functools import partial

import numpy as np
import scipy

from automedeval.stats.bootstrap import ROUNDING, Estimate

LEVEL = 0.05
POWER = 0.8  # chance that a planned number of cases finds the difference
MOST = 1_000_000  # ratings that a plan without a judge may need


def power_of(
    rated: int, gap: float, spread: float, rest: float | None = None, cases: int | None = None, level: float = LEVEL
) -> float:
    """Return the power of a two-sided t test for a difference of two models.

    Args:
        rated: the number of rated cases, 2 or more.
        gap: the true difference, in the unit of `spread`.
        spread: the standard deviation over cases of people's difference.
        rest: the standard deviation of the part that the judge does not explain; None without a judge.
        cases: the number of judged cases, which include the rated ones.
        level: of the test.
    """
    variance = spread**2 / rated
    if rest is not None and cases is not None:
        variance = rest**2 / rated + max(0.0, spread**2 - rest**2) / cases
    if variance == 0:
        return float(gap != 0)
    freedom = rated - 1
    edge, centre = -float(scipy.special.stdtrit(freedom, level / 2)), abs(gap) / np.sqrt(variance)
    if centre > 30:
        return 1.0
    # The distribution function is inaccurate in its far tail, where the wrong side is; its value is below 1e-10 there.
    wrong_side = float(scipy.special.nctdtr(freedom, centre, -edge)) if centre < 4 else 0.0
    return 1 - float(scipy.special.nctdtr(freedom, centre, edge)) + wrong_side


def ratings_needed(
    gap: float, power: float, spread: float, rest: float | None = None, cases: int | None = None, level: float = LEVEL
) -> int | None:
    """Return the least number of rated cases with this power; the arguments are those of `power_of`.

    None if no number up to `cases` (without a judge: up to `MOST`) is enough.
    """
    most = MOST if rest is None or cases is None else cases
    reached = partial(power_of, gap=gap, spread=spread, rest=rest, cases=cases, level=level)
    if reached(most) < power:
        return None
    return bisect_left(range(most), power, lo=2, key=reached)


def cases_needed(difference: Estimate, level: float = LEVEL) -> int | None:
    """Return about how many cases would show a mean difference over cases, as large as it is estimated, with `POWER`.

    None if it is 0, or if not even `MOST` cases would. Where all cases agree so far, it is the number for the sign test.
    """
    if not difference.value:
        return None
    spread = float(np.nanstd(difference.draws)) * math.sqrt(difference.cases)
    if spread < ROUNDING:
        return math.ceil(1 - math.log2(level))
    return ratings_needed(difference.value, POWER, spread, level=level)
