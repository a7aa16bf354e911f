"""Agreement of a judge with people: accuracies, correlations and Cohen's kappa, as statistics for `bootstrap`.

The input is arrays. A panel holds the responses of all cases in one flat array; the scores of people and of judges are arrays
of the same length, NaN where there is none. The relation of two responses is -1, 0 or 1 if the first has the lower, the same
(within 1e-9) or the higher score; a judge that compares pairs gives relations directly.

Source: Accuracy 2-tuple and triple, paper section 4.3. Agreement among people is in `interrater`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from automedeval.stats.bootstrap import Statistic, divide, mean_of, ratio, undefined
from automedeval.stats.degrees import degree_tables, kappa

SAME = 1e-9
NO_CHANGE = (
    1e-4  # of a step: another batch or processor moves a number that a model computes by less
)
MOST_CELLS = (
    512  # distinct pairs of scores up to which a rank correlation counts cells and not responses
)


def relation_of(gaps: np.ndarray) -> np.ndarray:
    """Return the relations by the gaps between two scores: -1, 0 within `SAME`, 1; NaN where a gap is."""
    return np.where(np.isnan(gaps), np.nan, np.where(np.abs(gaps) <= SAME, 0.0, np.sign(gaps)))


def in_steps(gaps: ArrayLike, step: float) -> np.ndarray:
    """Return the gaps between numbers that a judge computed, in steps of it; those below `NO_CHANGE` are 0."""
    steps = np.asarray(gaps) / step
    return np.where(np.abs(steps) < NO_CHANGE, 0.0, steps)


@dataclass(frozen=True)
class Panel:
    """The responses of all cases, one after the other."""

    group: (
        np.ndarray
    )  # int [responses], ascending, the group of each response; pairs are formed within a group
    case_of: (
        np.ndarray
    )  # int [groups], the case of each group; a case has one group, or one per rater
    cases: int  # their number

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> "Panel":
        return cls(np.repeat(np.arange(len(sizes)), sizes), np.arange(len(sizes)), len(sizes))

    def stacked(self, times: int) -> "Panel":
        """Return this panel repeated; each copy has new groups, of the same cases."""
        shift = np.repeat(np.arange(times), len(self.group)) * len(self.case_of)
        return Panel(np.tile(self.group, times) + shift, np.tile(self.case_of, times), self.cases)

    @cached_property
    def case(self) -> np.ndarray:
        """The case of every response."""
        return self.case_of[self.group]

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All unordered pairs within groups, as indices (first, second) of responses, first before second."""
        sizes = np.bincount(self.group, minlength=len(self.case_of))
        starts = np.cumsum(sizes) - sizes
        first, second = [], []
        for size in np.unique(sizes):
            left, right = np.triu_indices(size, 1)
            at = starts[sizes == size][:, None]
            first.append((at + left).ravel())
            second.append((at + right).ravel())
        firsts = np.concatenate(first).astype(int) if first else np.empty(0, int)
        seconds = np.concatenate(second).astype(int) if second else np.empty(0, int)
        order = np.lexsort((seconds, firsts))
        return firsts[order], seconds[order]

    @cached_property
    def triples(self) -> np.ndarray:
        """All sets of three responses within groups, each as the indices of its three pairs: int [triples, 3]."""
        sizes = np.bincount(self.group, minlength=len(self.case_of))
        before = (
            np.cumsum(sizes * (sizes - 1) // 2) - sizes * (sizes - 1) // 2
        )  # pairs of the groups before
        triples = [np.empty((0, 3), int)]
        for size in np.unique(sizes[sizes >= 3]):
            number = np.zeros((size, size), int)  # of the pair (row, column) within its group
            number[np.triu_indices(size, 1)] = np.arange(size * (size - 1) // 2)
            a, b, c = np.array(list(combinations(range(size), 3))).T
            within = np.column_stack([number[a, b], number[a, c], number[b, c]])
            triples.append((before[sizes == size][:, None, None] + within).reshape(-1, 3))
        return np.concatenate(triples)

    def relations(self, scores: np.ndarray) -> np.ndarray:
        """Return the relation of every pair: -1, 0, 1, NaN where a score is missing."""
        first, second = self.pairs
        return relation_of(scores[first] - scores[second])

    def per_case(self, values: np.ndarray, of: str = "pairs") -> np.ndarray:
        """Sum values of pairs, triples or responses over each case."""
        if of == "triples":
            index = self.case[self.pairs[0][self.triples[:, 0]]]
        else:
            index = {"pairs": self.case[self.pairs[0]], "responses": self.case}[of]
        return np.bincount(index, weights=values, minlength=self.cases)

    def per_group(self, values: np.ndarray) -> np.ndarray:
        """Sum values of responses over each group."""
        return np.bincount(self.group, weights=values, minlength=len(self.case_of))


def concordance(panel: Panel, people: np.ndarray, judge: np.ndarray) -> Statistic:
    """Return the concordance of a judge's relations [pairs] with people's, see `accuracies`."""
    untied = ~np.isnan(people) & (people != 0)
    credit = np.where(untied, (people == judge) + 0.5 * (judge == 0), 0.0)
    reason = (
        "people rated no pair of responses" if np.isnan(people).all() else "people tied every pair"
    )
    return ratio(panel.per_case(credit), panel.per_case(untied), reason=reason)


def accuracies(panel: Panel, people: np.ndarray, judge: np.ndarray) -> dict[str, Statistic]:
    """Return the accuracies of a judge's relations [pairs] against people's (paper section 4.3).

    Pairs without a relation of people are left out. A missing relation of the judge counts as wrong.

    - pairwise_accuracy (the paper's Accuracy 2-tuple): share of pairs with the same relation; a tie is a third outcome.
    - concordance: over pairs that people did not tie, the mean of 1 if the judge orders them alike, 1/2 if it ties, else 0.
    - triple_accuracy (the paper's Accuracy triple): share of the sets of three responses of a group whose three pairs have the
      same relation. Sets in which a relation of people is missing are left out.
    """
    rated = ~np.isnan(people)
    right = rated & (people == judge)
    rated_triples, right_triples = (which[panel.triples].all(axis=1) for which in (rated, right))
    in_cases = panel.per_case
    no_pair, no_triple = (
        "people rated no pair of responses",
        "no case has three responses that people rated",
    )
    right_of_three, all_of_three = (
        in_cases(each, "triples") for each in (right_triples, rated_triples)
    )
    return {
        "pairwise_accuracy": ratio(in_cases(right), in_cases(rated), reason=no_pair),
        "concordance": concordance(panel, people, judge),
        "triple_accuracy": ratio(right_of_three, all_of_three, reason=no_triple),
    }


def correlations(panel: Panel, people: np.ndarray, judge: np.ndarray) -> dict[str, Statistic]:
    """Return the correlations of scores [responses] of people and of a judge, over all responses that both scored."""
    return {
        "spearman": rank_correlation(panel, people, judge),
        "pearson": _pearson(panel, people, judge),
    }


NOT_CONSTANT = "undefined: all scores of one side are the same"


def _pearson(panel: Panel, people: np.ndarray, judge: np.ndarray) -> Statistic:
    both = ~np.isnan(people) & ~np.isnan(judge)
    x, y = (_centred(values, both) for values in (people, judge))
    columns = np.column_stack(
        [panel.per_case(v, "responses") for v in (both, x, y, x * x, y * y, x * y)]
    )
    return Statistic(columns, _pearson_of_sums, int(both.sum()), NOT_CONSTANT)


def _centred(values: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Return values shifted to mean 0, against loss of precision; 0 where there is no value."""
    defined = np.where(both, values, 0.0)
    return np.where(both, defined - defined.sum() / max(1, both.sum()), 0.0)


def _pearson_of_sums(sums: np.ndarray) -> np.ndarray:
    n, x, y, xx, yy, xy = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (xx - x * x / n) * (yy - y * y / n)
        # A constant side leaves rounding, not zero; scores within 1e-9 are the same.
        least = SAME**2 * n
        constant = (xx - x * x / n <= least + 1e-12 * xx) | (yy - y * y / n <= least + 1e-12 * yy)
        return np.where(constant | (n < 2), np.nan, (xy - x * y / n) / np.sqrt(np.abs(spread)))


def rank_correlation(panel: Panel, people: np.ndarray, judge: np.ndarray) -> Statistic:
    """Return Spearman's correlation over all responses that both scored; every resample is ranked again."""
    both = ~np.isnan(people) & ~np.isnan(judge)
    x, y = people[both], judge[both]
    n = int(both.sum())
    if n < 2:
        return undefined(panel.cases, n, "fewer than two responses")
    _x_levels, x_of = np.unique(np.round(x, 9), return_inverse=True)
    y_levels, y_of = np.unique(np.round(y, 9), return_inverse=True)
    cells, cell_of = np.unique(x_of * len(y_levels) + y_of, return_inverse=True)
    cases = panel.case[both]
    if len(cells) > MOST_CELLS:  # nearly every response is a cell of its own
        return Statistic(None, _Spearman(x_of, y_of), n, NOT_CONSTANT, cells=cases)
    columns = np.zeros((panel.cases, len(cells)))
    np.add.at(columns, (cases, cell_of), 1.0)
    return Statistic(
        columns, _Spearman(cells // len(y_levels), cells % len(y_levels)), n, NOT_CONSTANT
    )


class _Spearman:
    """Compute Spearman's correlation of weighted cells; cell i has the rank levels x[i] and y[i]."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        self.sides = []
        for levels in (x, y):
            order = np.argsort(levels, kind="stable")
            starts = np.flatnonzero(np.diff(levels[order], prepend=-1))
            self.sides.append((order, starts, levels))

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        total = weights.sum(axis=1, keepdims=True)
        ranks, spreads = [], []
        for order, starts, levels in self.sides:
            at_level = np.add.reduceat(weights[:, order], starts, axis=1)
            middle = (
                np.cumsum(at_level, axis=1) - at_level / 2 - total / 2
            )  # midranks less their mean
            spreads.append(np.einsum("rl,rl,rl->r", at_level, middle, middle))
            ranks.append(middle[:, levels])
        together = np.einsum("rc,rc,rc->r", weights, *ranks)
        return divide(together, np.sqrt(spreads[0] * spreads[1]))


CHOICES = ("first", "second", "tie", "neither")


def choice_agreement(
    people: np.ndarray, judge: np.ndarray, case: np.ndarray, cases: int
) -> dict[str, Statistic]:
    """Return accuracy and Cohen's kappa of choices about pairs, coded as indices of CHOICES.

    Kappa counts every pair as (first, second) and as (second, first): the order of the responses is arbitrary and must not
    change the agreement expected by chance.

    Args:
        people: int [pairs], people's choices.
        judge: int [pairs], the judge's choices, -1 if it has none: wrong in the accuracy, left out of kappa.
        case: int [pairs], the case of each pair.
    """
    valid, kinds = judge >= 0, len(CHOICES)
    turned = np.array([1, 0, 2, 3])
    rows, columns = (np.concatenate([each[valid], turned[each[valid]]]) for each in (people, judge))
    tables = degree_tables(rows, columns, np.tile(case[valid], 2), cases, kinds)
    right = mean_of(
        (people == judge).astype(float), case, cases, "no pair that people chose about", (0.0, 1.0)
    )
    of, reason = (
        partial(kappa, 1 - np.eye(kinds)),
        "both always chose the same" if valid.any() else "no valid verdict",
    )
    return {
        "accuracy": right,
        "kappa": Statistic(tables.reshape(cases, -1), of, int(valid.sum()), reason),
    }


ACCURACIES = ("pairwise_accuracy", "concordance", "triple_accuracy")
CORRELATIONS = ("spearman", "pearson")
