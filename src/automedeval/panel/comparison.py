"""Compare what two judges, or one judge on two days, said of a panel; the decisions are those of `stats.gate`.

Every figure that decides is a share of the units of a case, and the mean over cases: of pairs that people put in an order, of
planted dangers, of their clean twins, of verdicts. So the differences of the cases are what the gate takes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from automedeval.audit.perturbations import TWIN, read_trial
from automedeval.audit.trials import ALIKE, LEAST, Outcome, outcome
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import (
    JudgeVerdicts,
    Row,
    expected_values,
    own_values,
    rows_of,
)
from automedeval.records import Case, Verdict
from automedeval.reports.text import number
from automedeval.stats import agreement, bootstrap, selective
from automedeval.stats.bootstrap import divide, estimate, plain
from automedeval.stats.gate import LOWER, NOT_LOWER, POWER, UNDECIDED, gate

FIGURES = {  # those that decide → what they are
    "agreement": "agreement with physicians",
    "dangers": "planted dangers found",
    "alarms": "false alarms on clean twins",
    "valid": "valid verdicts",
}
RESULTS = {NOT_LOWER: "the same", LOWER: "worse", UNDECIDED: "cannot be told"}


@dataclass(frozen=True)
class Reading:
    """What a judge said of the cases, `judged`, and what planted dangers and clean twins did to its scores, in one order."""

    judged: JudgeVerdicts
    outcomes: Sequence[Outcome]

    @classmethod
    def of(cls, judged: JudgeVerdicts, changed: Sequence[Case], after: Mapping[str, Verdict]) -> "Reading":
        """Compare the verdict on each changed case, by its id, with the one on the unchanged case in the same order."""
        before: dict[str, list[Verdict]] = defaultdict(list)
        for verdict in judged.verdicts:
            before[verdict.case_id].append(verdict)
        outcomes = []
        for case in changed:
            second, firsts = after[case.id], before[case.extra["audit"]["of"]]
            first = next((each for each in firsts if (each.order, each.run) == (second.order, second.run)), firsts[0])
            clean = judged.cases.records[judged.cases.index[first.case_id]]
            trial = read_trial(case, [Request(clean, first.order)], apart=False)
            known = trial.target in (expected_values(first) or own_values(first, judged.rubric))
            place = judged.cases.index[clean.id]
            outcomes.append(outcome(trial, first, second, judged) if known else Outcome(trial, place, False))
        return cls(judged, outcomes)

    @property
    def row(self) -> Row:
        (row,) = rows_of([self.judged])
        return row


def compare(
    cases: Cases, people: People, frozen: Reading, today: Reading, by: float, abstain_below: float | None = None
) -> dict[str, Any]:
    """Compare today's judge with the frozen one.

    It is worse if a figure is shown to be worse by more than `by`; the same if agreement with people is shown not to be, and no
    other figure is worse. A pair that has no valid verdict is not in people's order.

    Args:
        by: the share by which a figure may be worse.
        abstain_below: the mean gap of the scores of a case below which the judge abstains; None: it never does.

    Returns:
        "status" and "result"; "figures", those of `FIGURES` that there are units of, each with "frozen" and "today",
        "difference" between the one-sided bounds "low" and "high" at 95 %, "cases", "status", and "more", about how many more
        cases would decide; "changed", the share of changed scores, and "mean_change" in steps; "abstained" or None; "notes".
    """
    shares, notes = _shares(cases, people, frozen, today)
    tree: dict[str, Any] = {
        name: {
            side: bootstrap.ratio(np.nan_to_num(values), ~np.isnan(values))
            for side, values in zip(("frozen", "today"), sides)
        }
        for name, sides in shares.items()
    }
    tree |= _changes(cases, frozen, today)
    if abstain_below is not None:
        tree["abstained"] = {
            "frozen": _abstained(cases, frozen, abstain_below), "today": _abstained(cases, today, abstain_below)
        }  # fmt: skip
    estimated = plain(estimate(tree, len(cases)))
    figures = {name: estimated.pop(name) | _decide(name, *sides, by) for name, sides in shares.items()}
    statuses = {name: figure["status"] for name, figure in figures.items()}
    status = LOWER if LOWER in statuses.values() else statuses.get("agreement", UNDECIDED)
    return {
        "status": status,
        "result": RESULTS[status],
        "by": by,
        "cases": len(cases),
        "figures": figures,
        "abstained": None,
        **estimated,
        "notes": notes,
    }


def _shares(
    cases: Cases, people: People, frozen: Reading, today: Reading
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], list[str]]:
    """Return figure → the shares of the frozen and of today's judge, float [cases], NaN where a case has no unit; and notes."""
    sides, notes = (frozen, today), []
    relations = frozen.row.people_relations(people)
    ordered = [agreement.concordance(cases.panel, relations, side.row.finest).columns for side in sides]
    shares = {"agreement": [divide(*columns.T) for columns in ordered if columns is not None]}
    for name, words in (("dangers", "planted dangers"), ("alarms", "clean twins")):
        planned = [
            both for both in zip(frozen.outcomes, today.outcomes) if (both[0].trial.kind == TWIN) == (name == "alarms")
        ]
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
    shares["valid"] = [divide(side.judged.verdicts_valid, side.judged.verdicts_due) for side in sides]
    return {name: (old, new) for name, (old, new) in shares.items()}, notes


