"""Simulate raters of harm on the packaged sample, to see what the report says: no physician rated it, and no model.

    python benchmarks/harm.py --output harm
    automedeval report --verdicts harm/judge.jsonl --harm_ratings harm/ratings.jsonl --cases harm/cases.jsonl \\
        --output harm/report

Each response has a degree that nobody sees, drawn by what the sample's author meant it to be (`kind`). A rater sees it one
degree higher or lower with the probability --apart, and cannot tell with the probability --untold. The simulated judge does the
same, and misses a degree of moderate or worse with the probability --missed: then it says none. All depends on --seed alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import automedeval
from automedeval.records import Case, read_cases
from automedeval.rubrics import read_rubric

SAMPLE = Path(automedeval.__file__).parent / "sample" / "test_cases.jsonl"
DEGREES = {  # kind of a response → probability of each degree
    "dangerous_error": [0.0, 0.1, 0.3, 0.4, 0.2],
    "fluent_wrong": [0.2, 0.4, 0.3, 0.1, 0.0],
    "off_topic": [0.5, 0.3, 0.2, 0.0, 0.0],
    "evasive": [0.5, 0.3, 0.2, 0.0, 0.0],
}
HARMLESS = [0.85, 0.15, 0.0, 0.0, 0.0]


def main() -> None:
    """Write the cases, the simulated ratings and the verdicts of the simulated judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="folder for cases.jsonl, ratings.jsonl and judge.jsonl")
    parser.add_argument("--raters", type=int, default=2)
    parser.add_argument("--apart", type=float, default=0.4, help="probability that a rater is one degree off")
    parser.add_argument("--untold", type=float, default=0.05, help="probability that a rater cannot tell")
    parser.add_argument("--missed", type=float, default=0.3, help="probability that the judge misses a harm")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder, rng = Path(args.output), np.random.default_rng(args.seed)
    folder.mkdir(parents=True, exist_ok=True)
    cases = list(read_cases(str(SAMPLE)))
    files: dict[str, list[dict[str, Any]]] = {"cases": [case.to_dict() for case in cases], "ratings": [], "judge": []}
    for case in cases:
        for slot, response in enumerate(case.responses):
            truth = int(rng.choice(5, p=DEGREES.get(response.extra["kind"], HARMLESS)))
            for rater in range(1, args.raters + 1):
                files["ratings"].append(rated(case, slot, f"simulated-{rater}", seen(truth, args, rng)))
            missed = truth >= 2 and rng.random() < args.missed
            files["judge"].append(judged(case, slot, 0 if missed else seen(truth, args, rng)))
    for name, records in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    print(f"simulated, seed {args.seed}: {len(files['ratings'])} ratings, {len(files['judge'])} verdicts in {folder}")


def seen(truth: int, args: argparse.Namespace, rng: np.random.Generator) -> int | None:
    """Return the degree that a rater sees, None if they cannot tell."""
    if rng.random() < args.untold:
        return None
    return int(np.clip(truth + (rng.choice([-1, 1]) if rng.random() < args.apart else 0), 0, 4))


def words_of(degree: int | None) -> dict[str, str]:
    """Return the words of an answer by the rubric for a degree."""
    rubric = read_rubric("harm")
    if degree is None:
        return {criterion.name: criterion.neutral for criterion in rubric.criteria}
    degrees, likelihoods, causes = (list(criterion.values) for criterion in rubric.criteria)
    return {"degree": degrees[degree], "likelihood": likelihoods[min(degree, 3)], "cause": causes[min(degree, 1)]}


def first_words(text: str) -> dict[str, Any]:
    """Return the first five words of a response as a mark."""
    words = " ".join(text.split(" ")[:5])
    return {"start": 0, "end": len(words), "text": words}


def rated(case: Case, slot: int, annotator: str, degree: int | None) -> dict[str, Any]:
    response = case.responses[slot]
    marks = [first_words(response.text)] if degree and degree >= 2 else []
    about = {"case_id": case.id, "model": response.model, "annotator": annotator, "rubric": "harm@1"}
    return about | {"choices": words_of(degree), "marks": marks}


def judged(case: Case, slot: int, degree: int | None) -> dict[str, Any]:
    about = {"case_id": case.id, "judge": "simulated-judge", "rubric": "harm@1", "order": [slot], "valid": True}
    return about | {"choices": words_of(degree), "models": case.models, "case_digest": case.digest, "scores": None}


if __name__ == "__main__":
    main()
