"""Expected calibration error with an interval, and the bins of a reliability diagram."""

import numpy as np

from automedeval.stats.bootstrap import Statistic, divide, mean
from automedeval.stats.folds import deal, each_fold

FOLDS = 20
BINS = 10


def calibration_error(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return the expected calibration error of scores [responses], in points (Naeini et al. 2015).

    Chance makes it positive even for a perfect judge.
    """
    columns = _gaps(judge, people, case)
    return Statistic(columns, lambda sums: divide(np.abs(sums[:, :-1]).sum(axis=1), sums[:, -1]), len(judge))


def calibration_noise(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return the distance between a resample's gaps (judge less people in each bin) and those of the cases themselves.

    It is 0 for the cases themselves. By the triangle inequality, the distance of the cases' gaps from the true gaps bounds by
    how much chance increases the error; this is its bootstrap counterpart.
    """
    columns = _gaps(judge, people, case)
    gaps = columns[:, :-1].sum(axis=0) / columns[:, -1].sum()

    def apart(sums: np.ndarray) -> np.ndarray:
        return divide(np.abs(sums[:, :-1] - gaps * sums[:, -1:]).sum(axis=1), sums[:, -1])

    return Statistic(columns, apart, len(judge))


def calibration_floor(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return the mean over bins of judge less people, in points, each bin with its sign in the other folds of cases.

    The expected calibration error uses the signs that make this sum largest. Cross-fitted signs give about 0 for a perfect
    judge, and the error itself if all signs are clear.
    """
    columns = _gaps(judge, people, case)
    signed = np.zeros(len(columns))
    for held in each_fold(deal(np.arange(len(columns)), FOLDS)):
        signed[held] = columns[held, :-1] @ np.sign(columns[~held, :-1].sum(axis=0))
    return mean(signed, columns[:, -1], len(judge))


def _gaps(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> np.ndarray:
    """Return float [cases, bins + 1]: each case's sums of judge less people by bin, and its number of responses."""
    place = _places(judge)
    columns = np.zeros((int(case.max()) + 1, int(place.max()) + 2))
    np.add.at(columns, (case, place), judge - people)
    columns[:, -1] = np.bincount(case, minlength=len(columns))
    return columns


def reliability_bins(judge: np.ndarray, people: np.ndarray) -> list[dict[str, float | int]]:
    """Return the means of judge and people [responses] in bins between quantiles of the judge's scores."""
    place = _places(judge)
    bins = [place == number for number in np.unique(place)]
    return [{"judge": float(judge[b].mean()), "people": float(people[b].mean()), "n": int(b.sum())} for b in bins]


def _places(values: np.ndarray) -> np.ndarray:
    """Return each value's bin; a bin has its lower end."""
    # Rounded, because a quantile that falls on a value can come out above it in the last digit.
    values = np.round(values, 9)
    edges = np.unique(np.round(np.quantile(values, np.linspace(0, 1, BINS + 1)), 9))
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))
