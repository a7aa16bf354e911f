"""Made-up verdicts and labels on criteria: a judge that errs and sometimes cannot be read, and three physicians who err."""

import random
from pathlib import Path

from doubles.agreement_study import write

POINTS = (5, 3, -2)
CRITERIA = [
    {"criterion": f"criterion {n}", "points": POINTS[n], "tags": [f"theme:{n % 2}"]}
    for n in range(3)
]
ANNOTATORS = ("d1", "d2", "d3")


def write_study(folder: Path, number_of_cases: int = 60) -> list[tuple]:
    """Write cases.jsonl, verdicts.jsonl and labels.jsonl on two candidates; return (met, P(met), votes) of every pair."""
    rng = random.Random(0)
    cases, verdicts, labels, rows = [], [], [], []
    for number in range(number_of_cases):
        responses = [{"model": model, "text": f"{model} {number}"} for model in "ab"]
        cases.append(
            {"id": f"c{number}", "question": "Q?", "responses": responses, "criteria": CRITERIA}
        )
        for slot, model in enumerate("ab"):
            met, chances = [], []
            for each in CRITERIA:
                truth = rng.random() < 0.4
                chance = min(max(0.6 * truth + 0.5 * rng.random(), 0), 1)
                unread = rng.random() < 0.1
                met.append(None if unread else chance > 0.5)
                chances.append(None if unread else chance)
                votes = [truth != (rng.random() < 0.2) for _ in ANNOTATORS]
                cast = votes[: 2 if number % 5 == 0 else 3]  # of two, which may differ
                about = {"case_id": f"c{number}", "model": model, "criterion": each["criterion"]}
                for annotator, vote in zip(ANNOTATORS, cast):
                    word = "entailment" if vote else rng.choice(["neutral", "contradiction"])
                    labels.append(about | {"annotator": annotator, "label": word})
                rows.append((met[-1], chances[-1], cast))
            checklist = {
                "met": met,
                "met_probabilities": chances,
                "score": 0.0,
                "lowest": 0.0,
                "highest": 0.0,
            }
            base = {
                "case_id": f"c{number}",
                "judge": "j",
                "rubric": "checklist@1",
                "order": [slot],
                "valid": True,
            }
            verdicts.append(base | {"scores": None, "checklist": checklist})
    for name, records in (("cases", cases), ("verdicts", verdicts), ("labels", labels)):
        write(folder / f"{name}.jsonl", records)
    return rows
