"""Compare what a judge says of the two sides of a trial, and measure the cases as they are.

A reader knows the judge's verdicts on the unchanged cases: one is of scores or choices, one of criteria.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from automedeval.audit.perturbations import READ, Perturbation
from automedeval.audit.trials import Trial, ValuedAnswer
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.verdicts.table import (
    BAND,
    Values,
    VerdictTable,
    expected_values,
    own_values,
)
from automedeval.records import Case, JsonObject, Verdict, question_text
from automedeval.stats.agreement import SAME, in_steps
from automedeval.stats.bootstrap import (
    Statistic,
    case_sums,
    divide,
    how_many,
    is_known,
    only,
    ratio,
    sums_at,
    undefined,
)

LEAST = 0.5  # steps from which a score counts as risen or fallen: half a point
ALIKE = 0.05  # steps within which numbers without a scale are equal: in bfloat16 another batch changes them by a third of that


@dataclass(frozen=True)
class Outcome:
    """What a change did."""

    trial: Trial
    # Of scores, in steps; without sign where a score should stay; empty if one is invalid.
    shifts: Sequence[float] = ()
    hits: int = 0  # what the perturbation's share counts
    counted: int = 0  # of how many
    lost: int = 0  # what could be read before the change and cannot after it
    asked: int = 1  # of how many


@dataclass(frozen=True)
class Measure:
    """A figure of the unchanged cases: a share, a shift if there is one, and the responses whose order turns round."""

    share: Statistic
    shift: Statistic | None = None
    turned: Sequence[int] = ()


class Sides(NamedTuple):
    """The values of the responses on both sides of a trial."""

    before: Values
    after: Values


class ScoreReader:
    """Reads scores or choices: shares count responses, pairs of them, or trials.

    A step is that of the judge (see `VerdictTable.step`).
    """

    def __init__(self, judged: VerdictTable):
        self.judged = judged
        self.unit = "standard deviations of its values"
        if judged.has_own or judged.scale:
            self.unit = "share of criteria won" if judged.criteria else "points"

    def answers(
        self, requests: Sequence[Request], verdicts: Sequence[Verdict]
    ) -> list[ValuedAnswer]:
        """Return the answers that the first of a case's requests shows and its verdict has a value of, the worst first."""
        request = requests[0]
        verdict = verdicts[0]
        values = expected_values(verdict) or own_values(verdict, self.judged.rubric)
        responses = request.case.responses
        # An empty response cannot be changed.
        answers = [
            ValuedAnswer(request, index, value)
            for index, value in values.items()
            if not responses[index].is_empty
        ]
        return sorted(answers, key=lambda answer: (answer.value, request.slots.index(answer.index)))

    def compare(self, trial: Trial, before: Verdict, after: Verdict) -> Outcome:
        """Compare the verdicts on the two sides."""
        judged = self.judged
        should = trial.perturbation.should
        own = _sides(own_values(before, judged.rubric), own_values(after, judged.rubric))
        best = _sides(expected_values(before), expected_values(after)) or own
        is_read = not set(after.unread) - set(before.unread)
        if not (best and own and is_read and trial.target in (None, *best.before)):
            return Outcome(trial, lost=1)
        if should == "stay":
            distance = _distance(trial, best)
            shift = float(in_steps(distance, judged.step))
            same = shift <= ALIKE
            if before.scores is not None or before.choices:
                same = _distance(trial, own) <= SAME
            elif trial.perturbation.edits and judged.scale:  # other words, as where pairs are won
                same = not judged.relation_of(distance, BAND)
            return Outcome(trial, [shift], int(not same), 1)
        compared = sorted(best.before) if trial.target is None else [trial.target]
        gaps = [best.after[index] - best.before[index] for index in compared]
        shifts = in_steps(gaps, judged.step).tolist()  # by how many steps each of them rose
        if should == "keep the order":
            return Outcome(trial, shifts, *self._turned(trial, own))
        way = -1 if should == "fall" else 1
        moved = [shift for shift in shifts if way * shift >= LEAST]
        return Outcome(trial, shifts, len(moved), len(shifts))

    def _turned(self, trial: Trial, sides: Sides) -> tuple[int, int]:
        """Return how many pairs a change turns round, of how many with the changed response."""
        pairs = list(combinations(sorted(sides.before), 2))
        if trial.target is not None:
            pairs = [pair for pair in pairs if trial.target in pair]
        before, after = (
            self.judged.relation_of([values[one] - values[other] for one, other in pairs])
            for values in sides
        )
        return how_many(before * after < 0), len(pairs)

    def measure(self, perturbation: Perturbation) -> Measure | None:
        """Return what is measured on the unchanged cases; None if a perturbation needs trials."""
        if perturbation.should == READ:
            return Measure(ratio(self.judged.verdicts_valid, self.judged.given, "no verdict"))
        return _order(self.judged) if perturbation.changes == "order" else None


def _sides(before: Values, after: Values) -> Sides | None:
    """Return the values of both sides; None where one has none."""
    # A judge that looks at each response by itself was shown the changed ones only.
    return Sides(before, before | after) if before and after else None


def _distance(trial: Trial, sides: Sides) -> float:
    """Return how far the values are apart, at most, that should be the same."""
    if trial.target is None:
        return max(abs(value - sides.after[index]) for index, value in sides.before.items())
    target = sides.after[trial.target]
    other = sides.before[trial.target] if trial.other is None else sides.after[trial.other]
    return abs(target - other)


AS_FILED = (
    "every response was shown in the order of the file: places and models cannot be separated"
)
ONE_VERDICT = (
    "there is one valid verdict: the effects of places and of responses cannot be separated"
)


