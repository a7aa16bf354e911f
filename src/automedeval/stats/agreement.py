"""Agreement of a judge with people: accuracies, correlations and Cohen's kappa, as statistics for `bootstrap`.

The input is arrays. A panel holds the responses of all cases in one flat array; the scores of people and of judges are arrays
of the same length, NaN where there is none. The relation of two responses is -1, 0 or 1 if the first has the lower, the same
(within 1e-9) or the higher score; a judge that compares pairs gives relations directly.

Source: Accuracy 2-tuple and triple, paper section 4.3. Agreement among people is in `interrater`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike

from automedeval.stats.bootstrap import (
    SHARE,
    Statistic,
    Statistics,
    case_sums,
    divide,
    how_many,
    is_known,
    mean_of,
    only,
    undefined,
)
from automedeval.stats.degrees import degree_tables, kappa

SAME = 1e-9
# Of a step: another batch or processor moves a number that a model computes by less.
NO_CHANGE = 1e-4
# Distinct pairs of scores up to which a rank correlation counts cells and not responses.
MOST_CELLS = 512
NO_PAIR = "people rated no pair of responses"
NO_TRIPLE = "no case has three responses that people rated and the judge compared"


def relation_of(gaps: ndarray, band: float = 0.0) -> ndarray:
    """Return the relations by the gaps between two scores: -1, 0 within the band and `SAME`, 1; NaN where a gap is."""
    is_tie = np.abs(gaps) <= band + SAME
    return np.where(is_tie, 0.0, np.sign(gaps))


def in_steps(gaps: ArrayLike, step: float) -> ndarray:
    """Return the gaps between numbers that a judge computed, in steps of it; those below `NO_CHANGE` are 0."""
    steps = np.asarray(gaps) / step
    return np.where(np.abs(steps) < NO_CHANGE, 0.0, steps)


def _counted_off(times: ndarray) -> tuple[ndarray, ndarray]:
    """Return every index so many times, and the number of each repetition of it, from 0."""
    index = np.repeat(np.arange(len(times)), times)
    start = np.cumsum(times) - times
    return index, np.arange(len(index)) - start[index]


@dataclass(frozen=True)
class Panel:
    """The responses of all cases, one after the other."""

    # int [responses], ascending, the group of each response; pairs are formed within a group
    group: ndarray
    # int [groups], the case of each group; a case has one group, or one per rater
    case_of: ndarray
    cases: int  # their number

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> "Panel":
        return cls(np.repeat(np.arange(len(sizes)), sizes), np.arange(len(sizes)), len(sizes))

    def stacked(self, times: int) -> "Panel":
        """Return this panel repeated; each copy has new groups, of the same cases."""
        shift = np.repeat(np.arange(times), len(self.group)) * len(self.case_of)
        return Panel(np.tile(self.group, times) + shift, np.tile(self.case_of, times), self.cases)

    @cached_property
    def case(self) -> ndarray:
        """The case of every response."""
        return self.case_of[self.group]

    @cached_property
    def sizes(self) -> ndarray:
        """The number of responses of every group."""
        return np.bincount(self.group, minlength=len(self.case_of))

    @property
    def later(self) -> ndarray:
        """How many responses of its group stand behind each response: int [responses]."""
        ends = np.cumsum(self.sizes)[self.group]
        return ends - np.arange(len(ends)) - 1

    @cached_property
    def pairs(self) -> tuple[ndarray, ndarray]:
        """All unordered pairs within groups, as indices (first, second) of responses, first before second."""
        first, step = _counted_off(self.later)
        return first, first + 1 + step

    @cached_property
    def triples(self) -> ndarray:
        """All sets of three responses within groups, each as the indices of its three pairs: int [triples, 3]."""
        first, second = self.pairs
        pair, step = _counted_off(self.later[second])
        beside = pair + 1 + step  # the first response and the third
        first_pair = np.searchsorted(first, second[pair])  # of the second response
        return np.column_stack([pair, beside, first_pair + step])

    def relations(self, scores: ndarray) -> ndarray:
        """Return the relation of every pair: -1, 0, 1, NaN where a score is missing."""
        first, second = self.pairs
        return relation_of(scores[first] - scores[second])

    @cached_property
    def case_of_pair(self) -> ndarray:
        """The case of every pair."""
        return self.case[self.pairs[0]]

    def per_case(self, values: ndarray) -> ndarray:
        """Sum values of pairs over each case."""
        return np.bincount(self.case_of_pair, values, self.cases)


def concordance(panel: Panel, people: ndarray, judge: ndarray, none: str = "") -> Statistic:
    """Return the concordance of a judge's relations [pairs] with people's, see `accuracies`.

    `none` says why there is none.
    """
    untied = is_known(people) & (people != 0)
    credit = (people == judge) + 0.5 * (judge == 0)
    reason = NO_PAIR if np.isnan(people).all() else "people tied every pair"
    return _share(credit, untied, panel.case_of_pair, panel.cases, none or reason)


def _share(values: ndarray, counted: ndarray, case: ndarray, cases: int, reason: str) -> Statistic:
    """Return the mean of the values, from 0 to 1, that are counted."""
    return mean_of(only(values, counted), case, cases, reason, SHARE)


def accuracies(panel: Panel, people: ndarray, judge: ndarray) -> Statistics:
    """Return the accuracies of a judge's relations [pairs] against people's (paper section 4.3).

    Pairs without a relation of people are left out. A missing relation of the judge counts as wrong.

    - pairwise_accuracy (the paper's Accuracy 2-tuple): share of pairs with the same relation; a tie is a third outcome.
    - concordance: over pairs that people did not tie, the mean of 1 if the judge orders them alike, 1/2 if it ties, else 0.
    - triple_accuracy (the paper's Accuracy triple): share of the sets of three responses of a group whose three pairs have the
      same relation. Sets in which a relation of people is missing are left out.
    """
    rated = is_known(people)
    right = people == judge
    case = panel.case_of_pair
    triples = panel.triples
    rated_triples = rated[triples].all(axis=1)
    right_triples = right[triples].all(axis=1)
    case_of_triple = case[triples[:, 0]]
    return {
        "pairwise_accuracy": _share(right, rated, case, panel.cases, NO_PAIR),
        "concordance": concordance(panel, people, judge),
        "triple_accuracy": _share(
            right_triples, rated_triples, case_of_triple, panel.cases, NO_TRIPLE
        ),
    }


def correlations(panel: Panel, people: ndarray, judge: ndarray) -> Statistics:
    """Return the correlations of scores [responses] of people and of a judge, over all responses that both scored."""
    return {
        "spearman": rank_correlation(panel, people, judge),
        "pearson": pearson(panel, people, judge),
    }


NOT_CONSTANT = "undefined: all scores of one side are the same"


def pearson(panel: Panel, people: ndarray, judge: ndarray) -> Statistic:
    """Return Pearson's correlation over all responses that both scored."""
    both = is_known(people) & is_known(judge)
    x = centred(people, both)
    y = centred(judge, both)
    columns = case_sums((both, x, y, x * x, y * y, x * y), panel.case, panel.cases)
    return Statistic(columns, _pearson_of_sums, how_many(both), NOT_CONSTANT)


def centred(values: ndarray, there: ndarray) -> ndarray:
    """Return values shifted to mean 0, against loss of precision; 0 where there is no value."""
    defined = np.where(there, values, 0.0)
    return np.where(there, defined - defined.sum() / max(1, there.sum()), 0.0)


def _pearson_of_sums(sums: ndarray) -> ndarray:
    n, x, y, xx, yy, xy = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        of_x = xx - x * x / n
        of_y = yy - y * y / n
        correlation = (xy - x * y / n) / np.sqrt(np.abs(of_x * of_y))
    constant = no_spread(n, x, xx) | no_spread(n, y, yy)
    return only(correlation, ~constant & (n >= 2))


def no_spread(count: ndarray, total: ndarray, squares: ndarray) -> ndarray:
    """Return where so many values with this sum and sum of squares are the same, within 1e-9; rounding leaves some variance."""
    return count * squares - total**2 <= count**2 * SAME**2 + 1e-12 * count * squares


def rank_correlation(panel: Panel, people: ndarray, judge: ndarray) -> Statistic:
    """Return Spearman's correlation over all responses that both scored; every resample is ranked again."""
    both = is_known(people) & is_known(judge)
    case = panel.case[both]
    n = how_many(both)
    if n < 2:
        return undefined(panel.cases, n, "fewer than two responses")
    x = _levels(people[both])
    y = _levels(judge[both])
    size = y.max() + 1
    cells, cell = np.unique(x * size + y, return_inverse=True)
    if len(cells) > MOST_CELLS:  # nearly every response is a cell of its own
        return Statistic(None, partial(_spearman, x, y), n, NOT_CONSTANT, cells=case)
    columns = np.zeros((panel.cases, len(cells)))
    np.add.at(columns, (case, cell), 1.0)
    spearman = partial(_spearman, cells // size, cells % size)
    return Statistic(columns, spearman, n, NOT_CONSTANT)


def _levels(values: ndarray) -> ndarray:
    """Return the number of each value among the different ones, ascending."""
    return np.unique(np.round(values, 9), return_inverse=True)[1]


def _spearman(x: ndarray, y: ndarray, weights: ndarray) -> ndarray:
    """Return Spearman's correlations of cells with the levels x and y, under weights [resamples, cells]."""
    of_x = midranks(weights, x)
    of_y = midranks(weights, y)
    together = (weights * of_x * of_y).sum(axis=1)
    spread = (weights * of_x**2).sum(axis=1) * (weights * of_y**2).sum(axis=1)
    return divide(together, np.sqrt(spread))


def midranks(weights: ndarray, levels: ndarray) -> ndarray:
    """Return the ranks of cells less the mean rank, equal ones in the middle of theirs: float [resamples, cells].

    Args:
        weights: float [resamples, cells], how often each cell counts.
        levels: int [cells], the number of the cell's value among the different ones, ascending.
    """
    order = np.argsort(levels, kind="stable")
    starts = np.flatnonzero(np.diff(levels[order], prepend=-1))
    at_level = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.cumsum(at_level, axis=1) - at_level / 2
    return ranks[:, levels] - weights.sum(axis=1, keepdims=True) / 2


CHOICES = ("first", "second", "tie", "neither")
TURNED = [1, 0, 2, 3]  # the choices where the responses change places
NO_CHOICE = -1
KAPPA_OF_CHOICES = partial(kappa, 1 - np.eye(len(CHOICES)))


def most_frequent(votes: ndarray, neutral: int) -> ndarray:
    """Return the most frequent choice about each pair by votes [pairs, CHOICES]: int [pairs], `NO_CHOICE` without a vote.

    `neutral` stands where two are equally frequent.
    """
    most = votes.max(axis=1)
    is_contested = (votes == most[:, None]).sum(axis=1) > 1
    choice = np.where(is_contested, neutral, votes.argmax(axis=1))
    return np.where(most == 0, NO_CHOICE, choice)


def choice_agreement(people: ndarray, judge: ndarray, case: ndarray, cases: int) -> Statistics:
    """Return accuracy and Cohen's kappa of choices about pairs, coded as indices of CHOICES.

    Kappa counts every pair as (first, second) and as (second, first): the order of the responses is arbitrary and must not
    change the agreement expected by chance.

    Args:
        people: int [pairs], people's choices.
        judge: int [pairs], the judge's choices, `NO_CHOICE` if it has none: wrong in the accuracy, left out of kappa.
        case: int [pairs], the case of each pair.
    """
    right = people == judge
    valid = judge >= 0
    tables = degree_tables(people, only(judge, valid), case, cases, len(CHOICES))
    tables += tables[:, TURNED][:, :, TURNED]
    n = how_many(valid)
    reason = "both always chose the same" if n else "no valid verdict"
    return {
        "accuracy": mean_of(right, case, cases, "no pair that people chose about", SHARE),
        "kappa": Statistic(tables.reshape(cases, -1), KAPPA_OF_CHOICES, n, reason),
    }


ACCURACIES = ("pairwise_accuracy", "concordance", "triple_accuracy")
CORRELATIONS = ("spearman", "pearson")
