"""Certify from which gap between a judge's scores on its order of responses can be relied on.

The confidence of the verdicts on a case is the mean gap between the judge's own scores of two responses, each the mean over the
valid verdicts. Nothing is learnt for it, so that the rated cases that a calibration learns from can test it
(automedeval.stats.selective has the exact statement and the method).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import RecordError, Verdict
from automedeval.stats import selective

DELTA = 0.1  # the allowed probability that a certificate is false


def certify_order(
    rated: VerdictTable, people: np.ndarray, others: VerdictTable, source: str, risk: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Certify a threshold of confidence on rated cases, for the verdicts on other cases.

    Args:
        rated: the judge's verdicts on a random draw of the cases.
        people: people's relations of the pairs of responses to these, float [pairs], NaN where there is none.
        others: the judge's verdicts on cases that people did not rate.
        source: which scores count, "scores" or "expected_scores".
        risk: the allowed share of wrong pairs, above 0 and below 1.

    Returns:
        What `selective.certify` returns, with the number of other `cases`, and of those `kept` and `without_a_gap`; and the
        confidence of each other case, by its id, where it has one.

    Raises:
        RecordError: no other case has two responses with scores.
    """
    gaps = dict(zip(others.cases.index, _gaps(others, source).tolist()))
    confidence = {case_id: gap for case_id, gap in gaps.items() if not np.isnan(gap)}
    if not confidence:
        raise RecordError("--risk: no verdict to calibrate scores two responses of a case, so that none has an order")
    panel = rated.cases.panel
    relations = np.where(rated.shown()[np.stack(panel.pairs)].all(axis=0), people, np.nan)
    case, rated_gaps = panel.case[panel.pairs[0]], _gaps(rated, source)
    ordered = ~np.isnan(relations) & (relations != 0) & ~np.isnan(rated_gaps[case])
    drawn = selective.drawn_pairs(panel, ordered, list(rated.cases.index))
    judged = panel.relations(_mean_scores(rated, source))
    wrong = judged[drawn] != relations[drawn]  # as a tie, or a missing score, is
    sequence = selective.thresholds(np.array(list(confidence.values())), len(drawn), risk, DELTA)
    certificate = selective.certify(rated_gaps[case[drawn]], wrong, sequence.tolist(), risk, DELTA)
    kept = sum(_is_kept(certificate, gap) for gap in confidence.values())
    return certificate | {"cases": len(gaps), "kept": kept, "without_a_gap": len(gaps) - len(confidence)}, confidence


def mark(verdict: Verdict, certificate: Mapping[str, Any], confidence: Mapping[str, float]) -> Verdict:
    """Return a verdict with its `confidence`, and whether it `abstains`; an invalid one, or one on no order, says neither."""
    extra = {name: value for name, value in verdict.extra.items() if name not in ("confidence", "abstains")}
    if verdict.valid and (gap := confidence.get(verdict.case_id)) is not None:
        extra |= {"confidence": gap, "abstains": not _is_kept(certificate, gap)}
    return replace(verdict, extra=extra)


def _is_kept(certificate: Mapping[str, Any], gap: float) -> bool:
    return certificate["threshold"] is not None and gap >= certificate["threshold"]


def _mean_scores(table: VerdictTable, source: str) -> np.ndarray:
    return table.scores if source == "scores" else table.expected


def _gaps(table: VerdictTable, source: str) -> np.ndarray:
    # Equal ones are equal, in whatever order their scores were summed.
    return np.round(selective.gaps(table.cases.panel, _mean_scores(table, source)), 9)
