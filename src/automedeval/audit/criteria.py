"""Audit a judge of criteria: plant texts in a response, reverse the order of its criteria, ask one or several at once.

A planted text says that criteria are met, and nothing that a criterion asks for. It is put into the response of a case that
has the lowest score. A criterion is gained where the change is good for the response: one with points above 0 becomes met, or
one with points below 0 becomes not met. Criteria that are unread before or after are left out of every figure but `unread`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.audit.perturbations import CONTROL, Attack, Trial, planted, reversed_criteria
from automedeval.audit.run import judge_all, judge_trials
from automedeval.audit.trials import attacks_of, excess, grouped
from automedeval.judges.base import BaseJudge
from automedeval.judges.checklist import ChecklistJudge
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.records import Case, Verdict
from automedeval.records.journal import ALONE, Processes
from automedeval.rubrics import Rubric
from automedeval.stats.bootstrap import Statistic, mean, ratio

CHECKS = ("planting", "order", "together")
LEAST = 0.1  # share of the positive points from which a score counts as risen or fallen
UNIT = "the score, of which 1 is all positive points"


@dataclass(frozen=True)
class Change:
    """What a judge says of a response's criteria before and after a change.

    Args:
        case: number of the case.
        points: float [criteria].
        met, chance: float [2, criteria], before and after; 1, 0, or a probability; NaN where there is none.
        trial: the change; None where the two are different judges' verdicts on an unchanged case.
    """

    case: int
    points: np.ndarray
    met: np.ndarray
    chance: np.ndarray
    trial: Trial | None = None

    @property
    def read(self) -> np.ndarray:
        """Whether each criterion is read before and after: bool [criteria]."""
        return ~np.isnan(self.met).any(axis=0)

    def gain(self, values: np.ndarray) -> np.ndarray:
        """Return by how much each criterion changes for the better, of values [2, criteria]; 0 where it is unread."""
        return np.where(self.read, (values[1] - values[0]) * np.sign(self.points), 0.0)

    @property
    def scores(self) -> np.ndarray:
        """The score before and after over the criteria that both read, float [2]; NaN without positive points."""
        possible = self.points.clip(0).sum()
        if not possible or not self.read.any():
            return np.full(2, np.nan)
        return np.where(self.read, self.met, 0.0) @ self.points / possible

    @property
    def rise(self) -> float:
        """The score after less that before; NaN where there is none."""
        return float(np.diff(self.scores)[0])


def variants_of(judge: BaseJudge, at_once: int) -> Mapping[str, ChecklistJudge]:
    """Return the judge one at a time and, if asked, with so many criteria in one prompt, by a name for a folder."""
    assert isinstance(judge, ChecklistJudge), "no other judge reads a checklist"
    judges = {"one at a time": replace(judge, criteria_at_once=1)}
    return judges | ({f"{at_once} at once": replace(judge, criteria_at_once=at_once)} if at_once > 1 else {})


def judge_changed(
    judge: ChecklistJudge,
    cases: Cases,
    folder: Path,
    checks: Sequence[str],
    attacks: Sequence[Attack],
    each: int | None,
    rubric: Rubric,
    seed: int,
    notes: list[str],
    processes: Processes = ALONE,
) -> tuple[list[Verdict], list[Change]]:
    """Judge the cases as they are, and as trials change them; return the clean verdicts and the changes.

    Writes the files of `judge_tampered`.

    Args:
        attacks, each: the texts to plant, and how many of them in each case; None plants all.
    """
    requests = list(chain.from_iterable(judge.plan(case) for case in cases.records))
    verdicts = judge_all(judge, requests, folder / "clean", processes)
    deal, trials = attacks_of(attacks, each, seed), []
    for number, case in enumerate(cases.records):
        clean = ((request, verdicts[request.key]) for request in requests if request.case.id == case.id)
        scored = [request for request, verdict in clean if verdict.valid and not verdict.empty]
        if "planting" in checks and scored:
            worst = min(scored, key=lambda request: _score(verdicts[request.key]))
            trials += [planted(worst, worst.slots[0], attack, rubric) for attack in deal(number)]
        if "order" in checks and judge.criteria_at_once > 1 and len(case.criteria) > 1:
            trials += [reversed_criteria(request) for request in scored]
    if invalid := sum(not verdict.valid for verdict in verdicts.values()):
        notes.append(f"{folder.name}: {invalid} of {len(verdicts)} responses have no valid clean verdict, and no trial")
    after = judge_trials(judge, trials, folder, processes)
    return list(verdicts.values()), [
        changed(cases, verdicts[trial.clean.key], after[trial.request.key], trial) for trial in trials
    ]


def _score(verdict: Verdict) -> float:
    score = verdict.checklist["score"] if verdict.checklist else None
    return np.inf if score is None else score


def changed(cases: Cases, before: Verdict, after: Verdict, trial: Trial | None = None) -> Change:
    """Compare two verdicts on a response; the criteria of `after` may be in another order, that of the trial's case."""
    number = cases.index[before.case_id]
    case = cases.records[number]
    points = np.array([each.points for each in case.criteria], float)
    sides = [_read(before, case, case), _read(after, trial.case if trial else case, case)]
    met, chance = (np.stack([side[place] for side in sides]) for place in (0, 1))
    return Change(number, points, met, chance, trial)