def _order(judge: VerdictTable) -> Measure:
    """Return of two orders of a pair how many turn it round, and by how many steps the best place is above the worst one."""
    orders = [verdict.order for verdict in judge.valid]
    reason = ""
    if orders and all(order == tuple(sorted(order)) for order in orders):
        reason = AS_FILED
    elif len(orders) == 1:
        reason = ONE_VERDICT
    if reason:
        nothing = undefined(len(judge.cases), 0, reason)
        return Measure(nothing, nothing)
    first, second = judge.panel.pairs
    relations = judge.relation_of(judge.own[first] - judge.own[second])
    panel = judge.cases.panel
    size = len(panel.pairs[0])
    above, below, level = (np.bincount(judge.pairs, relations == kind, size) for kind in (1, -1, 0))
    count = above + below + level
    flips = above * below / np.maximum(count * (count - 1) / 2, 1)
    reason = "every pair was shown in one order only"
    share = ratio(panel.per_case(flips), panel.per_case(count > 1), reason)
    effects = _slot_effects(judge)
    if not len(effects):
        return Measure(share, undefined(panel.cases, 0, "no case has two responses"))

    def span(sums: ndarray) -> ndarray:
        means = divide(sums[:, ::2], sums[:, 1::2])
        return means.max(axis=1) - means.min(axis=1)

    turned = np.stack(panel.pairs, axis=1)[above * below > 0]
    shift = Statistic(np.concatenate(effects).T, span, round(effects[:, 1].sum()))
    return Measure(share, shift, turned.ravel().tolist())


def _slot_effects(judge: VerdictTable) -> ndarray:
    """Sum by how many steps values in each slot lie above the mean of their verdict, and count: [slots, 2, cases].

    Verdicts on one response, and those that lack a value, are left out.
    """
    panel = judge.panel
    values = judge.best
    mean = np.bincount(panel.group, values, len(panel.sizes)) / np.maximum(panel.sizes, 1)
    apart = in_steps(values - mean[panel.group], judge.step)
    apart[panel.sizes[panel.group] < 2] = np.nan
    effects = []
    for slot in range(judge.slot[is_known(apart)].max(initial=-1) + 1):
        effects.append(sums_at(only(apart, judge.slot == slot), panel.case, panel.cases))
    return np.array(effects)


class CriteriaReader:
    """Reads which criteria are met: shares count criteria, and a score is a share of the positive points."""

    unit = "the score, of which 1 is all positive points"

    def __init__(self, judged: VerdictTable):
        self.judged = judged

    def answers(
        self, requests: Sequence[Request], verdicts: Sequence[Verdict]
    ) -> list[ValuedAnswer]:
        """Return the answers that a verdict can read, the worst first by the lowest score that is possible.

        One without positive points is the last.
        """
        answers = []
        for request, verdict in zip(requests, verdicts):
            if verdict.valid and verdict.checklist and not verdict.empty:
                score = verdict.checklist["lowest"]
                value = np.inf if score is None else score
                answers.append(ValuedAnswer(request, request.slots[0], value))
        return sorted(answers, key=lambda answer: answer.value)

    def compare(self, trial: Trial, before: Verdict, after: Verdict) -> Outcome:
        """Compare the criteria of both sides; those that are unread on a side are counted apart."""
        case = trial.clean.case
        should = trial.perturbation.should
        points = np.array([criterion.points for criterion in case.criteria], float)
        met = np.array([_met(before, case), _met(after, case)], float)
        known = is_known(met[0])
        read = is_known(met).all(axis=0)
        gained = np.where(read, (met[1] - met[0]) * np.sign(points), 0.0)
        is_good = met[0] == (points > 0)  # what could be lost; the other criteria could be gained
        possible = points.clip(0).sum()
        shifts = [float(gained @ np.abs(points) / possible)] if read.any() and possible else []
        if should == "not rise":
            hits = gained > 0
            counted = read & ~is_good
        elif should == "fall":
            hits = gained < 0
            counted = read & is_good
        else:
            hits = gained != 0
            counted = read
            shifts = [abs(shift) for shift in shifts]
        counts = map(how_many, (hits, counted, known & ~read, known))
        return Outcome(trial, shifts, *counts)

    def measure(self, perturbation: Perturbation) -> Measure | None:
        """Return what is measured on the unchanged cases; None if a perturbation needs trials."""
        cases = self.judged.cases
        shares = self.judged.met
        parts = [np.ones(len(shares)), is_known(shares), shares == 1]
        criteria, read, met = case_sums(parts, cases.case_of_item, len(cases)).T
        if perturbation.should == READ:
            return Measure(ratio(read, criteria, "no criterion"))
        if perturbation.should == "differ":
            return Measure(ratio(met, read, "no criterion is read"))
        return None


def _met(verdict: Verdict, case: Case) -> list[bool | None]:
    """Return whether each criterion of a case is met, None where this is unread."""
    return verdict.checklist["met"] if verdict.checklist else [None] * len(case.criteria)


def texts_of(outcome: Outcome) -> JsonObject:
    """Return a trial for a reader: case, model, change, and the texts that differ, with the answer if those are questions."""
    trial = outcome.trial
    before, after, clean = trial.before.case, trial.after.case, trial.clean.case
    if trial.target is None:
        index = trial.clean.slots[0]
        answer = clean.responses[index].text
        texts = [question_text(before.question), question_text(after.question), answer]
    else:
        index = trial.target if trial.other is None else trial.other
        texts = [before.responses[index].text, after.responses[index].text]
    return {
        "case_id": clean.id,
        "model": clean.models[index],
        "change": f"{trial.kind}: {trial.edit}",
        "texts": list(dict.fromkeys(texts)),
    }
