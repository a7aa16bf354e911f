"""Keep the verdicts that are certified to be reliable, and give the other cases to people.

Confidence orders the verdicts of one judge; it is no probability. Of a judge with scores it is the mean gap between the
(expected) scores of two responses; of a judge that compares pairs, the share of pairs with the same choice in all orders.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import read_verdicts, rows_of
from automedeval.records import Case, RecordError, Verdict, digest
from automedeval.stats import selective
from automedeval.stats.bootstrap import divide, estimate, plain


@dataclass
class JudgedCases:
    """The verdicts of one judge, with their confidence and the relations by the judge and by people.

    Args:
        judge, settings: the judge's name in a report, and the settings fingerprint of all its verdicts.
        measure: what the confidence is: "gap" or "orders".
        confidence: float [cases], NaN where no valid verdict has a confidence.
        relation: the judge's relations [pairs], NaN where there is none.
        people: people's relations of the pairs that the judge was asked about [pairs].
        rated: bool [cases], whether people rated a case.
        verdicts: case id → its verdicts, invalid ones too.
    """

    judge: str
    settings: str | None
    measure: str
    confidence: np.ndarray
    relation: np.ndarray
    people: np.ndarray
    rated: np.ndarray
    verdicts: Mapping[str, Sequence[Verdict]]


def read_judged_cases(
    places: Sequence[str], cases: Cases, people: People, judge: str | None = None, rubric: str | None = None
) -> JudgedCases:
    """Read the verdicts of one judge from files, or folders that hold a verdicts.jsonl, that share no case.

    Args:
        judge: the judge's name in a report, or its criterion's, where a file has several.
        rubric: the path of a user's own rubric.

    Raises:
        RecordError: several judges and no name, one judge with several settings, a case in two files, no verdict with a
            confidence, or a fault of `read_verdicts`.
    """
    panel = cases.panel
    files = ", ".join(places)
    ids = [case.id for case in cases.records]
    confidence, relation = np.full(len(cases), np.nan), np.full(len(panel.pairs[0]), np.nan)
    by_people = panel.relations(people.scores)
    verdicts: dict[str, list[Verdict]] = {}
    alike: dict[str, set[str]] = defaultdict(set)
    for place in places:
        rows = rows_of(read_verdicts([place], cases, rubric, raw=True)[0])
        chosen = [row for row in rows if judge is None or row.name == judge]
        if len(chosen) != 1:
            names = ", ".join(row.name for row in rows)
            raise RecordError(f"{place}: verdicts of {names}: choose one with --judge")
        row, of_case = chosen[0], defaultdict(list)
        for verdict in row.judge.verdicts:
            of_case[verdict.case_id].append(verdict)
        if twice := sorted(set(of_case) & set(verdicts)):
            raise RecordError(f"{place}: case {twice[0]!r} has verdicts in another of the files")
        verdicts |= of_case
        alike["judges"].add(row.name)
        alike["settings"].update(str(verdict.settings) for verdict in row.judge.verdicts)
        alike["kinds of scores"].add("whole" if row.expected is None else "expected")
        here = np.isin(ids, list(of_case))
        pairs = here[panel.case[panel.pairs[0]]]
        relation[pairs] = row.finest[pairs]
        by_people[pairs] = row.people_relations(people)[pairs]
        if row.criterion is None and row.values is not None:
            confidence[here] = selective.gaps(panel, row.values)[here]
        elif row.consistent is not None:
            confidence[here] = divide(*row.consistent)[here]
    for what, names_of in alike.items():
        if len(names_of) > 1:
            raise RecordError(f"{files}: verdicts of several {what}: {', '.join(sorted(names_of))}")
    measure = "gap" if row.criterion is None else "orders"
    if np.isnan(confidence).all():
        lack = "two scores on a case" if measure == "gap" else "one pair judged in two orders"
        raise RecordError(f"{files}: no verdict of {row.name} has a confidence, which needs {lack}")
    rated = panel.per_case(~np.isnan(people.scores), "responses") > 0
    return JudgedCases(row.name, row.judge.settings, measure, confidence, relation, by_people, rated, verdicts)


def abstain(cases: Cases, judged: JudgedCases, risk: float, delta: float) -> tuple[np.ndarray, dict[str, Any]]:
    """Certify a threshold of confidence on the rated cases, and divide the fresh cases by it.

    Args:
        risk, delta: as for `selective.certify`.

    Returns:
        Whether the verdicts on each case are kept, bool [cases]; the content of abstention.json.

    Raises:
        RecordError: every case is rated, or no verdict on a fresh case has a confidence.
    """
    panel, fresh, sure = cases.panel, ~judged.rated, ~np.isnan(judged.confidence)
    if not fresh.any():
        raise RecordError(f"every case of {cases.source} is rated: no fresh case is left")
    if not (fresh & sure).any():
        raise RecordError(f"no verdict of {judged.judge} on a case without ratings has a confidence")
    ordered = ~np.isnan(judged.people) & (judged.people != 0) & (judged.rated & sure)[panel.case[panel.pairs[0]]]
    drawn = selective.drawn_pairs(panel, ordered, [case.id for case in cases.records])
    units = judged.confidence[panel.case[panel.pairs[0][drawn]]]
    sequence = selective.thresholds(judged.confidence[fresh & sure], len(drawn), risk, delta)
    wrong = judged.relation[drawn] != judged.people[drawn]
    certificate = selective.certify(units, wrong, sequence.tolist(), risk, delta)
    threshold = np.inf if certificate["threshold"] is None else certificate["threshold"]
    keep = fresh & sure & (judged.confidence >= threshold)
    curve = selective.risk_coverage(panel, judged.people, judged.relation, judged.confidence)
    record = {
        "judge": judged.judge,
        "settings": judged.settings,
        "confidence": judged.measure,
        **certificate,
        "rated": int(judged.rated.sum()),
        "fresh": int(fresh.sum()),
        "kept": int(keep.sum()),
        "queued": int((fresh & ~keep).sum()),
        "queued_without_a_confidence": int((fresh & ~sure).sum()),
        "coverage": float(keep.sum() / fresh.sum()),
        "rated_curve": plain(estimate(curve, len(cases))),
    }
    return keep, record


def certified_digest(cases: Iterable[Case], verdicts: Iterable[Verdict]) -> str:
    """Return twelve hexadecimal digits over the cases and the verdicts that a certificate covers, in whatever order they are.

    A certificate is of the kept verdicts together: it says nothing of some of them, or of others.
    """
    texts = sorted((case.id, case.digest) for case in cases)
    return digest([texts, sorted(json.dumps(verdict.to_dict(), sort_keys=True) for verdict in verdicts)])
