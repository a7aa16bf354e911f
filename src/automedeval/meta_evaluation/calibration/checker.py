"""Certify from which probability on a checker calls a statement contradicted, on statements that nothing contradicts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np

from automedeval.evidence.chat_checker import RISK
from automedeval.evidence.checker import CONTRADICTED
from automedeval.evidence.run import evidence_of
from automedeval.evidence.statements import Statement, statements
from automedeval.records import Case, RecordError, patient_question, read_cases
from automedeval.stats.false_alarms import least_alarm_threshold

DELTA = 0.1  # the allowed probability that the certificate is false
ANSWERS = 0.02  # the largest share of clean answers with a statement that is called contradicted
THRESHOLDS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35)
SAMPLE = ("train_cases.jsonl", "test_cases.jsonl")
# Kinds of the sample's answers that say what the reference says.
RIGHT = ("complete_right", "terse_right", "clumsy_right")


def certified(
    scores: Sequence[np.ndarray], sequence: Sequence[float]
) -> tuple[float | None, list[dict[str, float]]]:
    """Return the lowest threshold with false alarms within `RISK` and `ANSWERS`, None if there is none, and what was tested.

    Args:
        scores: `alarm_scores`.
        sequence: thresholds, chosen without knowledge of `scores`.
    """
    _, tested = least_alarm_threshold(scores, sequence, RISK, DELTA)
    allowed = [
        line for line in tested if line["p"] <= DELTA and line["alarmed"] <= ANSWERS * len(scores)
    ]
    return allowed[-1]["threshold"] if allowed else None, tested


def alarm_scores(
    checker: Any, cases: Sequence[Case], texts: Sequence[Sequence[str]]
) -> list[np.ndarray]:
    """Return, of the statements on each case, the probability of a contradiction; 0 where a checker of threshold 0 sees none.

    RecordError: an endpoint did not answer.
    """
    answers = [
        (
            [Statement(text, 0, len(text)) for text in said],
            evidence_of(case, 0, "reference"),
            patient_question(case.question),
        )
        for case, said in zip(cases, texts)
    ]
    scores = []
    for findings in checker.check(answers):
        if findings is None:
            raise RecordError(
                f"{checker.name}: {checker.chat.failures[-1]}; the same command asks again"
            )
        # A contradiction without a probability is one at any threshold.
        chances = [1.0 if each.probability is None else each.probability for each in findings]
        scores.append(np.array(chances) * [each.label == CONTRADICTED for each in findings])
    return scores


def clean_statements() -> tuple[list[Case], list[list[str]]]:
    """Return the cases of the packaged sample and, of each, the statements of its first right answer."""
    folder = resources.files("automedeval") / "sample"
    cases = [case for name in SAMPLE for case in read_cases(str(folder / name), blank=None)]
    found = []
    for case in cases:
        right = next((each for each in case.responses if each.extra.get("kind") in RIGHT), None)
        found.append(
            [each.text for each in statements(right.text) if each.unread is None] if right else []
        )
    kept = [(case, said) for case, said in zip(cases, found) if said]
    return [case for case, _ in kept], [said for _, said in kept]


def certify_chat(
    checker: Any, progress: Callable[[Any], Any] = lambda cases: cases
) -> dict[str, Any]:
    """Return the certificate of a chat checker on the packaged sample; RecordError if it gives no probability.

    Args:
        checker: a `ChatChecker`.
        progress: wraps the cases, and shows how far it is.
    """
    cases, texts = clean_statements()
    open_ended = replace(checker, threshold=0.0)
    scores = [
        alarm_scores(open_ended, [case], [said])[0]
        for case, said in progress(list(zip(cases, texts)))
    ]
    if all(np.isin(each, (0, 1)).all() for each in scores):
        raise RecordError(
            f"{checker.name}: tells no probabilities, so that no threshold can be certified"
        )
    threshold, tested = certified(scores, THRESHOLDS)
    facts = {
        "checker": checker.name,
        "threshold": threshold,
        "risk": RISK,
        "delta": DELTA,
        "tested": tested,
    }
    return facts | {"cases": len(cases), "statements": sum(map(len, texts))}
