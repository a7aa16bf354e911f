"""Folds of cases, for cross-fitting: what is applied to the cases of a fold is learnt from those of the other folds."""

from collections.abc import Iterator

from numpy import ndarray

FOLDS = 20


def each_fold(case: ndarray) -> Iterator[ndarray]:
    """Deal cases into `FOLDS` folds in turn, or as many as cases; yield, for each, whether an entry is in it: bool [entries].

    Args:
        case: int [entries], the number of each entry's case, from 0.
    """
    folds = min(FOLDS, int(case.max(initial=-1)) + 1)
    return (case % folds == number for number in range(folds))
