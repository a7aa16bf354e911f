"""Plan how many cases people have to rate to find a difference between two candidates.

The plan inverts the variance of `prediction_powered`. Let σ be the standard deviation over cases of people's difference of two
models, and τ that of the part that the judge does not explain. The mean of n rated out of N judged cases has the variance

    V(n) = τ² / n + (σ² - τ²) / N,          and without the judge σ² / n.

A two-sided t test of level α finds a difference δ with the power `POWER` where V(n) is (δ / (z(1 - α/2) + z(power)))², with
z(1 - α/2)² / 2 cases more for the t distribution (Guenther 1981, "Sample size formulas for normal theory t tests"). This is
right to one case without a judge; with one, the noncentral t says from where on n is enough.
"""

import math

import numpy as np
import scipy

from automedeval.stats.bootstrap import ROUNDING, Estimate

LEVEL = 0.05
POWER = 0.8  # chance that a planned number of cases finds the difference
MOST = 1_000_000  # ratings that a plan without a judge may need


def ratings_needed(
    gap: float, spread: float, rest: float | None = None, cases: int | None = None, level: float = LEVEL
) -> int | None:
    """Return about the least number of rated cases that find a difference.

    Args:
        gap: the true difference, in the unit of `spread`.
        spread: the standard deviation over cases of people's difference.
        rest: the standard deviation of the part that the judge does not explain; None without a judge.
        cases: the number of judged cases, which include the rated ones.

    Returns:
        None if no number up to `cases` (without a judge: up to `MOST`) is enough.
    """
    edge = -float(scipy.special.ndtri(level / 2))
    variance, fixed, most = (gap / (edge + float(scipy.special.ndtri(POWER)))) ** 2, 0.0, MOST
    if rest is not None and cases is not None:
        spread, fixed, most = rest, max(0.0, spread**2 - rest**2) / cases, cases
    if variance <= fixed or spread**2 / (variance - fixed) > most:
        return None
    needed = math.ceil(spread**2 / (variance - fixed) + edge**2 / 2)
    if fixed and needed <= most:
        tried = np.arange(needed, most + 1)
        root = abs(gap) / np.sqrt(spread**2 / tried + fixed)
        found = 1 - scipy.special.nctdtr(tried - 1, root, scipy.special.stdtrit(tried - 1, 1 - level / 2)) >= POWER
        return int(tried[found.argmax()]) if found.any() else None
    return needed if needed <= most else None


def cases_needed(difference: Estimate, level: float = LEVEL) -> int | None:
    """Return about how many cases would show a mean difference over cases, as large as it is estimated.

    None if it is 0, or if not even `MOST` cases would. Where all cases agree so far, it is the number for the sign test.
    """
    if not difference.value:
        return None
    spread = float(np.nanstd(difference.draws)) * math.sqrt(difference.cases)
    if spread < ROUNDING:
        return math.ceil(1 - math.log2(level))
    return ratings_needed(difference.value, spread, level=level)
