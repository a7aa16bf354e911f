"""Expected calibration error with an interval, and the bins of a reliability diagram."""

import numpy as np

from automedeval.stats.bootstrap import Statistic, divide, mean

FOLDS = 20
BINS = 10


def calibration_error(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return the expected calibration error of scores [responses], in points; even a perfect judge's is above 0 by chance."""
    columns = _gaps(judge, people, case)
    return Statistic(columns, lambda sums: divide(np.abs(sums[:, :-1]).sum(axis=1), sums[:, -1]), len(judge))


def calibration_noise(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return how far a resample's gaps between judge and people lie from those of the cases, bin by bin: 0 of the cases.

    No side of a triangle is longer than the others together: with the true gaps in the place of the cases', this bounds by how
    much chance can have lifted the error.
    """
    columns = _gaps(judge, people, case)
    gaps = columns[:, :-1].sum(axis=0) / columns[:, -1].sum()

    def apart(sums: np.ndarray) -> np.ndarray:
        return divide(np.abs(sums[:, :-1] - gaps * sums[:, -1:]).sum(axis=1), sums[:, -1])

    return Statistic(columns, apart, len(judge))


def calibration_floor(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return the sum over bins of judge less people, in points, each bin with the sign that the other cases' folds give it.

    The expected calibration error is what the right signs give, and no others give more. So this is below it but for chance,
    about 0 for a perfect judge, and where all signs are plain the error itself.
    """
    columns = _gaps(judge, people, case)
    fold = np.arange(len(columns)) % FOLDS
    signed = np.zeros(len(columns))
    for held in range(FOLDS):
        signs = np.sign(columns[fold != held, :-1].sum(axis=0))
        signed[fold == held] = columns[fold == held, :-1] @ signs
    return mean(signed, columns[:, -1], len(judge))


def _gaps(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> np.ndarray:
    """Return each case's sums of judge less people in every bin, and in the last column its responses: [cases, bins + 1]."""
    place = _places(judge)
    columns = np.zeros((int(case.max()) + 1, int(place.max()) + 2))
    np.add.at(columns, (case, place), judge - people)
    columns[:, -1] = np.bincount(case, minlength=len(columns))
    return columns


def reliability_bins(judge: np.ndarray, people: np.ndarray) -> list[dict[str, float | int]]:
    """Return the means of judge and people in bins, as even as ties allow, of the judge's scores [responses]."""
    place = _places(judge)
    return [
        {
            "judge": float(judge[place == number].mean()),
            "people": float(people[place == number].mean()),
            "n": int((place == number).sum()),
        }
        for number in np.unique(place).tolist()
    ]


def _places(values: np.ndarray) -> np.ndarray:
    """Return each value's bin."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))
