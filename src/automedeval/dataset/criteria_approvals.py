"""Put the drafted criteria that physicians approved into their cases, and say how far the physicians agree.

A criterion is approved if everybody who decided on it accepts the same words, with points of the same sign: two physicians at
least. Its points are their mean. A wording that only some of them chose is a draft for a second round.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from automedeval.records import Case, CaseCriterion, CriteriaDraft, CriterionApproval, RecordError, read_placed
from automedeval.records.types import APPROVAL, LARGEST
from automedeval.stats.bootstrap import estimate, mean
from automedeval.stats.interrater import krippendorff_alpha

NEEDED = 2  # physicians
FEW = "decided by fewer than two"


class Approved(NamedTuple):
    """What became of drafted criteria: the cases that have some, and the new wordings on which a next round has to decide."""

    cases: list[Case]
    wordings: list[CriteriaDraft]
    drafted: int
    left_out: Counter[str]  # why
    agreement: dict[str, Any]  # see `agreement_of`


def read_drafts(path: str, cases: Mapping[str, Case]) -> dict[str, list[dict[str, Any]]]:
    """Return case id → the drafted criteria of all drafters; drafts on other cases are left out.

    RecordError if a question or a trusted answer changed after the draft, or no criterion is left.
    """
    drafts: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for place, draft in read_placed(path, CriteriaDraft):
        if draft.criteria and draft.case_id in cases:
            draft.check(place, cases[draft.case_id].asked_digest)
            for each in draft.criteria:
                drafts[draft.case_id].setdefault(each["criterion"], each)
    if not drafts:
        raise RecordError(f"{path}: no criterion was drafted for these cases")
    return {name: list(of.values()) for name, of in drafts.items()}


def approve(cases: Sequence[Case], drafts: Mapping[str, Sequence[dict]], paths: Sequence[str]) -> Approved:
    """Return the cases with the criteria that physicians approved, beside those that they have.

    Args:
        drafts: see `read_drafts`.
        paths: files of approvals, of one round after another.

    Raises:
        RecordError: an approval of what was not drafted, or two of one physician on one criterion.
    """
    entries = {(name, each["criterion"]): each for name, of in drafts.items() for each in of}
    versions = {key: [key] for key in entries}  # of a text its draft, then that draft's new wordings
    decisions: dict[tuple[str, str], dict[str, CriterionApproval]] = defaultdict(dict)
    first = list(entries)  # (case id, text)
    for path in paths:
        for place, each in read_placed(path, CriterionApproval):
            key, new = (each.case_id, each.criterion), (each.case_id, each.text)
            if key not in entries:
                raise RecordError(
                    f"{place}: no criterion {each.criterion[:60]!r} was drafted for case {each.case_id!r}"
                )
            if decisions[key].setdefault(each.annotator, each) is not each:
                raise RecordError(f"{place}: {each.annotator!r} decided on this criterion before")
            if each.accepts and new not in entries:
                points = 1.0 if (each.points or 0) > 0 else -1.0
                entries[new] = {**entries[key], "criterion": each.text, "points": points}
                versions[new] = versions[key]
                versions[key].append(new)
    accepted = {case.id: {each.criterion: each for each in case.criteria} for case in cases}
    undecided: dict[str, list[dict[str, Any]]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for key in first:
        outcomes = {each: _outcome(list(decisions[each].values())) for each in versions[key] if decisions[each]}
        taken = [{**entries[each], **outcome} for each, outcome in outcomes.items() if isinstance(outcome, dict)]
        for entry in taken:
            accepted[key[0]].setdefault(entry["criterion"], CaseCriterion.from_dict(entry))
        if not taken:
            left_out[str([FEW, *outcomes.values()][-1])] += 1
            undecided[key[0]] += [entries[each] for each in versions[key] if each != key and each not in outcomes]
    counts = {"approved": len(first) - left_out.total(), "drafted": len(first)}
    kept = [
        replace(case, criteria=tuple(accepted[case.id].values()), extra={**case.extra, APPROVAL: counts})
        for case in cases
        if accepted[case.id]
    ]
    wordings = [
        CriteriaDraft(case.id, "physicians", tuple(undecided[case.id]), extra={"case_digest": case.asked_digest})
        for case in cases
        if undecided[case.id]
    ]
    agreement = agreement_of(each for of in decisions.values() for each in of.values())
    return Approved(kept, wordings, len(first), left_out, agreement)


def _outcome(decisions: Sequence[CriterionApproval]) -> dict[str, Any] | str:
    """Return the words and the points that are approved, or why none are."""
    accepts, texts = {each.accepts for each in decisions}, {each.text for each in decisions}
    points = [each.points for each in decisions if each.points is not None and each.accepts]
    if len(decisions) < NEEDED:
        return FEW
    if None in accepts:
        return "a physician cannot tell"
    if accepts == {False}:
        return "refused"
    if False in accepts or len({each > 0 for each in points}) > 1:
        return "physicians differ"
    return "changed by some" if len(texts) > 1 else {"criterion": texts.pop(), "points": sum(points) / len(points)}


def agreement_of(approvals: Iterable[CriterionApproval], resamples: int = 2000) -> dict[str, Any]:
    """Return how far physicians agree on drafted criteria, with intervals over cases.

    Returns:
        {"approval" (accepted or refused), "points" (of accepted ones): {measure: Estimate}}, of criteria of which two or more
        said it: the share on which all say the same, and Krippendorff's alpha, of points by their size: the draft fixes the
        sign, which would pass for agreement. No measure where one physician alone answered.
    """
    every = [each for each in approvals if each.accepts is not None]
    keys = sorted({(each.case_id, each.criterion) for each in every})
    names = sorted({each.annotator for each in every})
    ids, case = np.unique([name for name, _ in keys], return_inverse=True)
    tables = np.full((2, len(keys), len(names)), np.nan)
    places = {key: place for place, key in enumerate(keys)}
    for each in every:
        place = places[each.case_id, each.criterion], names.index(each.annotator)
        tables[0][place], tables[1][place] = float(bool(each.accepts)), each.points if each.accepts else np.nan
    tree: dict[str, Any] = {"approval": {}, "points": {}}
    for measures, table in zip(tree.values(), tables if len(names) > 1 else ()):
        shared = (~np.isnan(table)).sum(axis=1) > 1
        same = shared & (np.nanmax(table, axis=1, initial=-LARGEST) == np.nanmin(table, axis=1, initial=LARGEST))
        alike, both = (np.bincount(case[mask], minlength=len(ids)) for mask in (same, shared))
        measures["alike"] = mean(alike, both, int(shared.sum()))
        measures["alpha (ordinal)"] = krippendorff_alpha(np.abs(table), case, len(ids), "ordinal")
    return estimate(tree, len(ids), resamples) if keys else {}
