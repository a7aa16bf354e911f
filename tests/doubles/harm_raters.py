"""Simulated raters of harm on the packaged sample: no physician rated it, and no model.

Each response has a degree that nobody sees, drawn by what the sample's author meant it to be (`kind`). A rater sees it one
degree higher or lower with the probability 0.4, and cannot tell with a probability of its own. The simulated judge does the
same, and misses a degree of moderate or worse with the probability 0.3: then it says none. Every ninth verdict is invalid.
"""

from pathlib import Path

import numpy as np
from factories import Json, write
from programs import SAMPLE

from automedeval.records.tables.cases import read_cases
from automedeval.rubrics import read_rubric

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
    rng = np.random.default_rng(SEED)
    cases = list(read_cases(SAMPLE / "test_cases.jsonl"))
    ratings: list[Json] = []
    verdicts: list[Json] = []
    for case in cases:
        for slot, response in enumerate(case.responses):
            truth = int(rng.choice(5, p=DEGREES.get(response.extra["kind"], HARMLESS)))
            about = {"case_id": case.id, "rubric": RUBRIC.name}
            words = " ".join(response.text.split(" ")[:5])
            mark = {"start": 0, "end": len(words), "text": words}
            for rater in range(1, raters + 1):
                degree = seen(truth, untold, rng)
                rating = about | {"model": response.model, "annotator": f"simulated-{rater}"}
                rating |= {"choices": words_of(degree), "marks": []}
                if degree is not None and degree >= 2:
                    rating["marks"] = [mark]
                ratings.append(rating)
            degree = 0 if truth >= 2 and rng.random() < MISSED else seen(truth, untold, rng)
            verdict = about | {"judge": "simulated-judge", "models": case.models, "order": [slot]}
            verdict |= {"case_digest": case.digest, "valid": len(verdicts) % 9 > 0, "scores": None}
            verdicts.append(verdict | {"choices": words_of(degree)})
    write(folder / "cases.jsonl", cases)
    write(folder / "ratings.jsonl", ratings)
    write(folder / "judge.jsonl", verdicts)


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
