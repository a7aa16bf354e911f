"""Measure how certain judges are of their verdicts, case by case.

`Confidence` orders the verdicts of one judge, for abstention; it is no probability. `uncertainty` is for choosing the cases
that people rate next.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, Row, read_judges, read_verdicts, rows_of
from automedeval.records import Case, RecordError, Verdict, digest
from automedeval.stats import selective
from automedeval.stats.bootstrap import divide

MEASURES = {
    "gap": "the mean gap between the (expected) scores of two responses",
    "entropy": "the certainty of the score probabilities that the verdicts record",
    "orders": "the share of pairs with the same relation in all orders in which the responses are shown",
    "judges": "the share of other judges with the same relation of a pair",
}


@dataclass
class Confidence:
    """The confidence of one judge's verdicts, with the judge's and people's relations.

    Args:
        judge, settings: the judge's name in a report, and the settings fingerprint of all its verdicts.
        values: float [cases], NaN where no valid verdict has a confidence.
        relation: the judge's relations [pairs], NaN where there is none.
        people: people's relations of the pairs that the judge was asked about [pairs].
        verdicts: case id → its verdicts, invalid ones too.
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
        """Read the verdicts of one judge from files, or folders that hold a verdicts.jsonl, that share no case.

        Args:
            measure: one of `MEASURES`; "judges" needs `others`, the files of other judges.
            judge: the judge's name in a report, or its criterion's, where a file has several.
            rubric: the path of a user's own rubric.

        Raises:
            RecordError: several judges and no name, one judge with several settings, a case in two files, no verdict with a
                confidence, or a fault of `read_verdicts`.
        """
        panel = cases.panel
        files = ", ".join(places)
        ids = [case.id for case in cases.records]
        peers = rows_of([peer for place in others for peer in read_judges(place, cases, rubric, [])])
        values, relation = np.full(len(cases), np.nan), np.full(len(panel.pairs[0]), np.nan)
        rated = panel.relations(people.scores)
        verdicts: dict[str, list[Verdict]] = {}
        alike: dict[str, set[str]] = defaultdict(set)
        for place in places:
            rows = rows_of(read_verdicts([place], cases, rubric, raw=True)[0])
            chosen = [row for row in rows if judge is None or row.name == judge]
            if len(chosen) != 1:
                names = ", ".join(row.name for row in rows)
                raise RecordError(f"{place}: verdicts of {names}: choose one with --judge")
            row, own = chosen[0], defaultdict(list)
            for verdict in row.judge.verdicts:
                own[verdict.case_id].append(verdict)
            if twice := sorted(set(own) & set(verdicts)):
                raise RecordError(f"{place}: case {twice[0]!r} has verdicts in another of the files")
            verdicts |= own
            alike["judges"].add(row.name)
            alike["settings"].update(str(verdict.settings) for verdict in row.judge.verdicts)
            alike["kinds of scores"].add("whole" if row.expected is None else "expected")
            here = np.isin(ids, list(own))
            pairs = here[panel.case[panel.pairs[0]]]
            relation[pairs] = row.finest[pairs]
            rated[pairs] = row.people_relations(people)[pairs]
            values[here] = _confidence(measure, row, peers)[here]
        for what, found in alike.items():
            if len(found) > 1:
                raise RecordError(f"{files}: verdicts of several {what}: {', '.join(sorted(found))}")
        if np.isnan(values).all():
            raise RecordError(f"{files}: no verdict of {row.name} has a confidence by {measure}")
        return cls(row.name, row.judge.settings, values, relation, rated, verdicts)


def _confidence(measure: str, row: Row, peers: Sequence[Row]) -> np.ndarray:
    """Return the confidence of each case, float [cases]."""
    judge, panel = row.judge, row.judge.cases.panel
    if measure == "gap":
        if row.values is None:
            raise RecordError(f"{row.name} gives no scores to take a gap of: use orders or judges")
        return selective.gaps(panel, row.values)
    if measure == "judges":
        return selective.supports(panel, row.finest, [peer.finest for peer in peers])
    if measure == "orders":
        return np.full(panel.cases, np.nan) if row.consistent is None else divide(*row.consistent)
    known = [
        selective.certainty(each.extra.get("probabilities") or ()) if each.valid else 0.0 for each in judge.verdicts
    ]
    total = np.bincount(judge.case_of, np.array(known, float), panel.cases)
    return divide(total, judge.verdicts_valid)  # NaN where a valid verdict has no probabilities


def certified_digest(cases: Iterable[Case], verdicts: Iterable[Verdict]) -> str:
    """Return twelve hexadecimal digits over the cases and the verdicts that a certificate covers, in whatever order they are.

    A certificate is of the kept verdicts together: it says nothing of some of them, or of others.
    """
    texts = sorted((case.id, case.digest) for case in cases)
    return digest([texts, sorted(json.dumps(verdict.to_dict(), sort_keys=True) for verdict in verdicts)])


DISAGREEMENT = "how far the judges disagree"
OWN = "the spread of the judge's own probabilities, orders and runs"
EQUAL = "no verdict shows any uncertainty, so all cases have the same chance"


def uncertainty(cases: Cases, rows: Sequence[Row]) -> tuple[np.ndarray, str]:
    """Return how uncertain judges are of the order of each case's responses.

    It is a standard deviation of a response's score, as a root mean square over the case's responses: over several judges, by
    the score less its case's mean in standard deviations of the judge; of one judge, over its score probabilities, orders and
    runs.

    Returns:
        float [cases], NaN where a case has no valid verdict; and the source of the uncertainty in words.
    """
    scoring = [(row.judge, row.values) for row in rows if row.values is not None]
    if len(scoring) > 1:
        places = np.stack([_place(cases, values) for _, values in scoring])
        known = ~np.isnan(places)
        count = known.sum(axis=0)
        mean = np.where(known, places, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = np.where(known, (places - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count - 1, 1)
        return _per_case(cases, np.where(count > 1, squares, np.nan)), DISAGREEMENT
    if len(scoring) == 1:
        spread = _per_case(cases, _own_variance(scoring[0][0]))
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
    return np.sqrt(divide(cases.panel.per_case(np.where(known, squares, 0.0), "responses"), count))


def _own_variance(judge: JudgeVerdicts) -> np.ndarray:
    """Return the variance of every response's score over the probabilities of all verdicts on it: float [responses]."""
    first = np.where(np.isnan(judge.expected_score), judge.score, judge.expected_score)
    second = first**2  # a verdict without probabilities has no variance of its own
    for verdict, entries in zip(judge.verdicts, judge.entries):
        chances = verdict.extra.get("probabilities") if verdict.valid else None
        if verdict.pair is not None or not isinstance(chances, list) or len(chances) != len(verdict.order):
            continue
        try:
            tables = [{float(value): chance for value, chance in table.items()} for table in chances]
        except (ValueError, AttributeError):  # not scores
            continue
        for index, table in zip(verdict.order, tables):
            entry = entries.start + sorted(verdict.order).index(index)
            first[entry], second[entry] = (
                sum(chance * value**power for value, chance in table.items()) for power in (1, 2)
            )
    return np.maximum(0.0, judge.per_response(second) - judge.per_response(first) ** 2)
