"""Plan how many cases show that two candidates differ."""

from bisect import bisect_left

import numpy as np
import scipy

from automedeval.stats.bootstrap import Estimate

LEVEL = 0.05
POWER = 0.8  # chance that a planned number of cases finds the difference
MOST = 1_000_000  # cases that a plan may need
PARTS = np.linspace(0.025, 0.975, 20)  # of the distribution of the cases that are no ties


def cases_needed(difference: Estimate, level: float = LEVEL) -> int | None:
    """Return about how many cases, or clusters of them, would show a mean of 1, 0 and -1, as large as it is estimated.

    It is the first number with which the sign test (`bootstrap.exact_test`) has a p-value below the level with the chance
    `POWER`, over how many cases are no ties, and which of these are the other way round. Of clusters none is a tie, and as many
    are the other way round as their spread says. None if the mean is 0, or if `MOST` would not do.
    """
    mean = abs(difference.value or 0)
    if not mean:
        return None
    square = np.nanvar(difference.draws) * difference.cases + mean**2
    in_clusters = difference.n > difference.cases
    unlike = 1.0 if in_clusters else np.clip(square, mean, 1)  # the share that are no ties
    # the share of these that are as the mean says
    same = (1 + min(1.0, mean / np.sqrt(square * unlike))) / 2

    def shows(cases: int) -> bool:
        binom = scipy.stats.binom
        there = binom.ppf(PARTS, cases, unlike)
        edge = binom.isf(level / 2, there, 0.5)
        return binom.sf(edge, there, same).mean() >= POWER

    needed = bisect_left(range(MOST), True, lo=1, key=shows)
    return needed if needed < MOST else None
