"""Certify from which gap between a judge's scores on its order of responses can be relied on.

The confidence of the verdicts on a case is the mean gap between the judge's own scores of two responses, each the mean over the
valid verdicts. Nothing is learnt for it, so that the rated cases that a calibration learns from can test it
(automedeval.stats.selective has the exact statement and the method).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from automedeval.records import RecordError, Verdict
from automedeval.stats import selective
from automedeval.stats.agreement import Panel

DELTA = 0.1  # the allowed probability that a certificate is false

Place = tuple[str, int]  # a case's id, and the index of a response in the case


def certify_order(
    rated: Sequence[Verdict], people: Mapping[Place, float], others: Sequence[Verdict], source: str, risk: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Certify a threshold of confidence on rated cases, for the verdicts on other cases.

    Args:
        rated: the judge's verdicts on a random draw of the cases.
        people: people's scores of responses to these.
        others: the judge's verdicts on cases that people did not rate.
        source: which scores count, "scores" or "expected_scores".
        risk: the allowed share of wrong pairs, above 0 and below 1.

    Returns:
        What `selective.certify` returns, with the number of other `cases`, and of those `kept` and `without_a_gap`; and the
        confidence of each other case, by its id, where it has one.

    Raises:
        RecordError: no other case has two responses with scores.
    """
    ids, panel, _, scores = _mean_scores(others, source)
    gaps = dict(zip(ids, _gaps(panel, scores).tolist()))
    confidence = {case_id: gap for case_id, gap in gaps.items() if not np.isnan(gap)}
    if not confidence:
        raise RecordError("--risk: no verdict to calibrate scores two responses of a case, so that none has an order")
    ids, panel, places, scores = _mean_scores(rated, source)
    relations = panel.relations(np.array([people.get(place, np.nan) for place in places]))
    case, rated_gaps = panel.case[panel.pairs[0]], _gaps(panel, scores)
    ordered = ~np.isnan(relations) & (relations != 0) & ~np.isnan(rated_gaps[case])
    drawn = selective.drawn_pairs(panel, ordered, ids)
    wrong = panel.relations(scores)[drawn] != relations[drawn]  # a tie, or a response without a score, is wrong
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


def _gaps(panel: Panel, scores: np.ndarray) -> np.ndarray:
    return np.round(
        selective.gaps(panel, scores), 9
    )  # equal ones are equal, in whatever order their scores were summed


def _mean_scores(verdicts: Sequence[Verdict], source: str) -> tuple[list[str], Panel, list[Place], np.ndarray]:
    """Return the ids of the cases, ascending; their responses that were shown as a panel; and the place and mean score of each.

    The score is NaN where no valid verdict has one.
    """
    scores: dict[str, dict[int, list[float]]] = {}
    for verdict in verdicts:
        given = getattr(verdict, source) if verdict.valid else None
        for index in verdict.order:
            values = scores.setdefault(verdict.case_id, {}).setdefault(index, [])
            values += [] if given is None or given[index] is None else [given[index]]
    ids = sorted(scores)
    places = [(case_id, index) for case_id in ids for index in sorted(scores[case_id])]
    means = [fmean(values) if (values := scores[case_id][index]) else np.nan for case_id, index in places]
    return ids, Panel.of_sizes([len(scores[case_id]) for case_id in ids]), places, np.array(means, float)
