"""Agreement among raters: intraclass correlations and Krippendorff's alpha.

Sources: ICC, Shrout and Fleiss 1979, with the names of McGraw and Wong 1996; alpha, Krippendorff 2011.
"""

from functools import partial

import numpy as np
from numpy import ndarray

from automedeval.stats.agreement import SAME, centred, no_spread
from automedeval.stats.bootstrap import (
    Statistic,
    Statistics,
    case_sums,
    divide,
    how_many,
    is_known,
    only,
    undefined,
)

MOST_LEVELS = 30  # distinct ratings up to which ordinal alpha is computed
SUMS = 6  # of a response for an ICC, in front of those of each rater


def icc(ratings: ndarray, case: ndarray, cases: int, crossed: bool) -> Statistics:
    """Return the intraclass correlations of one rater and of the mean of all raters.

    Args:
        ratings: float [responses, raters], NaN where a rater gave none.
        case, cases: the case of each response, and the number of cases.
        crossed: True if each column is one person: ICC(A,1) and ICC(A,k), two-way, absolute agreement, on the responses that
            all of them rated. False if a column is only a position: ICC(1,1) and ICC(1,k), one-way, on the responses with
            two ratings or more (k is then the mean number of ratings, corrected for its variance).
    """
    rated = is_known(ratings)
    use = rated.all(axis=1) if crossed else rated.sum(axis=1) >= 2
    rated = rated[use]
    n = len(rated)
    who = "all raters" if crossed else "two or more"
    reason = (
        f"fewer than two responses that were rated by {who}, all ratings are the same, or raters "
        "agree less than by chance"
    )
    values = centred(ratings[use], rated)
    count = rated.sum(axis=1)
    total = values.sum(axis=1)
    parts = [np.ones(n), (values**2).sum(axis=1), total**2 / count, total, count, count**2]
    if crossed:
        parts += list(values.T)
    columns = case_sums(parts, case[use], cases)
    kind = "A" if crossed else "1"
    return {
        f"ICC({kind},{raters})": Statistic(columns, partial(_icc, raters == "1"), n, reason)
        for raters in "1k"
    }


def _icc(of_one: bool, sums: ndarray) -> ndarray:
    """Return the correlation of one rater, or of the mean of all, by the sums of `icc`, last those of crossed raters."""
    targets, squares, between, total, count, count_squares = sums[:, :SUMS].T
    of_raters = sums[:, SUMS:]
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = total**2 / count
        rows = (between - centre) / (targets - 1)
        k = (count - count_squares / count) / (targets - 1)
        error = (squares - between) / (count - targets)
        excess = 0.0  # of the variance of crossed raters
        if of_raters.size:
            raters = (of_raters**2).sum(axis=1) / targets - centre
            error = (squares - between - raters) / ((targets - 1) * (k - 1))
            excess = (raters / (k - 1) - error) / targets
        whole = rows + excess + of_one * (k - 1) * (error + excess)
        variance = (squares - centre) / (count - 1)
        # Crossed raters who agree less than by chance can leave no variance of the mean, or less.
        none = no_spread(count, total, squares) | (whole <= SAME * variance)
        share = (rows - error) / whole
    return only(share, ~none & np.isfinite(share))


def krippendorff_alpha(ratings: ndarray, case: ndarray, cases: int, level: str) -> Statistic:
    """Return Krippendorff's alpha of ratings [responses, raters], NaN where missing; `level` is "ordinal" or "interval"."""
    use = is_known(ratings).sum(axis=1) >= 2
    values, case, n = ratings[use], case[use], how_many(use)
    used = is_known(values)
    count = used.sum(axis=1)
    others = count - 1
    reason = "no response with two ratings, or all ratings the same"
    if level == "interval":
        values = centred(values, used)
        total = values.sum(axis=1)
        squares = (values**2).sum(axis=1)
        disagreement = (count * squares - total**2) / others
        columns = case_sums((count, total, squares, disagreement), case, cases)
        return Statistic(columns, _interval_alpha, n, reason)
    if n == 0:
        return undefined(cases, n, reason)
    levels = np.unique(values[used])
    if len(levels) > MOST_LEVELS:
        many = f"more than {MOST_LEVELS} different ratings: use the interval form"
        return undefined(cases, n, many)
    tallies = (values[:, None] == levels[:, None]).sum(axis=2)
    together = np.einsum("nk,nl->nkl", tallies, tallies)
    oneself = np.eye(len(levels)) * tallies[:, :, None]
    coincidences = (together - oneself) / others[:, None, None]
    columns = case_sums(coincidences.reshape(n, -1).T, case, cases)
    return Statistic(columns, _ordinal_alpha, n, reason)


def _interval_alpha(sums: ndarray) -> ndarray:
    count, total, squares, disagreement = sums.T
    by_chance = np.where(no_spread(count, total, squares), 0.0, count * squares - total**2)
    return 1 - divide(disagreement, divide(by_chance, count - 1))


def _ordinal_alpha(sums: ndarray) -> ndarray:
    levels = round(sums.shape[1] ** 0.5)
    together = sums.reshape(-1, levels, levels)
    margins = together.sum(axis=2)
    # The ordinal distance of two levels is that of their midranks: the ratings between them and half of those on them.
    middle = np.cumsum(margins, axis=1) - margins / 2
    distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    observed = np.einsum("rck,rck->r", together, distance)
    by_chance = np.einsum("rc,rk,rck->r", margins, margins, distance)
    return 1 - divide((margins.sum(axis=1) - 1) * observed, by_chance)
