"""Read verdicts and labels on criteria as scores of responses, for a comparison of candidates by few labels.

A response counts as rated where each of its criteria has a strict majority of the physicians.
"""

from collections.abc import Sequence

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.criteria.checklists import Labels
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import read_checklists
from automedeval.records import RecordError
from automedeval.stats.checklist import checklist_score

PHYSICIANS = "majority of the physicians"
RULE = (
    "scores are shares of the positive points, and means are not clipped (HealthBench clips a mean to [0, 1]: so can you, with "
    "both ends of its interval)"
)


def read_criteria_scores(files: Sequence[str], cases: Cases) -> tuple[list[VerdictTable], list[str]]:
    """Read the verdicts of judges of criteria as verdicts with scores; return them, and notes.

    Raises:
        RecordError: a fault of `read_checklists`, or no response has positive points.
    """
    judges, notes = read_checklists(files, cases)
    scale = _scale(cases)
    for judge in judges:
        judge.scale = scale
    return judges, [RULE, *notes]


def _scale(cases: Cases) -> tuple[float, float]:
    """Return the lowest score that a response of these cases can have, and 1."""
    lowest = []
    for case in cases.records:
        points = np.array([each.points for each in case.criteria], float)
        if possible := points.clip(0).sum():
            lowest.append(float(-(-points).clip(0).sum() / possible))
    if not lowest:
        raise RecordError(f"{cases.source}: no case has a criterion with points above 0: there are no scores")
    return min(lowest), 1.0


def people_of(labels: Labels, cases: Cases) -> People:
    """Return physicians' labels as one score of each response all of whose criteria have a strict majority.

    Raises:
        RecordError: there is no such response.
    """
    met_of: dict[tuple[int, int], dict[int, float]] = {}
    for (number, slot, criterion), met in zip(labels.pairs, labels.majority()):
        if not np.isnan(met):
            met_of.setdefault((number, slot), {})[criterion] = met
    scores, parts = np.full(cases.responses, np.nan), 0
    for (number, slot), met in met_of.items():
        case = cases.records[number]
        if len(met) < len(case.criteria):
            parts += 1
            continue
        points = [each.points for each in case.criteria]
        score = checklist_score(points, [bool(met[place]) for place in range(len(points))]).score
        scores[cases.start[number] + slot] = np.nan if score is None else score
    if np.isnan(scores).all():
        raise RecordError("no response has a strict majority of labels on each of its criteria, and positive points")
    notes = [f"{parts} responses have labels on some of their criteria alone, and count as not rated"] if parts else []
    return People([PHYSICIANS], {"criteria": scores[:, None]}, True, notes=notes)
