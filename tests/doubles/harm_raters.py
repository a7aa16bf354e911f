"""Simulated raters of harm on the packaged sample: no physician rated it, and no model.

Each response has a degree that nobody sees, drawn by what the sample's author meant it to be (`kind`). A rater sees it one
degree higher or lower with the probability 0.4, and cannot tell with a probability of its own. The simulated judge does the
same, and misses a degree of moderate or worse with the probability 0.3: then it says none.
"""

from pathlib import Path
from typing import Any

import numpy as np
from doubles.agreement_study import write

import automedeval
from automedeval.records.cases import read_cases
from automedeval.rubrics import read_rubric

SAMPLE = Path(automedeval.__file__).parent / "sample" / "test_cases.jsonl"
DEGREES = {  # kind of a response → probability of each degree
    "dangerous_error": [0.0, 0.1, 0.3, 0.4, 0.2],
    "fluent_wrong": [0.2, 0.4, 0.3, 0.1, 0.0],
    "off_topic": [0.5, 0.3, 0.2, 0.0, 0.0],
    "evasive": [0.5, 0.3, 0.2, 0.0, 0.0],
}
HARMLESS = [0.85, 0.15, 0.0, 0.0, 0.0]
APART, MISSED, SEED = 0.4, 0.3, 0
RUBRIC = read_rubric("harm")


def write_study(folder: Path, raters: int, untold: float) -> None:
    """Write cases.jsonl, the simulated ratings.jsonl and the verdicts of the simulated judge as judge.jsonl."""
    rng, cases = np.random.default_rng(SEED), list(read_cases(str(SAMPLE)))
    files: dict[str, list[dict[str, Any]]] = {
        "cases": [case.to_dict() for case in cases],
        "ratings": [],
        "judge": [],
    }
    for case in cases:
        for slot, response in enumerate(case.responses):
            truth = int(rng.choice(5, p=DEGREES.get(response.extra["kind"], HARMLESS)))
            about = {"case_id": case.id, "rubric": RUBRIC.name}
            for rater in range(1, raters + 1):
                degree = seen(truth, untold, rng)
                words = " ".join(response.text.split(" ")[:5])
                mark = {"start": 0, "end": len(words), "text": words}
                who = {"model": response.model, "annotator": f"simulated-{rater}"}
                rating = (
                    about
                    | who
                    | {"choices": words_of(degree), "marks": [mark] if (degree or 0) >= 2 else []}
                )
                files["ratings"].append(rating)
            degree = 0 if truth >= 2 and rng.random() < MISSED else seen(truth, untold, rng)
            shown = {
                "models": case.models,
                "case_digest": case.digest,
                "order": [slot],
                "valid": True,
                "scores": None,
            }
            files["judge"].append(
                about | shown | {"judge": "simulated-judge", "choices": words_of(degree)}
            )
    for name, records in files.items():
        write(folder / f"{name}.jsonl", records)


def seen(truth: int, untold: float, rng: np.random.Generator) -> int | None:
    """Return the degree that a rater sees, None if they cannot tell."""
    if rng.random() < untold:
        return None
    return int(np.clip(truth + (rng.choice([-1, 1]) if rng.random() < APART else 0), 0, 4))


def words_of(degree: int | None) -> dict[str, str]:
    """Return the words of an answer by the rubric for a degree."""
    if degree is None:
        return {criterion.name: criterion.neutral for criterion in RUBRIC.criteria}
    worst = {"degree": 4, "likelihood": 3, "cause": 1}
    return {name: RUBRIC.criterion(name).words[min(degree, index)] for name, index in worst.items()}
