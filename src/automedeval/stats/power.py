"""Plan how many cases show that two candidates differ."""

import math

import numpy as np
import scipy

from automedeval.stats.bootstrap import ROUNDING, Estimate

LEVEL = 0.05
POWER = 0.8  # chance that a planned number of cases finds the difference
MOST = 1_000_000  # cases that a plan may need


def cases_needed(difference: Estimate, level: float = LEVEL) -> int | None:
    """Return about how many cases would show a mean difference over cases, as large as it is estimated.

    A two-sided t test finds a difference δ of cases with the standard deviation σ where there are
    σ² ((z(1 - level/2) + z(power)) / δ)² of them, and z(1 - level/2)² / 2 more for the t distribution (Guenther 1981, "Sample
    size formulas for normal theory t tests"). None if it is 0, or if not even `MOST` cases would. Where all cases agree so far,
    it is the number for the sign test.
    """
    if not difference.value:
        return None
    spread = np.nanstd(difference.draws) * math.sqrt(difference.cases)
    if spread < ROUNDING:
        return math.ceil(1 - math.log2(level))
    edge = -scipy.special.ndtri(level / 2)
    reach = spread * (edge + scipy.special.ndtri(POWER))
    needed = (reach / difference.value) ** 2 + edge**2 / 2
    return math.ceil(needed) if needed <= MOST else None
