"""Compare what two judges, or one judge on two days, said of a panel; the decisions are those of `stats.gate`.

A figure is a share of the units of a case, and the mean over cases: of pairs that people put in an order, of planted dangers,
of their clean twins, of verdicts, of scores. So the differences of the cases are what the gate takes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from automedeval.audit.perturbations import TWIN, read_trial
from automedeval.audit.trials import ALIKE, LEAST, Outcome, outcome
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, Row, expected_values, own_values
from automedeval.records import Case, Verdict
from automedeval.stats import agreement, selective
from automedeval.stats.bootstrap import divide, estimate, plain, ratio
from automedeval.stats.gate import LOWER, NOT_LOWER, UNDECIDED, gate

FIGURES = {
    "agreement": "agreement with physicians",
    "dangers": "planted dangers found",
    "alarms": "false alarms on clean twins",
    "valid": "valid verdicts",
    "abstained": "abstained",
    "changed": "changed scores",
}
DECIDING = tuple(FIGURES)[:4]
RESULTS = {NOT_LOWER: "the same", LOWER: "worse", UNDECIDED: "cannot be told"}
Shares = dict[str, tuple[np.ndarray, np.ndarray]]


class Reading:
    """What a judge said of the cases, and what planted dangers and clean twins did to its scores.

    Args:
        judged: the verdicts on the cases.
        changed, after: the changed cases, and the verdict on each by its id.

    Further attributes:
        outcomes: of the changed cases, in their order; each is compared with the verdict in the same order of responses.
        values: the scores, float [responses], NaN where there is none.
        valid: the share of valid verdicts on a case as it is and as it is changed, float [cases].
    """

    def __init__(self, judged: JudgeVerdicts, changed: Sequence[Case], after: Mapping[str, Verdict]):
        self.judged, self.row = judged, Row(judged)
        before: dict[str, list[Verdict]] = defaultdict(list)
        for verdict in judged.verdicts:
            before[verdict.case_id].append(verdict)
        self.outcomes: list[Outcome] = []
        for case in changed:
            second, firsts = after[case.id], before[case.extra["audit"]["of"]]
            first = next((each for each in firsts if (each.order, each.run) == (second.order, second.run)), firsts[0])
            place = judged.cases.index[first.case_id]
            trial = read_trial(case, [Request(judged.cases.records[place], first.order)], apart=False)
            has_value = trial.target in (expected_values(first) or own_values(first, judged.rubric))
            self.outcomes.append(outcome(trial, first, second, judged) if has_value else Outcome(trial, place, False))
        values, count = self.row.values, len(judged.cases)
        self.values = np.full(judged.cases.responses, np.nan) if values is None else values
        place_of = np.array([each.case for each in self.outcomes], int)
        changed_valid = np.bincount(place_of, [each.valid for each in self.outcomes], count)
        due = judged.verdicts_due + np.bincount(place_of, minlength=count)
        self.valid = divide(judged.verdicts_valid + changed_valid, due)


def compare(people: People, frozen: Reading, today: Reading, by: float, abstain_below: float | None) -> dict[str, Any]:
    """Compare today's judge with the frozen one, on the same cases.

    It is worse if a figure of `DECIDING` is shown to be worse by more than `by`. It is the same if agreement with people is
    shown not to be, and no other figure is worse. A pair without a valid verdict is not in people's order.

    Args:
        by: the share by which a figure may be worse.
        abstain_below: the mean gap of the scores of a case below which the judge abstains; None: it never does.

    Returns:
        "status" and "result"; "figures", those of `FIGURES` that there are units of, each with "frozen" and "today", and of
        `DECIDING` with the "difference" between its one-sided bounds "low" and "high" of 95 %, "cases", "status", and "more",
        about how many more cases would decide; "notes".
    """
    shares, notes = _shares(people, frozen, today, abstain_below)
    count = len(frozen.judged.cases)
    tree = {
        name: {
            side: ratio(np.nan_to_num(values), ~np.isnan(values), reason="no score of both")
            for side, values in zip(("frozen", "today"), sides)
        }
        for name, sides in shares.items()
    }
    figures = plain(estimate(tree, count))
    for name in shares.keys() & set(DECIDING):
        figures[name] |= _decide(name, *shares[name], by)
    worse = any(figure.get("status") == LOWER for figure in figures.values())
    status = LOWER if worse else figures["agreement"]["status"]
    return {"status": status, "result": RESULTS[status], "by": by, "cases": count, "figures": figures, "notes": notes}


def _shares(people: People, frozen: Reading, today: Reading, abstain_below: float | None) -> tuple[Shares, list[str]]:
    """Return figure → the shares of the frozen and of today's judge, float [cases], NaN where a case has no unit; and notes."""
    sides, cases, notes = (frozen, today), frozen.judged.cases, []
    panel, relations = cases.panel, frozen.row.people_relations(people)
    ordered = (agreement.concordance(panel, relations, side.row.finest).columns for side in sides)
    shares = {"agreement": [divide(*columns.T) for columns in ordered if columns is not None]}
    for name, words in (("dangers", "planted dangers"), ("alarms", "clean twins")):
        twins = name == "alarms"
        planned = [both for both in zip(frozen.outcomes, today.outcomes) if (both[0].trial.kind == TWIN) == twins]
        valid = [both for both in planned if all(each.valid for each in both)]
        case = np.array([first.case for first, _ in valid], int)
        units = np.bincount(case, minlength=len(cases))
        lowered = ([both[side].change <= -LEAST for both in valid] for side in (0, 1))
        if valid:
            shares[name] = [divide(np.bincount(case, each, len(cases)), units) for each in lowered]
        if left := len(planned) - len(valid):
            notes.append(f"{left} of {len(planned)} {words} have no valid verdict of both: left out")
        if not planned:
            notes.append(f"no {words}: nothing is known of them")
    shares["valid"] = [side.valid for side in sides]
    if abstain_below is not None:
        sure = (np.nan_to_num(selective.gaps(panel, side.values), nan=-1.0) for side in sides)
        shares["abstained"] = [(gaps < abstain_below).astype(float) for gaps in sure]
    gap = np.abs(today.values - frozen.values) / frozen.judged.unit
    moved, units = (panel.per_case(each, "responses") for each in (gap > ALIKE, ~np.isnan(gap)))
    shares["changed"] = [divide(0 * moved, units), divide(moved, units)]
    return {name: (old, new) for name, (old, new) in shares.items()}, notes


def _decide(name: str, old: np.ndarray, new: np.ndarray, by: float) -> dict[str, Any]:
    """Return the difference of a figure with its bounds, and what it decides."""
    way = -1 if name == "alarms" else 1  # more false alarms are worse
    differences = new - old
    result = gate(way * differences[~np.isnan(differences)], by, 1.0)
    ends = (result.mean, *(result.low, result.high)[::way])
    mean, low, high = (None if end is None else way * end + 0.0 for end in ends)
    more = None if result.needed is None else result.needed - result.cases
    return {"difference": mean, "low": low, "high": high, "cases": result.cases, "status": result.status, "more": more}
