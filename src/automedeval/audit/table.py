"""Make the one table of an audit: of every perturbation its share, its shift, their limits, and the texts that failed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from automedeval.audit.outcomes import CriteriaReader, Measure, Outcome, ScoreReader, texts_of
from automedeval.audit.perturbations import READ, Perturbation
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.records import JsonObject
from automedeval.stats.bootstrap import (
    RESAMPLES,
    adjust,
    estimate,
    mean,
    plain,
    ratio,
    t_test,
)

PASSED, FAILED, UNKNOWN = "passed", "failed", "not measured"
# Adjusted p below which a shift is more than chance: by all kinds together an equal judge has one this often.
CHANCE = 0.05
TEXTS = 5  # texts that are shown of a perturbation that failed
NOTHING = "no such change with valid verdicts"
COPIED = ("name", "what", "why", "changes", "should", "limit")  # of a perturbation into its row


def table(
    perturbations: Sequence[Perturbation],
    outcomes: Sequence[Outcome],
    reader: ScoreReader | CriteriaReader,
    cases: Cases,
    resamples: int = RESAMPLES,
) -> list[JsonObject]:
    """Return a row for each perturbation, for audit.json: intervals are over clusters of cases.

    Returns:
        "name", "what", "why", "changes", "should"; "limit" in words; "share", of what `what` names, "shift", the mean change of
        the score in steps, and "invalid", of what cannot be read after the change: estimates. The same by kind of edit under
        "kinds" and "controls". "outcome", and "texts" where it is "failed".

        With a limit on the shift and several kinds, "shift" is the largest of a kind that is more than chance, by p-values
        that are adjusted for their number (Holm), 0 if none is; "kind", "tried" (the number of tests) and "within", so many
        steps of 0 in which all their intervals lie (None: not each has one).
    """
    made = defaultdict[str, list[Outcome]](list)
    for outcome in outcomes:
        made[outcome.trial.perturbation.name].append(outcome)
    measured = {row.name: reader.measure(row) for row in perturbations}
    tree = {name: _figures(made[name], measured[name], cases) for name in measured}
    estimates = estimate(tree, cases.clusters, resamples)
    rows = []
    for perturbation in perturbations:
        name, figures = perturbation.name, estimates[perturbation.name]
        if perturbation.shift is not None and figures["kinds"]:
            adjust(list(figures["kinds"].values()), "shift", t_test)
            figures["shift"] = _beyond_chance(figures["kinds"])
        row = {key: getattr(perturbation, key) for key in COPIED} | plain(figures)
        row["outcome"] = decide(perturbation, row)
        if row["outcome"] == FAILED:
            at_fault = _failing(perturbation, row, made[name])
            row["texts"] = [texts_of(outcome) for outcome in at_fault[:TEXTS]]
            if measure := measured[name]:
                row["texts"] = _texts_shown(measure, cases)
        rows.append(row)
    return rows


def passes(rows: Iterable[JsonObject]) -> bool | None:
    """Return whether no perturbation failed; None if none was measured, besides whether verdicts can be read."""
    outcomes = {row["outcome"] for row in rows if row["should"] != READ or row["outcome"] == FAILED}
    return False if FAILED in outcomes else True if PASSED in outcomes else None


def decide(perturbation: Perturbation, row: JsonObject) -> str | None:
    """Return whether a row keeps to the limits of its perturbation; None if there are none."""
    if not perturbation.limit:
        return None
    kept = _kept(perturbation, row)
    if not kept:
        return UNKNOWN
    return PASSED if all(kept.values()) else FAILED


def _kept(perturbation: Perturbation, row: JsonObject) -> dict[str, bool]:
    """Return which limit is kept, of those whose figure is known."""
    least, most, limit = perturbation.least, perturbation.most, perturbation.shift
    share, shift = row["share"]["value"], row["shift"]["value"]
    kept = {}
    if share is not None and least is not None:
        kept["least"] = share >= least
    if share is not None and most is not None:
        kept["most"] = share <= most
    if shift is not None and limit is not None:
        kept["shift"] = abs(shift) <= limit
    return kept


def _figures(outcomes: Sequence[Outcome], measured: Measure | None, cases: Cases) -> JsonObject:
    """Return the figures of a perturbation, of all trials that are no controls and by section and kind."""
    changes = [outcome for outcome in outcomes if not outcome.trial.control]
    controls = [outcome for outcome in outcomes if outcome.trial.control]
    figures = _sums(changes, cases)
    if measured is not None:  # and there are no trials
        figures["share"] = measured.share
        figures["shift"] = measured.shift or figures["shift"]
    figures["kinds"] = _by_kind(changes, cases)
    figures["controls"] = _by_kind(controls, cases)
    return figures


def _by_kind(outcomes: Sequence[Outcome], cases: Cases) -> JsonObject:
    kinds = defaultdict[str, list[Outcome]](list)
    for outcome in outcomes:
        kinds[outcome.trial.kind].append(outcome)
    return {kind: _sums(of_kind, cases) for kind, of_kind in sorted(kinds.items())}


def _sums(outcomes: Sequence[Outcome], cases: Cases) -> JsonObject:
    """Return the share of what counts, the mean shift, and the share of what is no longer read."""
    sums = np.zeros((6, len(cases)))
    for outcome in outcomes:
        counts = (outcome.hits, outcome.counted, outcome.lost, outcome.asked)
        case = cases.index[outcome.trial.clean.case.id]
        sums[:, case] += *counts, sum(outcome.shifts), len(outcome.shifts)
    hits, counted, lost, asked, moved, shifts = sums
    return {
        "share": ratio(hits, counted, NOTHING),
        "shift": mean(moved, shifts, NOTHING),
        "invalid": ratio(lost, asked, NOTHING),
    }


def _beyond_chance(kinds: dict[str, JsonObject]) -> JsonObject:
    """Return the largest shift that is more than chance, of kinds with adjusted p-values; see `table`."""
    tested = {kind: figures["shift"] for kind, figures in kinds.items() if figures["p"] is not None}
    largest: JsonObject = {
        **dict.fromkeys(("value", "low", "high", "kind", "within")),
        "n": sum(shift.n for shift in tested.values()),
        "tried": len(tested),
    }
    if not tested:
        return largest | {"reason": "no shift has an interval"}
    ends = [*(shift.low for shift in tested.values()), *(shift.high for shift in tested.values())]
    largest |= {"value": 0.0, "within": None if None in ends else max(map(abs, ends))}
    sure = [kind for kind in tested if kinds[kind]["p_adjusted"] < CHANCE]
    if not sure:
        return largest
    kind = max(sure, key=lambda kind: abs(tested[kind].value))
    worst = tested[kind]
    return largest | {
        "value": worst.value,
        "low": worst.low,
        "high": worst.high,
        "n": worst.n,
        "kind": kind,
    }


def _failing(
    perturbation: Perturbation, row: JsonObject, outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """Return the outcomes that a row counts against the judge; of a shift alone those that moved most come first."""
    tried = [outcome for outcome in outcomes if not outcome.trial.control and outcome.counted]
    kept = _kept(perturbation, row)
    if not kept.get("least", True):
        return [outcome for outcome in tried if outcome.hits < outcome.counted]
    if not kept.get("most", True):
        return [outcome for outcome in tried if outcome.hits]
    kind = row["shift"].get("kind")
    moved = [outcome for outcome in tried if outcome.shifts and kind in (None, outcome.trial.kind)]
    return sorted(moved, key=lambda outcome: -max(map(abs, outcome.shifts)))


def _texts_shown(measured: Measure, cases: Cases) -> list[JsonObject]:
    """Return the first texts that show what was measured on the unchanged cases."""
    texts = []
    for response in measured.turned[: TEXTS + 1]:
        case, answer = cases.at(response)
        shown = {
            "case_id": case.id,
            "model": answer.model,
            "texts": [answer.text],
            "change": "ahead in one order, not in another",
        }
        texts.append(shown)
    return texts
