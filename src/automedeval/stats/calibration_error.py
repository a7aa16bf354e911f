"""Expected calibration error with an interval."""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy import ndarray

from automedeval.stats.bootstrap import Estimate, Statistic, divide, mean
from automedeval.stats.folds import each_fold

BINS = 10


def calibration_error(
    judge: ndarray,
    people: ndarray,
    case: ndarray,
    cases: int,
    place: ndarray | None = None,
) -> Statistic:
    """Return the expected calibration error of scores [units], in their unit (Naeini et al. 2015).

    Chance makes it positive even for a perfect judge; the `chance` of the estimate is the upper end of what it gives one on
    these cases. It makes the error of a sample too high, and that of a resample by about the same amount again. So the upper
    end of the interval is that of the resamples, less this amount. The lower end is 0 where the error is within `chance`, else
    that of the sum over bins of judge less people, each bin with its sign in the other folds of cases: this is about 0 for a
    perfect judge, and the error itself if all signs are clear.

    Args:
        case, cases: the case of each unit, and the number of cases.
        place: int [units], from 0, the bin of each unit; by default `BINS` bins between quantiles of the judge's scores.
    """
    place = _places(judge) if place is None else place
    # Judge less people of each case, by bin.
    gaps = np.zeros((cases, int(place.max(initial=0)) + 1))
    np.add.at(gaps, (case, place), judge - people)
    count = np.bincount(case, minlength=cases)
    means = divide(gaps.sum(axis=0), count.sum())
    n = len(judge)
    signed = np.zeros(cases)
    for in_fold in each_fold(np.arange(cases)):
        signed[in_fold] = gaps[in_fold] @ np.sign(gaps[~in_fold].sum(axis=0))

    columns = np.column_stack([gaps, count])
    # By the triangle inequality, the distance of the gaps from the true gaps bounds by how much chance increases the error.
    # That of a resample's gaps from those of the cases is its bootstrap counterpart.
    noise = Statistic(columns, partial(_apart, means), n)
    beside = (noise, mean(signed, count))
    return Statistic(columns, partial(_apart, 0.0), n, corrected=_moved, beside=beside)


def _apart(centre: ndarray | float, sums: ndarray) -> ndarray:
    """Return the mean distance of the bins' gaps from those of the centre, by the sums of the gaps and the count."""
    count = sums[:, -1]
    gaps = sums[:, :-1] - centre * count[:, None]
    return divide(np.abs(gaps).sum(axis=1), count)


def _moved(error: Estimate, noise: Estimate, floor: Estimate) -> Estimate:
    value, high, chance, least = error.value, error.high, noise.high, floor.low
    error = replace(error, chance=chance)
    if value is None or high is None or chance is None or least is None:
        return error
    excess = float(error.draws.mean()) - value
    low = 0.0 if value <= chance else min(max(0.0, least), value)
    return replace(error, low=low, high=max(value, high - excess))


def _places(values: ndarray) -> ndarray:
    """Return each value's bin: its own of at most `BINS` different ones, else between quantiles, the lower end in."""
    # Rounded, because a quantile that falls on a value can come out above it in the last digit.
    values = np.round(values, 9)
    different, place = np.unique(values, return_inverse=True)
    if len(different) <= BINS:
        return place
    edges = np.unique(np.round(np.quantile(values, np.linspace(0, 1, BINS + 1)), 9))
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))
