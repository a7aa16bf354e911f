"""Made-up verdicts and labels on criteria: a judge that errs and sometimes cannot be read, and three physicians who err."""

import random
from pathlib import Path
from typing import Any

from doubles.agreement_study import case_of, write
from factories import Json

POINTS = (5, 3, -2)
CRITERIA = [
    {"criterion": f"criterion {n}", "points": POINTS[n], "tags": [f"theme:{n % 2}"]}
    for n in range(3)
]
ANNOTATORS = ("d1", "d2", "d3")


def label_of(case: dict, model: str, criterion: dict, annotator: str, label: str) -> Json:
    about = {"case_id": case["id"], "model": model, "criterion": criterion["criterion"]}
    return about | {"annotator": annotator, "label": label}


def verdict_by(case: dict, slot: int, met: list, chances: list, **more: Any) -> Json:
    """Return a verdict on which criteria one response of a case meets, and the chances of it."""
    record = {"case_id": case["id"], "judge": "j", "rubric": "checklist@1", "order": [slot]}
    record |= {"valid": True, "scores": None}
    return record | {"checklist": {"met": met, "met_probabilities": chances}} | more


def write_study(folder: Path, number_of_cases: int = 60) -> list[tuple]:
    """Write cases.jsonl, verdicts.jsonl and labels.jsonl on two candidates; return (met, P(met), votes) of every pair."""
    rng = random.Random(0)
    cases, verdicts, labels, rows = [], [], [], []
    for number in range(number_of_cases):
        answers = {model: f"{model} {number}" for model in "ab"}
        case = case_of(f"c{number}", "Q?", answers, criteria=CRITERIA)
        cases.append(case)
        for slot, model in enumerate("ab"):
            met = []
            chances = []
            for each in CRITERIA:
                truth = rng.random() < 0.4
                chance = min(max(0.6 * truth + 0.5 * rng.random(), 0), 1)
                unread = rng.random() < 0.1
                met.append(None if unread else chance > 0.5)
                chances.append(None if unread else chance)
                votes = [truth != (rng.random() < 0.2) for _ in ANNOTATORS]
                cast = votes[: 2 if number % 5 == 0 else 3]  # of two, which may differ
                for annotator, vote in zip(ANNOTATORS, cast):
                    word = "entailment" if vote else rng.choice(["neutral", "contradiction"])
                    labels.append(label_of(case, model, each, annotator, word))
                rows.append((met[-1], chances[-1], cast))
            verdicts.append(verdict_by(case, slot, met, chances))
    for name, records in (("cases", cases), ("verdicts", verdicts), ("labels", labels)):
        write(folder / f"{name}.jsonl", records)
    return rows
