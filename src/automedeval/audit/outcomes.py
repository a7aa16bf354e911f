"""Compare what a judge says of the two sides of a trial, and measure the cases as they are.

A reader knows the judge's verdicts on the unchanged cases: one is of scores or choices, one of criteria.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from automedeval.audit.perturbations import READ, Perturbation
from automedeval.audit.trials import Trial, ValuedAnswer
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable, expected_values, own_values
from automedeval.records import JsonObject, Verdict, question_text
from automedeval.stats.agreement import SAME, in_steps
from automedeval.stats.bootstrap import Statistic, divide, ratio, sums_at, undefined

LEAST = 0.5  # steps from which a score counts as risen or fallen: half a point
ALIKE = 0.05  # steps within which numbers without a scale are equal: in bfloat16 another batch changes them by a third of that


@dataclass(frozen=True)
class Outcome:
    """What a change did."""

    trial: Trial
    case: int  # its number
    shifts: Sequence[
        float
    ] = ()  # of scores, in steps; without sign where a score should stay; empty if one is invalid
    hits: int = 0  # what the perturbation's share counts
    counted: int = 0  # of how many
    lost: int = 0  # what could be read before the change and cannot after it
    asked: int = 1  # of how many


@dataclass(frozen=True)
class Measure:
    """A figure of the unchanged cases: a share, a shift if there is one, and (response, what of it) that show it."""

    share: Statistic
    shift: Statistic | None = None
    shown: Sequence[tuple[int, str]] = ()


class ScoreReader:
    """Reads scores or choices: shares count responses, pairs of them, or trials.

    A step is that of the judge (see `VerdictTable.step`).
    """

    def __init__(self, judged: VerdictTable):
        self.judged = judged
        self.unit = "standard deviations of its values"
        if judged.has_own:
            self.unit = "share of criteria won" if judged.criteria else "points"

    def answers(
        self, requests: Sequence[Request], verdicts: Sequence[Verdict]
    ) -> list[ValuedAnswer]:
        """Return the answers that the first of a case's requests shows and its verdict has a value of, the worst first."""
        request, verdict = requests[0], verdicts[0]
        values = expected_values(verdict) or own_values(verdict, self.judged.rubric)
        responses = request.case.responses
        full = [
            index for index in values if not responses[index].is_empty
        ]  # an empty one cannot be changed
        answers = [ValuedAnswer(request, index, values[index]) for index in full]
        return sorted(answers, key=lambda each: (each.value, request.slots.index(each.index)))

    def compare(self, trial: Trial, before: Verdict, after: Verdict) -> Outcome:
        """Compare the verdicts on the two sides."""
        judged, target = self.judged, trial.target
        case = judged.cases.index[trial.clean.case.id]
        should = trial.perturbation.should
        own = [own_values(verdict, judged.rubric) for verdict in (before, after)]
        fine = (
            [expected_values(verdict) for verdict in (before, after)]
            if judged.has_expected
            else own
        )
        unread = not fine[0] if target is None else target not in fine[0]
        if unread or not fine[1] or set(after.unread) - set(before.unread):
            return Outcome(trial, case, lost=1)
        # A judge that looks at each response by itself was shown the changed ones only.
        own, fine = ([values[0], values[0] | values[1]] for values in (own, fine))
        compared = sorted(fine[0]) if target is None else [target]
        if should == "stay":
            sides = [((0, index), (1, index)) for index in compared]
            if target is not None and trial.other is not None:
                sides = [((1, target), (1, trial.other))]
            own_gap, gap = (
                max(abs(each[a][i] - each[b][j]) for (a, i), (b, j) in sides)
                for each in (own, fine)
            )
            whole = before.scores is not None or bool(before.choices)
            shift = float(in_steps(gap, judged.step))
            same = own_gap <= SAME if whole else shift <= ALIKE
            return Outcome(trial, case, [shift], int(not same), 1)
        gaps = [fine[1][index] - fine[0][index] for index in compared]
        shifts = in_steps(gaps, judged.step).tolist()
        if should == "keep the order":
            pairs = [
                pair for pair in combinations(sorted(own[0]), 2) if target is None or target in pair
            ]
            relations = [
                judged.relation_of([values[one] - values[other] for one, other in pairs])
                for values in own
            ]
            turned = int((relations[0] * relations[1] < 0).sum())
            return Outcome(trial, case, shifts, turned, len(pairs))
        way = -1 if should == "fall" else 1
        return Outcome(
            trial, case, shifts, sum(way * each >= LEAST for each in shifts), len(shifts)
        )

    def measure(self, perturbation: Perturbation) -> Measure | None:
        """Return what is measured on the unchanged cases; None if a perturbation needs trials."""
        if perturbation.should == READ:
            return Measure(
                ratio(self.judged.verdicts_valid, self.judged.given, reason="no verdict")
            )
        return _order(self.judged) if perturbation.changes == "order" else None


