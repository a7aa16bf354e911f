"""Agreement among raters: Krippendorff's alpha (2011)."""

import numpy as np

from automedeval.stats.agreement import SAME
from automedeval.stats.bootstrap import Statistic, divide, undefined

MOST_LEVELS = 30  # distinct ratings up to which ordinal alpha is computed


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
        reason = f"more than {MOST_LEVELS} different ratings: use the interval form" if n else reason
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
