"""Read verdicts and labels on criteria as scores of responses, for a comparison of candidates by few labels.

A response counts as rated where each of its criteria has a strict majority of the physicians.
"""

from collections.abc import Sequence

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.criteria.checklists import Labels, majority_of
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import read_checklists
from automedeval.records import RecordError
from automedeval.stats.checklist import checklist_scores

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
    lowest = _scores(cases, (cases.points < 0).astype(float))
    if np.isnan(lowest).all():
        raise RecordError(f"{cases.source}: no case has a criterion with points above 0: there are no scores")
    return float(np.nanmin(lowest)), 1.0


def _scores(cases: Cases, met: np.ndarray) -> np.ndarray:
    return checklist_scores(cases.points, met, cases.response_of, cases.responses).score


def people_of(labels: Labels, cases: Cases) -> People:
    """Return physicians' labels as one score of each response all of whose criteria have a strict majority.

    Raises:
        RecordError: there is no such response.
    """
    majority = majority_of(labels)
    missing = np.bincount(cases.response_of, np.isnan(majority), minlength=cases.responses)
    scores = np.where(missing > 0, np.nan, _scores(cases, majority))
    if np.isnan(scores).all():
        raise RecordError("no response has a strict majority of labels on each of its criteria, and positive points")
    parts = int(((missing > 0) & (missing < np.diff(cases.first_item))).sum())
    notes = [f"{parts} responses have labels on some of their criteria alone, and count as not rated"] if parts else []
    return People([PHYSICIANS], {"criteria": scores[:, None]}, True, notes=notes)
