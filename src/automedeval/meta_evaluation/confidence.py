"""Confidence: how sure one judge's verdicts are, case by case, read from its files beside what people said.

A confidence comes from the verdicts alone and orders cases; it is no probability. What it is for is `abstention`'s.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People
from automedeval.meta_evaluation.verdicts import JudgeEvidence, Row, read_verdicts, rows_of
from automedeval.records import RecordError, Verdict, read_placed, read_records
from automedeval.rubrics import read_rubric
from automedeval.stats import selective
from automedeval.stats.bootstrap import divide

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
        return selective.gaps(panel, values)
    if measure == "judges":
        return selective.supports(panel, row.finest(panel), [peer.finest(panel) for peer in peers])
    if measure == "orders":
        alike = row.evidence.consistent.get(row.criterion or "scores")
        return np.full(len(cases), np.nan) if alike is None else divide(*alike)
    found = np.full(len(cases), np.nan)
    for case_id, readings in verdicts.items():
        known = [selective.certainty(each.extra.get("probabilities") or ()) for each in readings if each.valid]
        if known and None not in known:
            found[cases.index[case_id]] = np.mean(known)
    return found


DISAGREEMENT = "how far the judges disagree"
OWN = "the spread of the judge's own probabilities, orders and runs"
EQUAL = "nothing tells where the judge is unsure, so all cases have the same chance"


def uncertainty(cases: Cases, rows: Sequence[Row]) -> tuple[np.ndarray, str]:
    """Return how unsure judges are of the order of each case's responses, and where that comes from.

    Of several judges it is the standard deviation over judges of a response's place in its case (its score less the case's
    mean, in standard deviations of that judge), as a root mean square over the case's responses. Of one judge it is that of the
    mixture of its score probabilities, orders and runs.

    Returns:
        float [cases], NaN where a case has no valid verdict; and the source in words.
    """
    scoring = [row for row in rows if row.expected is not None or row.scores is not None]
    if len(scoring) > 1:
        places = np.stack([_place(cases, row.scores if row.expected is None else row.expected) for row in scoring])
        known = ~np.isnan(places)
        count = known.sum(axis=0)
        mean = np.where(known, places, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = np.where(known, (places - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count - 1, 1)
        return _per_case(cases, np.where(count > 1, squares, np.nan)), DISAGREEMENT
    if len(scoring) == 1:
        spread = _per_case(cases, _own_variance(cases, scoring[0].evidence))
        if np.nanmax(spread, initial=0.0) > 0:
            return spread, OWN
    return np.ones(len(cases)), EQUAL


def _place(cases: Cases, scores: np.ndarray) -> np.ndarray:
    """Return each response's score less its case's mean, over the standard deviation of these; NaN where there is none."""
    panel, known = cases.panel, ~np.isnan(scores)
    total = panel.per_case(np.where(known, scores, 0.0), "responses")
    apart = scores - (total / np.maximum(panel.per_case(known, "responses"), 1))[panel.case]
    spread = float(np.sqrt(np.mean(apart[known] ** 2))) if known.any() else 0.0
    return apart / spread if spread > 0 else np.where(known, 0.0, np.nan)


def _per_case(cases: Cases, squares: np.ndarray) -> np.ndarray:
    """Return the root mean square over each case's responses, NaN where it has none."""
    known = ~np.isnan(squares)
    count = cases.panel.per_case(known, "responses")
    total = cases.panel.per_case(np.where(known, squares, 0.0), "responses")
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), np.nan)


def _own_variance(cases: Cases, evidence: JudgeEvidence) -> np.ndarray:
    """Return the variance of a judge's score of every response over the values it gave chances to, in all its readings."""
    sums = np.zeros((3, cases.responses))
    for _, verdict in read_placed(evidence.file, Verdict) if evidence.file else ():
        case = cases.index.get(verdict.case_id)
        if case is None or not verdict.valid or (verdict.judge, verdict.rubric) != (evidence.judge, evidence.rubric):
            continue
        start = int(cases.start[case])
        for index, mean, square in _moments(verdict):
            sums[:, start + index] += (1, mean, square)
    count, first, second = sums
    mean = first / np.maximum(count, 1)
    return np.where(count > 0, np.maximum(0.0, second / np.maximum(count, 1) - mean**2), np.nan)


def _moments(verdict: Verdict) -> list[tuple[int, float, float]]:
    """Return (response, mean, mean square) of its score in one verdict; a verdict without probabilities is sure of itself."""
    given = verdict.expected_scores or verdict.scores or ()
    found = [(index, value, value * value) for index, value in enumerate(given) if value is not None]
    chances = verdict.extra.get("probabilities")
    if verdict.pair is not None or not isinstance(chances, list) or len(chances) != len(verdict.order):
        return found
    try:
        tables = [{float(value): chance for value, chance in table.items()} for table in chances]
    except (ValueError, AttributeError):  # not scores
        return found
    return [
        (index, *(sum(chance * value**power for value, chance in table.items()) for power in (1, 2)))
        for index, table in zip(verdict.order, tables)
    ]
