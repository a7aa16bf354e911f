"""Every verdict of one judge in flat arrays, reading by reading: what checks of order, slot and sameness look at.

`evidence` averages a case's readings; here they stay apart. A reading's values are numbers of which more is better: scores, or
for a pairwise rubric the share of criteria that a response wins, a tie counting half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from automedeval.agreement import Panel
from automedeval.cases import Cases
from automedeval.records import Verdict
from automedeval.rubrics import Rubric

Values = dict[int, float]  # index of a response in its case → value


def own_values(verdict: Verdict, rubric: Rubric | None = None, models: Sequence[str] = ()) -> Values:
    """Return what a verdict itself gave: whole scores, shares of criteria won, or the only numbers of a likelihood judge.

    Args:
        rubric: of a pairwise judge, for the criteria on which a choice means the worse response.
        models: of the case, in its order; by default those that the verdict names.
    """
    if not verdict.valid:
        return {}
    if verdict.choices:
        return _shares(verdict, rubric, models or verdict.extra["models"])
    given = verdict.scores if verdict.scores is not None else verdict.expected_scores
    return {index: float(given[index]) for index in verdict.order if given[index] is not None}


def expected_values(verdict: Verdict) -> Values | None:
    """Return a valid verdict's expected scores; None where it lacks one."""
    given = verdict.expected_scores
    if not verdict.valid or given is None or any(given[index] is None for index in verdict.order):
        return None
    return {index: float(given[index]) for index in verdict.order}


def _shares(verdict: Verdict, rubric: Rubric | None, models: Sequence[str]) -> Values:
    worse = {each.name for each in rubric.criteria if each.polarity == "worse"} if rubric else set()
    total = dict.fromkeys(verdict.order, 0.0)
    for criterion, choice in verdict.choices.items():
        for index in verdict.order:
            share = 0.5 if choice in ("tie", "neither") else float(choice == models[index])
            total[index] += 1 - share if criterion in worse else share
    return {index: value / len(verdict.choices) for index, value in total.items()}


@dataclass
class Readings:
    """The verdicts of one judge by one rubric on these cases.

    Args:
        cases: what they are about.
        verdicts: one per reading.
        rubric: of the judge, None where it is not at hand.
    """

    cases: Cases
    verdicts: Sequence[Verdict]
    rubric: Rubric | None = None

    def __post_init__(self) -> None:
        valid = [verdict for verdict in self.verdicts if verdict.valid]
        finer = [expected_values(verdict) for verdict in valid]
        # Where some verdicts lack them, an endpoint's probabilities say nothing about the judge as a whole.
        self.has_expected = bool(valid) and all(values is not None for values in finer)
        self.has_own = any(verdict.scores is not None or verdict.choices for verdict in valid)
        group, response, slot, own, fine = [], [], [], [], []
        for number, (verdict, values) in enumerate(zip(valid, finer)):
            case = self.cases.index[verdict.case_id]
            start = int(self.cases.start[case])
            mine = own_values(verdict, self.rubric, self.cases.records[case].models)
            for index in sorted(verdict.order):
                group.append(number)
                response.append(start + index)
                slot.append(verdict.order.index(index))
                own.append(mine.get(index, np.nan))
                fine.append(values[index] if self.has_expected else np.nan)
        self.valid = valid
        self.response, self.slot = np.array(response, int), np.array(slot, int)
        self.own, self.expected = np.array(own, float), np.array(fine, float)
        case_of = np.array([self.cases.index[verdict.case_id] for verdict in valid], int)
        # Pairs are formed within readings.
        self.panel = Panel(np.array(group, int), case_of, len(self.cases))

    @property
    def finest(self) -> np.ndarray:
        """The values, float [entries]: expected scores where every verdict has them, else the judge's own."""
        return self.expected if self.has_expected else self.own

    @property
    def unit(self) -> float:
        """Return what one step is: a point, a share of the criteria; for a judge without a scale the values' own spread."""
        if self.has_own or not len(self.finest):
            return 1.0
        return float(np.std(self.finest)) or 1.0

    @property
    def unit_name(self) -> str:
        """Return what figures are measured in."""
        if not self.has_own:
            return "standard deviations of its values"
        return "share of criteria won" if any(verdict.choices for verdict in self.valid) else "points"

    @cached_property
    def pairs(self) -> np.ndarray:
        """The number of each reading's pairs in `cases.panel.pairs`, int [pairs of readings]."""
        first, second = (self.response[side] for side in self.panel.pairs)
        ours = [side.astype(np.int64) for side in self.cases.panel.pairs]
        keys = ours[0] * self.cases.responses + ours[1]  # sorted, as the panel's pairs are
        return np.searchsorted(keys, first.astype(np.int64) * self.cases.responses + second)

    @cached_property
    def run(self) -> np.ndarray:
        """The run of each reading."""
        return np.array([verdict.run for verdict in self.valid], int)

    @cached_property
    def mean_gaps(self) -> np.ndarray:
        """How far the first response of every pair stands above the second, on average over readings: float [case pairs]."""
        first, second = self.panel.pairs
        gaps = self.finest[first] - self.finest[second]
        count = len(self.cases.panel.pairs[0])
        total, known = (
            np.bincount(self.pairs, weights=values, minlength=count) for values in (gaps, np.ones(len(gaps)))
        )
        return np.where(known > 0, total / np.maximum(known, 1), np.nan)

    @cached_property
    def mean_values(self) -> np.ndarray:
        """Each response's value on average over readings: float [responses of the cases]; NaN where it has none."""
        total, known = (
            np.bincount(self.response, weights=values, minlength=self.cases.responses)
            for values in (self.finest, np.ones(len(self.response)))
        )
        return np.where(known > 0, total / np.maximum(known, 1), np.nan)

    def relations(self) -> np.ndarray:
        """Return the relation of every pair of responses by the mean over readings: -1, 0, 1; NaN where none was judged."""
        gaps = self.mean_gaps
        return np.where(np.isnan(gaps), np.nan, np.where(np.abs(gaps) <= 1e-9, 0.0, np.sign(gaps)))
