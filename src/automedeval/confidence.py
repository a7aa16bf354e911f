"""Confidence: how sure one judge's verdicts are, case by case, read from its files beside what people said.

A confidence comes from the verdicts alone and orders cases; it is no probability. What it is for is `abstention`'s.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automedeval import abstention
from automedeval.cases import Cases
from automedeval.evidence import read_verdicts
from automedeval.people import People
from automedeval.records import RecordError, Verdict, read_records
from automedeval.resampling import divide
from automedeval.rows import Row, rows_of
from automedeval.rubrics import read_rubric

MEASURES = {
    "gap": "how far apart the (expected) scores of two responses lie",
    "entropy": "how sure the judge is of its scores, by the probabilities that its verdicts record",
    "orders": "the share of pairs that are ordered alike in whatever order responses are shown",
    "judges": "how many of the other judges order a pair alike",
}


@dataclass
class Confidence:
    """How sure the verdicts of one judge are, and what they say.

    Args:
        judge, settings: its name in a report, and the fingerprint that all its verdicts record.
        values: float [cases], NaN where there is no valid verdict, or none that says it.
        relation: the judge's relations [pairs], NaN where there is none.
        people: people's relations of the pairs that the judge was asked about [pairs].
        verdicts: by case id, invalid ones too.
    """

    judge: str
    settings: str | None
    values: np.ndarray
    relation: np.ndarray
    people: np.ndarray
    verdicts: Mapping[str, Sequence[Verdict]]

    @classmethod
    def read(
        cls,
        places: Sequence[str],
        cases: Cases,
        people: People,
        measure: str = "gap",
        others: Sequence[str] = (),
        judge: str | None = None,
        rubric: str | None = None,
    ) -> "Confidence":
        """Read files of verdicts that share no case.

        Args:
            places: files, or folders that hold a verdicts.jsonl.
            measure: one of `MEASURES`; "judges" needs others, places like the first.
            judge: its name in a report, or its criterion's, where a file has several.
            rubric: the path of a user's own rubric.

        Raises:
            RecordError: several judges and none named, one judge with several settings, a case in two files, or not one
                verdict that says how sure it is; a fault of `read_verdicts`.
        """
        panel = cases.panel
        ids = [case.id for case in cases.records]
        peers = [row for place in others for row in rows_of(read_verdicts([place], cases, _own(rubric, place))[0])]
        values, relation = np.full(len(cases), np.nan), np.full(len(panel.pairs[0]), np.nan)
        said = panel.relations(people.scores)
        verdicts: dict[str, list[Verdict]] = {}
        alike: dict[str, set[str]] = defaultdict(set)
        for place in places:
            row = _chosen(rows_of(read_verdicts([place], cases, rubric)[0]), judge, place)
            own = _verdicts(row, cases)
            if twice := sorted(set(own) & set(verdicts)):
                raise RecordError(f"{place}: case {twice[0]!r} has verdicts in another of the files")
            verdicts |= own
            alike["judges"].add(row.name)
            alike["settings"].update(str(each.extra.get("settings")) for readings in own.values() for each in readings)
            alike["kinds of scores"].add("whole" if row.expected is None else "expected")
            here = np.isin(ids, list(own))
            pairs = here[panel.case[panel.pairs[0]]]
            relation[pairs] = row.finest(panel)[pairs]
            said[pairs] = row.known_relations(cases, people)[pairs]
            values[here] = _confidence(measure, row, cases, own, peers)[here]
        for what, found in alike.items():
            if len(found) > 1:
                raise RecordError(f"{', '.join(places)}: verdicts of several {what}: {', '.join(sorted(found))}")
        if np.isnan(values).all():
            raise RecordError(f"{', '.join(places)}: no verdict of {row.name} says how sure it is by {measure}")
        return cls(row.name, row.evidence.settings, values, relation, said, verdicts)


def _own(rubric: str | None, place: str) -> str | None:
    """Return a user's rubric where some verdicts of a file were given by it; other judges have other rubrics."""
    file = Path(place) / "verdicts.jsonl" if Path(place).is_dir() else Path(place)
    name = read_rubric(rubric).name if rubric else None
    return rubric if name and any(verdict.rubric == name for verdict in read_records(file, Verdict)) else None


def _chosen(rows: list[Row], judge: str | None, place: str) -> Row:
    found = [row for row in rows if judge is None or row.name == judge]
    if len(found) != 1:
        raise RecordError(
            f"{place}: verdicts of {', '.join(row.name for row in rows)}: choose one of them with --judge"
        )
    return found[0]


def _verdicts(row: Row, cases: Cases) -> dict[str, list[Verdict]]:
    evidence, found = row.evidence, defaultdict(list)
    for verdict in read_records(evidence.file, Verdict):
        if (verdict.judge, verdict.rubric) == (evidence.judge, evidence.rubric) and verdict.case_id in cases.index:
            found[verdict.case_id].append(verdict)
    return dict(found)


def _confidence(
    measure: str, row: Row, cases: Cases, verdicts: Mapping[str, Sequence[Verdict]], peers: Sequence[Row]
) -> np.ndarray:
    panel = cases.panel
    if measure == "gap":
        values = row.scores if row.expected is None else row.expected
        if values is None:
            raise RecordError(
                f"{row.name} gives no scores that could lie apart: orders or judges can tell how sure it is"
            )
        return abstention.gaps(panel, values)
    if measure == "judges":
        return abstention.supports(panel, row.finest(panel), [peer.finest(panel) for peer in peers])
    if measure == "orders":
        alike = row.evidence.consistent.get(row.criterion or "scores")
        return np.full(len(cases), np.nan) if alike is None else divide(*alike)
    found = np.full(len(cases), np.nan)
    for case_id, readings in verdicts.items():
        known = [abstention.certainty(each.extra.get("probabilities") or ()) for each in readings if each.valid]
        if known and None not in known:
            found[cases.index[case_id]] = np.mean(known)
    return found
