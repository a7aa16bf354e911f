"""Folds of cases, for cross-fitting: what is applied to the cases of a fold is learnt from those of the other folds."""

from collections.abc import Iterator

from numpy import ndarray


def deal(case: ndarray, folds: int) -> ndarray:
    """Deal cases into folds in turn, and return the fold of each entry; there are no more folds than cases.

    Args:
        case: int [entries], the number of each entry's case, from 0.
    """
    return case % min(folds, int(case.max(initial=0)) + 1)


def each_fold(fold: ndarray) -> Iterator[ndarray]:
    """Yield, for every fold, whether an entry is in it: bool [entries]."""
    return (fold == number for number in range(int(fold.max(initial=-1)) + 1))
