"""How unsure judges are of each case, from their verdicts alone: what decides which cases people rate next.

Nothing here looks at what people said: chances that depend on it could not be weighted with afterwards (see `sampling`).
"""

from collections.abc import Sequence

import numpy as np

from automedeval.cases import Cases
from automedeval.evidence import JudgeEvidence
from automedeval.records import Verdict, read_placed
from automedeval.rows import Row

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
