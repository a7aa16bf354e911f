"""A gate: is a new candidate worse than an old one by more than an allowed number of points?

Both are judged on the same cases. The mean difference d, new less old, gets a lower and an upper one-sided 95 % bound, that of
Gaffke (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable",
Mathematical Methods of Statistics 14). One case more is taken into the sample, with the largest difference that the scale
allows, because a sample may have none of the rare large differences; all of them get random weights that sum to 1 (Dirichlet),
and the bound is the 95 % quantile of the weighted mean. No distribution on a scale is known for which it fails in more than 5 %
of samples (Learned-Miller and Thomas 2019, arXiv 1905.06208). Of two samples the one with the larger differences never has the
lower bound. Where all differences are equal, it is the exact bound of a share that was not seen.

Where cases depend on each other, a difference is that of a cluster, see `in_clusters`. Of clusters
with n_j cases so many count as of one size would have the same Σ n_j² (Carter, Schnepel,
Steigerwald 2017): a large one that is not there would change much. Each has that part of a weight.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import scipy
from numpy import ndarray

from automedeval.stats.bootstrap import in_clusters, sums_at

LEVEL = 0.95  # of each one-sided bound
POWER = 0.8  # with which the planned number of cases decides
STEPS = 5_000  # of the scale, to which differences are rounded outwards: many unlike ones take long
FAR = 30  # standard deviations, beyond which a chance is 0 or 1
MOST = 10**9  # cases that a plan may need
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


def gate(differences: ndarray, by: float, span: float, clusters: ndarray) -> Gate:
    """Decide by the differences of the cases, float [cases], new less old; NaN is left out.

    At d = -by the statuses NOT_LOWER and LOWER each have a probability of 5 % at most, of cases, or clusters of one size.

    Args:
        by: the points by which the new candidate may be worse, above 0.
        span: the largest score less the smallest one.
        clusters: int [cases], the number of each case's cluster.
    """
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
    """Return the bound on one side, -1 or 1, of these differences, which count as so many cases."""
    values = way * differences

    def excess(bound: float) -> float:
        return _chance(values, span, cases, bound) - (1 - LEVEL)

    highest = max(values.max(), span)  # that of a cluster may be above the scale
    bound = scipy.optimize.brentq(excess, values.min() - 1, highest + 1, xtol=1e-7)
    return way * min(bound, span)


def _chance(values: ndarray, extreme: float, cases: float, bound: float) -> float:
    """Return the chance that the weighted mean of values, which count as so many cases, and an extreme one is above a bound.

    The weights are gamma variables by their sum: of the extreme value that of one case. So it is the chance that
    a sum of gamma variables times (value - bound) is above 0, by its characteristic function (Imhof 1961, Biometrika 48).
    """
    step = extreme / STEPS
    unlike, counts = np.unique(np.ceil(values / step - 1e-6) * step, return_counts=True)
    shapes = np.append(counts * cases / len(values), 1.0)
    gaps = np.append(unlike, extreme) - bound
    gaps /= math.sqrt(shapes @ gaps**2)
    mean = shapes @ gaps  # of that sum, whose standard deviation is 1
    if abs(mean) > FAR:
        return float(mean > 0)

    def wave(t: float) -> float:
        angle = shapes @ np.arctan(t * gaps)
        damping = shapes @ np.log1p((t * gaps) ** 2) / 2
        return math.sin(angle) * math.exp(-damping) / t

    area, _ = scipy.integrate.quad(wave, 0, np.inf, limit=200)
    return 0.5 + area / math.pi


def _needed(differences: ndarray, by: float, span: float, share: float) -> int | None:
    """Return the number of cases that decides with probability `POWER`, if all else is as here; None above `MOST`."""
    way = -1 if differences.mean() > -by else 1
    reach = way * scipy.special.ndtri(POWER) * differences.std(ddof=1)

    def decides(cases: int) -> bool:
        worst = differences + reach / math.sqrt(cases)  # of the draws that decide
        return _chance(way * worst, span, share * cases, -way * by) < 1 - LEVEL

    needed = bisect_left(range(MOST), True, lo=len(differences) + 1, key=decides)
    return needed if needed < MOST else None
