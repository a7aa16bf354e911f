"""A synthetic study of any size: cases of three responses, ratings, and verdicts with texts of a usual length."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from judge_memory import WORDS

MODELS = ("model-a", "model-b", "model-c")
PRAISE = ("accurate and clear", "correct, complete and safe", "vague and incomplete", "wrong and unsafe", "plain")
LEAN = (0.3, 0.0, -0.3)  # what the judge adds to the response shown first, second and third


def write_study(folder: Path, cases: int, raters: int, orders: Sequence[Sequence[int]]) -> None:
    """Write cases.jsonl, ratings.jsonl and verdicts.jsonl: of every case one rating a rater, and one verdict an order."""
    rng, words = np.random.default_rng(0), np.array(WORDS)

    def text(length: int) -> str:
        return " ".join(words[rng.integers(0, len(words), length)]) + "."

    with (
        open(folder / "cases.jsonl", "w", encoding="utf-8") as case_file,
        open(folder / "ratings.jsonl", "w", encoding="utf-8") as rating_file,
        open(folder / "verdicts.jsonl", "w", encoding="utf-8") as verdict_file,
    ):
        for number in range(cases):
            responses = [{"model": model, "text": text(int(rng.integers(20, 120)))} for model in MODELS]
            case = {
                "id": f"case-{number}",
                "question": text(30),
                "reference": text(100),
                "topic": f"topic {number % 20}",
            }
            print(json.dumps(case | {"responses": responses}), file=case_file)
            quality = rng.normal(3, 1, 3)
            for rater in range(raters):
                for model, score in zip(MODELS, np.clip(np.round(quality + rng.normal(0, 0.5, 3)), 1, 5)):
                    rating = {"case_id": case["id"], "model": model, "annotator": f"rater-{rater}"}
                    print(json.dumps(rating | {"criterion": "overall", "score": float(score)}), file=rating_file)
            for order in orders:
                lean = np.zeros(3)
                lean[list(order)] = LEAN
                expected = np.clip(quality + lean + rng.normal(0, 0.5, 3), 1, 5)
                steps = [f"Step {place + 2}: {PRAISE[rng.integers(5)]}; {text(18)}" for place in range(3)]
                verdict = {"case_id": case["id"], "judge": "synthetic", "rubric": "automedeval@1", "order": order}
                verdict |= {"valid": True, "scores": np.round(expected).astype(int).tolist(), "models": MODELS}
                verdict |= {"expected_scores": expected.round(6).tolist()}
                verdict["rationale"] = "\n".join(["Analyze:", f"Step 1: {text(10)}", *steps])
                print(json.dumps(verdict), file=verdict_file)
