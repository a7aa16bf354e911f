"""A gate: is a new candidate worse than an old one by more than an allowed number of points?

Both are judged on the same cases. The mean difference d, new less old, gets a lower and an upper one-sided 95 % bound. Each is
the farther one of two:

- Student's t;
- t corrected for skewness by the monotone transformation of Hall (1992, "On the removal of skewness by transformation",
  Journal of the Royal Statistical Society B 54). Student's bound is too near where the sample has few of the rare, large
  differences on its side.

Each bound takes one case more into the sample, with the largest difference that the scale allows, downwards for the lower bound
and upwards for the upper one, because a sample may have none of the rare differences. What this and the correction add is of
the order of 1/n. Where all differences are equal, the bound is the exact one of a share that was not seen.

Where cases depend on each other, a difference is that of a cluster, see `in_clusters`. Of clusters
with n_j cases so many count as of one size would have the same Σ n_j² (Carter, Schnepel,
Steigerwald 2017): a large one that is not there would change much.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import scipy
from numpy import ndarray

from automedeval.stats.bootstrap import ROUNDING, in_clusters, sums_at

LEVEL = 0.95  # of each one-sided bound
POWER = 0.8  # with which the planned number of cases decides
LEAST = 2  # differences without which there is no bound
NOT_LOWER, LOWER, UNDECIDED = 0, 3, 4  # exit statuses


@dataclass(frozen=True)
class Gate:
    """Hold the result of a gate; figures are in points, new less old, and None without differences."""

    status: int  # NOT_LOWER, LOWER or UNDECIDED
    cases: int  # those with a difference
    mean: float | None = None
    low: float | None = None  # the one-sided bounds of the mean
    high: float | None = None
    # If undecided, the number of cases, or clusters like these, that would decide with probability
    # `POWER` if the mean is as estimated; None if no number does, because it is estimated to be the
    # allowed difference itself.
    needed: int | None = None


def gate(differences: ndarray, by: float, span: float, clusters: ndarray | None = None) -> Gate:
    """Decide by the differences of the cases, float [cases], new less old; NaN is left out.

    At d = -by the statuses NOT_LOWER and LOWER each have a probability of 5 % at most.

    Args:
        by: the points by which the new candidate may be worse, above 0.
        span: the largest score less the smallest one.
        clusters: int [cases], the number of each case's cluster; by default each is one of its own.
    """
    clusters = np.arange(len(differences)) if clusters is None else clusters
    independent = in_clusters(differences, clusters)
    _, sizes = sums_at(differences, clusters, 0)
    count, cases = len(independent), int(sizes.sum())
    if count < LEAST:
        return Gate(UNDECIDED, cases)
    share = cases**2 / float(sizes @ sizes) / count  # of the clusters, that counts
    low, high = (_bound(independent, span, way, share * count) for way in (-1, 1))
    mean = float(independent.mean())
    if low > -by:
        return Gate(NOT_LOWER, cases, mean, low, high)
    if high < -by:
        return Gate(LOWER, cases, mean, low, high)
    return Gate(UNDECIDED, cases, mean, low, high, _needed(independent, by, span, share))


def _bound(differences: ndarray, span: float, way: int, cases: float) -> float:
    """Return the bound on one side (-1 or 1) of so many cases with these moments, and one more with the largest difference."""
    extreme = way * span
    first = float(differences[0])
    if np.ptp(differences) <= ROUNDING:
        # As many alike have a probability of 5 % if this share of all cases differs, at most by all of the scale.
        return first + (extreme - first) * (1 - (1 - LEVEL) ** (1 / cases))
    mean = (cases * differences.mean() + extreme) / (cases + 1)

    def moment(power: int) -> float:  # the sum over all cases
        return cases * ((differences - mean) ** power).mean() + (extreme - mean) ** power

    error = math.sqrt(moment(2) / cases / (cases + 1))
    t = scipy.special.stdtrit(cases, LEVEL)
    # The third moment by s³, by the root of the number.
    skew = moment(3) / (error**3 * (cases + 1) ** 3)
    steps = [way * t]  # from the mean, in standard errors
    if skew:
        # Hall: z + a z²/3 + a² z³/27 + a/6 is about t-distributed, with z = (mean - d) / error and a = `skew`.
        steps.append(-3 / skew * (np.cbrt(1 - skew * (way * t + skew / 6)) - 1))
    bound = mean + way * max(way * step for step in steps) * error
    return float(np.clip(bound, -span, span))


def _needed(differences: ndarray, by: float, span: float, share: float) -> int | None:
    """Return the number of cases that decides with probability `POWER`, if all else is as here."""
    mean, spread = differences.mean(), differences.std(ddof=1)
    if abs(mean + by) < 1e-9:
        return None
    way = -1 if mean > -by else 1

    reach = way * scipy.special.ndtri(POWER) * spread

    def decides(cases: int) -> bool:
        worst = differences + reach / math.sqrt(cases)  # of the draws that decide
        return way * (_bound(worst, span, way, share * cases) + by) < 0

    count = len(differences)
    for power in range(1, 40):
        if decides(most := count << power):
            return bisect_left(range(most), True, lo=count + 1, key=decides)
    return None