def _order(judge: VerdictTable) -> Measure:
    """Return of two orders of a pair how many turn it round, and by how many steps the best place is above the worst one."""
    cases, panel = len(judge.cases), judge.panel
    as_filed = judge.valid and all(
        verdict.order == tuple(sorted(verdict.order)) for verdict in judge.valid
    )
    if as_filed or len(judge.valid) == 1:
        why = (
            "there is one valid verdict: the effects of places and of responses cannot be separated"
        )
        if as_filed:
            why = "every response was shown in the order of the file: places and models cannot be separated"
        return Measure(undefined(cases, 0, why), undefined(cases, 0, why))
    first, second = panel.pairs
    relations = judge.relation_of(judge.own[first] - judge.own[second])
    pairs = judge.cases.panel
    count_of = [
        np.bincount(judge.pairs, relations == kind, minlength=len(pairs.pairs[0]))
        for kind in (1, -1, 0)
    ]
    above, below, level = count_of
    count = above + below + level
    flips = above * below / np.maximum(count * (count - 1) / 2, 1)
    share = ratio(
        pairs.per_case(flips),
        pairs.per_case(count > 1),
        reason="every pair was shown in one order only",
    )
    effects = _slot_effects(judge)
    if not len(effects):
        return Measure(share, undefined(cases, 0, "no case has two responses"))

    def span(sums: np.ndarray) -> np.ndarray:
        means = divide(sums[:, ::2], sums[:, 1::2])
        return means.max(axis=1) - means.min(axis=1)

    turned = np.flatnonzero(above * below).tolist()
    shown = [
        (int(side[pair]), "ahead in one order, not in another")
        for pair in turned
        for side in pairs.pairs
    ]
    return Measure(
        share, Statistic(np.concatenate(effects).T, span, round(effects[:, 1].sum())), shown
    )


def _slot_effects(judge: VerdictTable) -> np.ndarray:
    """Sum by how many steps values in each slot lie above the mean of their verdict, and count: [slots, 2, cases].

    Verdicts on one response, and those that lack a value, are left out.
    """
    panel, values = judge.panel, judge.best
    count = panel.per_group(np.ones(len(values)))
    mean = panel.per_group(values) / np.maximum(count, 1)
    apart = in_steps(values - mean[panel.group], judge.step)
    apart[count[panel.group] < 2] = np.nan
    slots = range(judge.slot[~np.isnan(apart)].max(initial=-1) + 1)
    here = [np.where(judge.slot == slot, apart, np.nan) for slot in slots]
    return np.array([sums_at(each, panel.case, panel.cases) for each in here]).reshape(
        -1, 2, panel.cases
    )


class CriteriaReader:
    """Reads which criteria are met: shares count criteria, and a score is a share of the positive points.

    Args:
        verdicts: those on the unchanged cases.
    """

    unit = "the score, of which 1 is all positive points"

    def __init__(self, cases: Cases, verdicts: Sequence[Verdict]):
        self.cases, self.verdicts = cases, verdicts

    def answers(
        self, requests: Sequence[Request], verdicts: Sequence[Verdict]
    ) -> list[ValuedAnswer]:
        """Return the answers that a verdict has a score of, the worst first; one without positive points is the last."""
        answers = []
        for request, verdict in zip(requests, verdicts):
            if verdict.valid and verdict.checklist and not verdict.empty:
                score = verdict.checklist["score"]
                answers.append(
                    ValuedAnswer(request, request.slots[0], np.inf if score is None else score)
                )
        return sorted(answers, key=lambda each: each.value)

    def compare(self, trial: Trial, before: Verdict, after: Verdict) -> Outcome:
        """Compare the criteria of both sides; those that are unread on a side are counted apart."""
        criteria = trial.clean.case.criteria
        should = trial.perturbation.should
        points = np.array([each.points for each in criteria], float)
        unread = [None] * len(criteria)
        met = np.array(
            [(each.checklist or {"met": unread})["met"] for each in (before, after)], float
        )
        known, read = ~np.isnan(met[0]), ~np.isnan(met).any(axis=0)
        gained = np.where(read, (met[1] - met[0]) * np.sign(points), 0.0)
        good = met[0] == (points > 0)  # what could be lost; the other criteria could be gained
        rises = (
            [float(gained @ np.abs(points) / points.clip(0).sum())]
            if read.any() and (points > 0).any()
            else []
        )
        hits, counted = gained != 0, read
        if should in ("not rise", "fall"):
            hits, counted = (
                (gained > 0, read & ~good) if should == "not rise" else (gained < 0, read & good)
            )
        shifts = rises if should in ("not rise", "fall") else [abs(each) for each in rises]
        sums = (int(each.sum()) for each in (hits, counted, known & ~read, known))
        return Outcome(trial, self.cases.index[trial.clean.case.id], shifts, *sums)

    def measure(self, perturbation: Perturbation) -> Measure | None:
        """Return what is measured on the unchanged cases; None if a perturbation needs trials."""
        sums = np.zeros((3, len(self.cases)))  # criteria, read ones, met ones
        for verdict in self.verdicts:
            number = self.cases.index[verdict.case_id]
            met = (verdict.checklist or {"met": [None] * len(self.cases.records[number].criteria)})[
                "met"
            ]
            sums[:, number] += len(met), len(met) - met.count(None), met.count(True)
        if perturbation.should == READ:
            return Measure(ratio(sums[1], sums[0], reason="no criterion"))
        met = Measure(ratio(sums[2], sums[1], reason="no criterion is read"))
        return met if perturbation.should == "differ" else None


def texts_of(outcome: Outcome) -> JsonObject:
    """Return a trial for a reader: case, model, change, and the texts that differ, with the answer if those are questions."""
    trial = outcome.trial
    sides, clean = (trial.before.case, trial.after.case), trial.clean.case
    if trial.target is None:
        index = trial.clean.slots[0]
        texts = [*(question_text(case.question) for case in sides), clean.responses[index].text]
    else:
        index = trial.target if trial.other is None else trial.other
        texts = [case.responses[index].text for case in sides]
    found = {
        "case_id": clean.id,
        "model": clean.models[index],
        "change": f"{trial.kind}: {trial.edit}",
    }
    return found | {"texts": list(dict.fromkeys(texts))}
