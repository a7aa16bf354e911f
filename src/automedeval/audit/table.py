"""Make the one table of an audit: of every perturbation its share, its shift, their limits, and the texts that failed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from automedeval.audit.outcomes import CriteriaReader, Measure, Outcome, ScoreReader, texts_of
from automedeval.audit.perturbations import READ, Perturbation
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.records import JsonObject
from automedeval.stats.bootstrap import (
    RESAMPLES,
    Statistic,
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
SECTIONS = ("kinds", "controls")  # groups of the trials of a perturbation


def table(
    perturbations: Sequence[Perturbation],
    outcomes: Sequence[Outcome],
    reader: ScoreReader | CriteriaReader,
    cases: Cases,
    seed: int,
    resamples: int = RESAMPLES,
) -> list[JsonObject]:
    """Return a row for each perturbation, for audit.json: intervals are over cases.

    Returns:
        "name", "what", "why", "changes", "should"; "limit" in words; "share", of what `what` names, "shift", the mean change of
        the score in steps, and "invalid", of what cannot be read after the change: estimates. The same by kind of edit under
        "kinds" and "controls". "outcome", and "texts" where it is "failed".

        With a limit on the shift and several kinds, "shift" is the largest of a kind that is more than chance, by p-values
        that are adjusted for their number (Holm), 0 if none is; "kind", "tried" (the number of tests) and "within", so many
        steps of 0 in which all their intervals lie (None: not each has one).
    """
    made = {
        each.name: [one for one in outcomes if one.trial.perturbation is each]
        for each in perturbations
    }
    measured = {each.name: reader.measure(each) for each in perturbations}
    tree = {
        each.name: _figures(each, made[each.name], measured[each.name], len(cases))
        for each in perturbations
    }
    estimates = estimate(tree, len(cases), resamples, seed)
    rows = []
    for each in perturbations:
        figures = estimates[each.name]
        if each.shift is not None and figures["kinds"]:
            adjust(list(figures["kinds"].values()), "shift", t_test)
            figures["shift"] = _beyond_chance(figures["kinds"])
        row = {
            key: getattr(each, key) for key in ("name", "what", "why", "changes", "should", "limit")
        }
        row |= plain(figures)
        row["outcome"] = decide(each, row)
        if row["outcome"] == FAILED:
            row["texts"] = list(_failing(each, row, made[each.name], measured[each.name], cases))
        rows.append(row)
    return rows


def passes(rows: Iterable[JsonObject]) -> bool | None:
    """Return whether no perturbation failed; None if none was measured, besides whether verdicts can be read."""
    outcomes = {row["outcome"] for row in rows if row["should"] != READ or row["outcome"] == FAILED}
    return False if FAILED in outcomes else True if PASSED in outcomes else None


def decide(perturbation: Perturbation, row: JsonObject) -> str | None:
    """Return whether a row keeps to the limits of its perturbation; None if there are none."""
    share, shift, found = row["share"]["value"], row["shift"]["value"], []
    if share is not None:
        found += [share >= perturbation.least] if perturbation.least is not None else []
        found += [share <= perturbation.most] if perturbation.most is not None else []
    if shift is not None and perturbation.shift is not None:
        found.append(abs(shift) <= perturbation.shift)
    if not perturbation.limit:
        return None
    return UNKNOWN if not found else PASSED if all(found) else FAILED


def _figures(
    perturbation: Perturbation, outcomes: Sequence[Outcome], measured: Measure | None, cases: int
) -> JsonObject:
    groups: dict[str, dict[str, list[Outcome]]] = {name: defaultdict(list) for name in SECTIONS}
    for each in outcomes:
        groups["controls" if each.trial.control else "kinds"][each.trial.kind].append(each)
    figures = _sums([each for each in outcomes if not each.trial.control], cases)
    if measured is not None:  # and there are no trials
        figures |= {"share": measured.share} | ({"shift": measured.shift} if measured.shift else {})
    return figures | {
        section: {name: _sums(those, cases) for name, those in sorted(by_name.items())}
        for section, by_name in groups.items()
    }


def _sums(outcomes: Sequence[Outcome], cases: int) -> dict[str, Statistic]:
    where = np.array([each.case for each in outcomes], int)

    def summed(values: Iterable[float]) -> np.ndarray:
        return np.bincount(where, np.array(list(values), float), minlength=cases)

    def share(part: str, whole: str) -> Statistic:
        hits, counted = (summed(getattr(each, name) for each in outcomes) for name in (part, whole))
        return ratio(hits, counted, reason=NOTHING)

    moved, shifts = (summed(of(each.shifts) for each in outcomes) for of in (sum, len))
    shift = mean(moved, shifts, round(shifts.sum()), NOTHING)
    return {"share": share("hits", "counted"), "shift": shift, "invalid": share("lost", "asked")}


def _beyond_chance(kinds: Mapping[str, JsonObject]) -> JsonObject:
    """Return the largest shift that is more than chance, of kinds with adjusted p-values; see `table`."""
    tested = {kind: each["shift"] for kind, each in kinds.items() if each["p"] is not None}
    ends = [
        abs(end) for each in tested.values() for end in (each.low, each.high) if end is not None
    ]
    largest: JsonObject = {
        "value": 0.0 if tested else None,
        "low": None,
        "high": None,
        "kind": None,
    }
    largest |= {"n": sum(each.n for each in tested.values()), "tried": len(tested)}
    largest |= {"within": max(ends) if len(ends) == 2 * len(tested) > 0 else None}
    if sure := [kind for kind in tested if kinds[kind]["p_adjusted"] < CHANCE]:
        kind = max(sure, key=lambda each: abs(tested[each].value))
        worst = tested[kind]
        low, high = (
            (worst.low, worst.high)
            if worst.value > 0 or worst.low is None
            else (-worst.high, -worst.low)
        )
        largest |= {"value": abs(worst.value), "low": low, "high": high, "n": worst.n, "kind": kind}
    return largest if tested else largest | {"reason": "no shift has an interval"}


def _failing(
    perturbation: Perturbation,
    row: JsonObject,
    made: Sequence[Outcome],
    measured: Measure | None,
    cases: Cases,
) -> Iterator[JsonObject]:
    """Yield the first `TEXTS` texts that a row counts against the judge; of a shift alone those that moved most."""
    if measured is not None:
        for response, how in measured.shown[: TEXTS + 1]:
            case, answer = cases.at(response)
            yield {"case_id": case.id, "model": answer.model, "change": how, "texts": [answer.text]}
        return
    tried = [each for each in made if not each.trial.control and each.counted]
    share, least = row["share"]["value"], perturbation.least
    few = share is not None and least is not None and share < least
    many = share is not None and perturbation.most is not None and share > perturbation.most
    wrong = [each for each in tried if (few and each.hits < each.counted) or (many and each.hits)]
    if not (few or many):
        moved = [
            each
            for each in tried
            if each.shifts and row["shift"].get("kind") in (None, each.trial.kind)
        ]
        wrong = sorted(moved, key=lambda each: -max(map(abs, each.shifts)))
    yield from map(texts_of, wrong[:TEXTS])
