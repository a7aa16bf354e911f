"""A gate: is a new candidate worse than an old one by more than an allowed number of points?

Both are judged on the same cases. The mean difference d, new less old, gets a lower and an upper one-sided 95 % bound. Each is
the farther one of two:

- Student's t;
- t corrected for skewness by the monotone transformation of Hall (1992, "On the removal of skewness by transformation",
  Journal of the Royal Statistical Society B 54). Student's bound is too near where the sample has few of the rare, large
  differences on its side.

Each bound takes one case more into the sample, with the largest difference that the scale allows, downwards for the lower bound
and upwards for the upper one, because a sample may have none of the rare differences. What this and the correction add is of
the order of 1/n.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

LEVEL = 0.95  # of each one-sided bound
POWER = 0.8  # with which the planned number of cases decides
LEAST = 2  # differences without which there is no bound
NOT_LOWER, LOWER, UNDECIDED = 0, 3, 4  # exit statuses


@dataclass(frozen=True)
class Gate:
    """Hold the result of a gate.

    Args:
        status: NOT_LOWER, LOWER or UNDECIDED.
        cases: the number of differences.
        mean, low, high: the mean difference in points, new less old, and its one-sided bounds; None without differences.
        needed: if undecided, the number of cases that would decide with probability `POWER` if d is as estimated; None if no
            number does, because d is estimated to be the allowed difference itself.
    """

    status: int
    cases: int
    mean: float | None
    low: float | None
    high: float | None
    needed: int | None


def gate(differences: np.ndarray, by: float, span: float) -> Gate:
    """Decide by the differences of the cases, float [cases], new less old.

    At d = -by the statuses NOT_LOWER and LOWER each have a probability of 5 % at most.

    Args:
        by: the points by which the new candidate may be worse, above 0.
        span: the largest score less the smallest one.
    """
    count = len(differences)
    if count < LEAST:
        return Gate(UNDECIDED, count, None, None, None, None)
    low, high = (_bound(differences, way * span, way) for way in (-1, 1))
    mean = float(differences.mean())
    status = NOT_LOWER if low > -by else LOWER if high < -by else UNDECIDED
    needed = _needed(differences, by, span) if status == UNDECIDED else None
    return Gate(status, count, mean, low, high, needed)


def _bound(differences: np.ndarray, extreme: float, way: int) -> float:
    """Return the bound on one side (-1 or 1), with one difference `extreme` more in the sample."""
    more = np.append(differences, extreme)
    mean, error, t = (
        float(more.mean()),
        more.std(ddof=1) / math.sqrt(len(more)),
        scipy.special.stdtrit(len(more) - 1, LEVEL),
    )
    if not error:
        return mean
    # The third moment by s³, by the root of the number.
    skew = ((more - mean) ** 3).mean() / (error**3 * len(more) ** 2)
    steps = [way * t]  # from the mean, in standard errors
    if skew:
        # Hall: z + a z²/3 + a² z³/27 + a/6 is about t-distributed, with z = (mean - d) / error and a = `skew`.
        steps.append(-3 / skew * (np.cbrt(1 - skew * (way * t + skew / 6)) - 1))
    return mean + way * max(way * step for step in steps) * float(error)


def _needed(differences: np.ndarray, by: float, span: float) -> int | None:
    """Return the number of cases that decides with probability `POWER`, if mean and spread are as they are here."""
    distance = abs(float(differences.mean()) + by)
    if distance < 1e-9:
        return None
    factor = scipy.special.ndtri(LEVEL) + scipy.special.ndtri(POWER)
    count = max(len(differences) + 1, math.ceil((factor * differences.std(ddof=1) / distance) ** 2))
    for _ in range(100):  # the added case widens the bound: a fixed point, which is above the first guess
        variance = differences.var() + span**2 / count
        fresh = math.ceil(span / distance + factor**2 * variance / distance**2)
        if fresh <= count:
            break
        count = fresh
    return count
