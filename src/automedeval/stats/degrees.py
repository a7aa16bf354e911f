"""Agreement of two raters on kinds, or on ordered degrees: Cohen's kappa, and the detection of a degree or a worse one.

Kappas are functions of a table of counts, which adds up over cases, so that the bootstrap resamples whole cases.
"""

from functools import partial

import numpy as np
from numpy import ndarray

from automedeval.stats.bootstrap import (
    SHARE,
    Statistic,
    Statistics,
    divide,
    is_known,
    mean_of,
    only,
)


def degree_tables(
    first: ndarray, second: ndarray, case: ndarray, cases: int, degrees: int
) -> ndarray:
    """Return float [cases, degrees, degrees]: how often the first rater gave the row's degree, and the second the column's.

    Args:
        first, second: float [units], degrees from 0; NaN where a rater gave none: such a unit is left out.
        case: int [units], the case of each unit.
    """
    both = is_known(first) & is_known(second)
    tables = np.zeros((cases, degrees, degrees))
    np.add.at(tables, (case[both], first[both].astype(int), second[both].astype(int)), 1)
    return tables


def weighted_kappa(tables: ndarray) -> Statistic:
    """Return Cohen's kappa with quadratic weights (Cohen 1968): two degrees apart count four times as one degree apart.

    Args:
        tables: what `degree_tables` returns.
    """
    cases, degrees, _ = tables.shape
    weights = np.subtract.outer(np.arange(degrees), np.arange(degrees)) ** 2
    n = int(tables.sum())
    reason = "both raters give one degree throughout" if n else "no answer has a degree by both"
    return Statistic(tables.reshape(cases, -1), partial(kappa, weights), n, reason)


def kappa(weights: ndarray, sums: ndarray) -> ndarray:
    """Return Cohen's kappa of tables, flat [tables, kinds · kinds]; NaN where both raters give one kind throughout.

    Args:
        weights: float [kinds, kinds], how far two kinds are apart: 1 off the diagonal for kinds without an order.
    """
    counts = sums.reshape(-1, *weights.shape)
    apart = np.einsum("ij,tij->t", weights, counts)
    expected = np.einsum("ij,ti,tj->t", weights, counts.sum(axis=2), counts.sum(axis=1))
    return 1 - divide(apart * counts.sum(axis=(1, 2)), expected)


def detection(
    first: ndarray, second: ndarray, case: ndarray, cases: int, degree: int
) -> Statistics:
    """Return how the second rater finds what the first gave a degree or a worse one, by arguments as of `degree_tables`.

    "sensitivity" is the share of them that the second gives such a degree too; what it gives none is not found. "false_alarms"
    is the share of the others that it gives one.
    """
    is_found = second >= degree

    def share(which: ndarray) -> Statistic:
        return mean_of(only(is_found, which), case, cases, "no such answer", SHARE)

    of_others = is_known(second) & (first < degree)
    return {"sensitivity": share(first >= degree), "false_alarms": share(of_others)}