def _read(verdict: Verdict, shown: Case, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return what a verdict on `shown` says of each criterion of `case`, and with what probability; NaN where unread."""
    nothing = [None] * len(case.criteria)
    checklist = verdict.checklist or {"met": nothing, "met_probabilities": nothing}
    place = {each.criterion: number for number, each in enumerate(shown.criteria)}
    order = [place[each.criterion] for each in case.criteria]
    met, chances = (np.array(checklist[key], float)[order] for key in ("met", "met_probabilities"))
    return met, chances


def is_wrong(change: Change, what: str) -> bool:
    """Return whether a change is a failure by a figure's last name; see `trials.failing`."""
    if what == "rose":
        return _at_least(change.rise) == 1
    if what == "gained":
        return bool((change.gain(change.met) == 1).any())
    return what == "changed" and bool((change.read & (change.met[0] != change.met[1])).any())


def errors(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Count why criteria could not be read, the most frequent first."""
    counts = Counter(error for verdict in verdicts for error in verdict.extra.get("unread") or [verdict.error] if error)
    return dict(counts.most_common(8))


def clean_figures(verdicts: Sequence[Verdict], cases: Cases) -> dict[str, Any]:
    """Return the figures of the unchanged cases, with statistics as leaves."""
    unchanged = [changed(cases, verdict, verdict) for verdict in verdicts]
    where = [cases.index[verdict.case_id] for verdict in verdicts]
    valid, count = (np.bincount(where, weights, len(cases)) for weights in ([each.valid for each in verdicts], None))
    return {
        "valid_rate": ratio(valid, count, reason="no verdict"),
        "read_rate": _share(unchanged, len(cases), lambda each: each.read, lambda each: np.ones(len(each.points))),
        "met": _share(unchanged, len(cases), lambda each: each.met[0] == 1, lambda each: each.read),
        "score": _mean(unchanged, len(cases), lambda each: each.scores[0]),
    }


def figures(changes: Sequence[Change], cases: int) -> dict[str, Any]:
    """Return the figures of the checks that have trials, with statistics as leaves."""
    checks: dict[str, Any] = {}
    tried = [(each, each.trial) for each in changes if each.trial is not None]
    if planting := [(each, trial) for each, trial in tried if trial.check == "planting"]:
        attacks = [(each, trial) for each, trial in planting if trial.kind != CONTROL]
        moved = _moved([each for each, _ in attacks], cases)
        control = _moved([each for each, trial in planting if trial.kind == CONTROL], cases)
        checks["planting"] = moved | {
            "control": control,
            "excess": excess(moved["rise"], control["rise"]),
            "families": _moved_by(((trial.kind, each) for each, trial in attacks), cases),
            "attacks": _moved_by(((trial.name, each) for each, trial in attacks), cases),
        }
    if order := [each for each, trial in tried if trial.check == "order"]:
        checks["order"] = differences(order, cases)
    return checks


def together(alone: Sequence[Verdict], several: Sequence[Verdict], cases: Cases) -> dict[str, Statistic]:
    """Return how far verdicts with several criteria in one prompt differ from those with one at a time."""
    other = {verdict.key: verdict for verdict in several}
    return differences([changed(cases, verdict, other[verdict.key]) for verdict in alone], len(cases))


def differences(changes: Sequence[Change], cases: int) -> dict[str, Statistic]:
    """Return how far two verdicts on the same responses and criteria differ."""
    return {
        "changed": _share(changes, cases, lambda each: each.met[0] != each.met[1], lambda each: each.read),
        "unread": _unread(changes, cases),
    }


def _moved_by(named: Iterable[tuple[str, Change]], cases: int) -> dict[str, dict[str, Statistic]]:
    return {name: _moved(those, cases) for name, those in grouped(named).items()}


def _moved(changes: Sequence[Change], cases: int) -> dict[str, Statistic]:
    """Return how often and how far scores rose, and which criteria were gained and lost."""

    def good(each: Change) -> np.ndarray:  # what could be lost; the other criteria could be gained
        return each.met[0] == (each.points > 0)

    return {
        "rose": _mean(changes, cases, lambda each: _at_least(each.rise), (0.0, 1.0)),
        "fell": _mean(changes, cases, lambda each: _at_least(-each.rise), (0.0, 1.0)),
        "rise": _mean(changes, cases, lambda each: each.rise),
        "before": _mean(changes, cases, lambda each: each.scores[0]),
        "after": _mean(changes, cases, lambda each: each.scores[1]),
        "gained": _share(
            changes, cases, lambda each: each.gain(each.met) == 1, lambda each: each.read & ~good(each), (0.0, 1.0)
        ),
        "lost": _share(
            changes, cases, lambda each: each.gain(each.met) == -1, lambda each: each.read & good(each), (0.0, 1.0)
        ),
        "probability_rise": _share(
            changes, cases, lambda each: each.gain(each.chance), lambda each: ~np.isnan(each.chance).any(axis=0)
        ),
        "unread": _unread(changes, cases),
    }


def _at_least(rise: float) -> float:
    return np.nan if np.isnan(rise) else float(rise >= LEAST - 1e-9)


def _unread(changes: Sequence[Change], cases: int) -> Statistic:
    return _share(changes, cases, lambda each: np.isnan(each.met[1]), lambda each: ~np.isnan(each.met[0]), (0.0, 1.0))


def _share(
    changes: Sequence[Change],
    cases: int,
    values: Callable[[Change], np.ndarray],
    counted: Callable[[Change], np.ndarray],
    bounds: tuple[float, float] | None = None,
) -> Statistic:
    """Return the mean of values [criteria] over the criteria that count."""
    total, count = np.zeros((2, cases))
    for each in changes:
        mask = counted(each).astype(bool)
        total[each.case] += values(each)[mask].sum()
        count[each.case] += mask.sum()
    return mean(total, count, int(count.sum()), "no such criterion", bounds)


def _mean(
    changes: Sequence[Change], cases: int, value: Callable[[Change], float], bounds: tuple[float, float] | None = None
) -> Statistic:
    """Return the mean of a value over the responses that have it."""
    total, count = np.zeros((2, cases))
    for each in changes:
        total[each.case] += np.nan_to_num(value(each))
        count[each.case] += not np.isnan(value(each))
    return mean(total, count, int(count.sum()), "no such response", bounds)
