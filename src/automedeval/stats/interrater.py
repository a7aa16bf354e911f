"""Agreement among raters: intraclass correlations and Krippendorff's alpha.

Sources: ICC, Shrout and Fleiss 1979, with the names of McGraw and Wong 1996; alpha, Krippendorff 2011.
"""

from collections.abc import Callable

import numpy as np

from automedeval.stats.agreement import SAME
from automedeval.stats.bootstrap import Statistic, divide, undefined

MOST_LEVELS = 30  # distinct ratings up to which ordinal alpha is computed


def icc(ratings: np.ndarray, case: np.ndarray, cases: int, crossed: bool) -> dict[str, Statistic]:
    """Return the intraclass correlations of one rater and of the mean of all raters.

    Args:
        ratings: float [responses, raters], NaN where a rater gave none.
        case, cases: the case of each response, and the number of cases.
        crossed: True if each column is one person: ICC(A,1) and ICC(A,k), two-way, absolute agreement, on the responses that
            all of them rated. False if a column is only a position: ICC(1,1) and ICC(1,k), one-way, on the responses with
            two ratings or more (k is then the mean number of ratings, corrected for its variance).
    """
    rated = ~np.isnan(ratings)
    use = rated.all(axis=1) if crossed else rated.sum(axis=1) >= 2
    k = ratings.shape[1]
    n = int(use.sum())
    reason = "fewer than two responses that were rated by " + (
        "all raters" if crossed else "two or more"
    )
    reason = reason if n < 2 else "all ratings are the same"
    used = rated[use]
    values = np.where(used, ratings[use], 0.0)
    values = np.where(used, values - values.sum() / max(1, used.sum()), 0.0)
    count, total = used.sum(axis=1), values.sum(axis=1)
    parts = [
        np.ones(n),
        (values**2).sum(axis=1),
        total**2 / np.maximum(count, 1),
        total,
        count,
        count**2,
    ]
    if crossed:
        parts += list(values.T)
    columns = np.column_stack(
        [np.bincount(case[use], weights=part, minlength=cases) for part in parts]
    )

    def of(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        targets, squares, between, total, count, count_squares = sums[:, :6].T
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = (between - total**2 / count) / (targets - 1)
            variance = (squares - total**2 / count) / (count - 1)

            def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
                none = _no_spread(count, total, squares) | (np.abs(whole) <= SAME * variance)
                return np.where(none, np.nan, part / whole)

            if crossed:
                raters = (sums[:, 6:] ** 2).sum(axis=1) / targets - total**2 / count
                error = (squares - between - raters) / ((targets - 1) * (k - 1))
                excess = (raters / (k - 1) - error) / targets
                return share(rows - error, rows + (k - 1) * error + k * excess), share(
                    rows - error, rows + excess
                )
            within = (squares - between) / (count - targets)
            size = (count - count_squares / count) / (targets - 1)
            return share(rows - within, rows + (size - 1) * within), share(rows - within, rows)

    names = ("ICC(A,1)", "ICC(A,k)") if crossed else ("ICC(1,1)", "ICC(1,k)")

    def figure(number: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda sums: np.nan_to_num(
            of(sums)[number], nan=np.nan, posinf=np.nan, neginf=np.nan
        )

    return {
        name: Statistic(columns, figure(number), n, reason) for number, name in enumerate(names)
    }


def _no_spread(count: np.ndarray, total: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return where so many ratings with this sum and sum of squares are equal; rounding leaves some of their variance."""
    return count * squares - total**2 <= count**2 * SAME**2 + 1e-12 * count * squares


def krippendorff_alpha(ratings: np.ndarray, case: np.ndarray, cases: int, level: str) -> Statistic:
    """Return Krippendorff's alpha of ratings [responses, raters], NaN where missing; `level` is "ordinal" or "interval"."""
    rated = ~np.isnan(ratings)
    use = rated.sum(axis=1) >= 2
    used, values, case = rated[use], ratings[use], case[use]
    n = int(use.sum())
    reason = "no response with two ratings, or all ratings the same"
    count = used.sum(axis=1)
    if level == "interval":
        values = np.where(used, values - (values[used].mean() if n else 0.0), 0.0)
        total, squares = values.sum(axis=1), (values**2).sum(axis=1)
        disagreement = 2 * (count * squares - total**2) / np.maximum(count - 1, 1)
        parts = (count, total, squares, disagreement)
        sums = np.column_stack([np.bincount(case, weights=part, minlength=cases) for part in parts])
        return Statistic(sums, _interval_alpha, n, reason)
    levels = np.unique(values[used])
    if not 1 <= len(levels) <= MOST_LEVELS:
        reason = (
            f"more than {MOST_LEVELS} different ratings: use the interval form" if n else reason
        )
        return undefined(cases, n, reason)
    tallies = np.stack([(values == step).sum(axis=1) for step in levels], axis=1)
    together = tallies[:, :, None] * tallies[:, None, :] - np.eye(len(levels)) * tallies[:, :, None]
    coincidences = together / np.maximum(count - 1, 1)[:, None, None]
    columns = np.zeros((cases, len(levels) ** 2))
    np.add.at(columns, case, coincidences.reshape(n, -1))
    return Statistic(columns, lambda sums: _ordinal_alpha(sums, len(levels)), n, reason)


def _interval_alpha(sums: np.ndarray) -> np.ndarray:
    count, total, squares, disagreement = sums.T
    by_chance = np.where(_no_spread(count, total, squares), 0.0, 2 * (count * squares - total**2))
    return 1 - divide(disagreement, divide(by_chance, count - 1))


def _ordinal_alpha(sums: np.ndarray, levels: int) -> np.ndarray:
    together = sums.reshape(len(sums), levels, levels)
    margins = together.sum(axis=2)
    # The ordinal distance of two levels is that of their midranks: the ratings between them and half of those on them.
    middle = np.cumsum(margins, axis=1) - margins / 2
    distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    observed = (together * distance).sum(axis=(1, 2))
    by_chance = np.einsum("rc,rk,rck->r", margins, margins, distance)
    return 1 - divide((margins.sum(axis=1) - 1) * observed, by_chance)