def _decide(name: str, old: np.ndarray, new: np.ndarray, by: float) -> dict[str, Any]:
    """Return the difference of a figure with its bounds, and what it decides."""
    way = -1 if name == "alarms" else 1  # more false alarms are worse
    differences = new - old
    result = gate(way * differences[~np.isnan(differences)], by, 1.0)
    mean, low, high = (
        None if end is None else way * end + 0.0 for end in (result.mean, *(result.low, result.high)[::way])
    )
    more = None if result.needed is None else result.needed - result.cases
    return {"difference": mean, "low": low, "high": high, "cases": result.cases, "status": result.status, "more": more}


def _changes(cases: Cases, frozen: Reading, today: Reading) -> dict[str, Any]:
    """Return the share of changed scores, and the mean change in steps of the frozen judge."""
    values = [
        np.full(cases.responses, np.nan) if (row := side.row).values is None else row.values for side in (frozen, today)
    ]
    gap = (values[1] - values[0]) / frozen.judged.unit
    both = ~np.isnan(gap)
    gap = np.where(both, gap, 0.0)
    change, moved, units = (cases.panel.per_case(each, "responses") for each in (gap, np.abs(gap) > ALIKE, both))
    return {
        "changed": bootstrap.ratio(moved, units, reason="no response has a score of both"),
        "mean_change": bootstrap.mean(change, units, int(both.sum()), "no response has a score of both"),
    }


def _abstained(cases: Cases, side: Reading, below: float) -> bootstrap.Statistic:
    values = side.row.values
    sure = np.zeros(len(cases)) if values is None else np.nan_to_num(selective.gaps(cases.panel, values), nan=-1.0)
    return bootstrap.ratio((sure < below).astype(float), np.ones(len(cases)))


def words(record: Mapping[str, Any]) -> list[str]:
    """Return the sentences of a comparison: what it decides, and each figure."""
    figures, by = record["figures"], record["by"]
    worse = [FIGURES[name] for name, figure in figures.items() if figure["status"] == LOWER]
    why = {
        NOT_LOWER: f"agreement with physicians is not lower by {by:g} or more, and no other figure is shown to be worse",
        LOWER: f"{' and '.join(worse)} {'is' if len(worse) == 1 else 'are'} worse by more than {by:g}",
        UNDECIDED: _undecided(figures["agreement"]),
    }
    lines = [f"{record['result']} (exit status {record['status']}): {why[record['status']]}"]
    for name, figure in figures.items():
        text = f"{FIGURES[name]}: {_pair(figure)}"
        if figure["low"] is not None:
            text += f", difference {figure['difference']:+.3f} [{figure['low']:+.3f}, {figure['high']:+.3f}]"
        more = f" (about {figure['more']:,} more)" if figure["more"] else ""
        lines.append(f"{text} on {figure['cases']} cases: {RESULTS[figure['status']]}{more}")
    if record["abstained"]:
        lines.append(f"abstained: {_pair(record['abstained'])}")
    changed, mean = record["changed"], record["mean_change"]
    if changed["value"] is None:
        return [*lines, f"changed scores: {changed['reason']}"]
    count = round(changed["value"] * changed["n"])
    return [*lines, f"changed scores: {count} of {changed['n']}, mean change {mean['value']:+.3f} steps"]


def _pair(figure: Mapping[str, Any]) -> str:
    return "{} today, {} frozen".format(*(number(figure[side]["value"]) for side in ("today", "frozen")))


def _undecided(figure: Mapping[str, Any]) -> str:
    """Say how many more cases would tell, if the difference is as estimated."""
    if figure["more"] is None:
        return "no number of rated cases would tell"
    return f"about {figure['more']:,} more rated cases would tell, with a power of {POWER:.0%}"
