"""Folds of cases, for cross-fitting: what is applied to the cases of a fold is learnt from those of the other folds."""

from collections.abc import Iterator

from numpy import ndarray


def each_fold(case: ndarray, folds: int) -> Iterator[ndarray]:
    """Deal cases into folds in turn, no more than cases; yield, for every fold, whether an entry is in it: bool [entries].

    Args:
        case: int [entries], the number of each entry's case, from 0.
    """
    folds = min(folds, int(case.max(initial=-1)) + 1)
    return (case % folds == number for number in range(folds))
