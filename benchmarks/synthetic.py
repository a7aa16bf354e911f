"""Synthetic cases and studies of any size, the same ones whenever they are made, and a judge with random weights."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from rows import ROOT

WORDS = [
    "water",
    "rest",
    "doctor",
    "fever",
    "pain",
    "rash",
    "tablet",
    "two",
    "days",
    "daily",
    "call",
    "if",
    "the",
]
MODELS = ("model-a", "model-b", "model-c")
PRAISE = (
    "accurate and clear",
    "correct, complete and safe",
    "vague and incomplete",
    "wrong and unsafe",
    "plain",
)
LEAN = (0.3, 0.0, -0.3)  # what the judge adds to the response shown first, second and third
BUILD = "import sys, pathlib; from doubles.tiny_model import build_tiny_model as b; b(pathlib.Path(sys.argv[1]))"


def build_model(folder: Path) -> Path:
    """Save a tiny judge with random weights, in a process of its own: this one loads no torch."""
    program = f"import sys; sys.path[:0] = [{str(ROOT / 'tests')!r}]; {BUILD}"
    subprocess.run([sys.executable, "-c", program, folder], check=True)
    return folder


def write_cases(file: Path, count: int) -> None:
    """Write cases of three short responses each."""
    rng = random.Random(0)
    with open(file, "w", encoding="utf-8") as stream:
        for number in range(count):
            texts = [" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) for _ in range(4)]
            responses = [
                {"model": f"model-{slot}", "text": text} for slot, text in enumerate(texts[1:])
            ]
            stream.write(
                json.dumps({"id": f"case-{number}", "question": texts[0], "responses": responses})
                + "\n"
            )


def write_study(folder: Path, cases: int, raters: int, orders: Sequence[Sequence[int]]) -> None:
    """Write cases.jsonl, ratings.jsonl and verdicts.jsonl with texts of a usual length: of every case three responses, one
    rating a rater, and one verdict an order.
    """
    rng, words = np.random.default_rng(0), np.array(WORDS)

    def text(length: int) -> str:
        return " ".join(words[rng.integers(0, len(words), length)]) + "."

    with ExitStack() as stack:
        names = ("cases", "ratings", "verdicts")
        files = (
            stack.enter_context(open(folder / f"{name}.jsonl", "w", encoding="utf-8"))
            for name in names
        )
        case_file, rating_file, verdict_file = files
        for number in range(cases):
            responses = [
                {"model": model, "text": text(int(rng.integers(20, 120)))} for model in MODELS
            ]
            case = {
                "id": f"case-{number}",
                "question": text(30),
                "reference": text(100),
                "topic": f"topic {number % 20}",
            }
            print(json.dumps(case | {"responses": responses}), file=case_file)
            quality = rng.normal(3, 1, 3)
            for rater in range(raters):
                for model, score in zip(
                    MODELS, np.clip(np.round(quality + rng.normal(0, 0.5, 3)), 1, 5)
                ):
                    rating = {"case_id": case["id"], "model": model, "annotator": f"rater-{rater}"}
                    print(
                        json.dumps(rating | {"criterion": "overall", "score": float(score)}),
                        file=rating_file,
                    )
            for order in orders:
                lean = np.zeros(3)
                lean[list(order)] = LEAN
                expected = np.clip(quality + lean + rng.normal(0, 0.5, 3), 1, 5)
                steps = [
                    f"Step {place + 2}: {PRAISE[rng.integers(5)]}; {text(18)}" for place in range(3)
                ]
                verdict = {
                    "case_id": case["id"],
                    "judge": "synthetic",
                    "rubric": "automedeval@1",
                    "order": order,
                }
                verdict |= {
                    "valid": True,
                    "scores": np.round(expected).astype(int).tolist(),
                    "models": MODELS,
                }
                verdict |= {"expected_scores": expected.round(6).tolist()}
                verdict["rationale"] = "\n".join(["Analyze:", f"Step 1: {text(10)}", *steps])
                print(json.dumps(verdict), file=verdict_file)
