"""Measure what the audit of a large file of recorded verdicts costs, against a limit.

    python benchmarks/audit.py
    python benchmarks/audit.py --cases 500

Synthetic cases of three responses by three models, people's ratings, and a judge that read every case in all six orders and
wrote a stepwise rationale each time. Timed is the recipe in a process of its own, from reading the files to the report. The
exit status is 0 whether the limit is met or not.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from judge_memory import WORDS
from rows import Results, add_json

from automedeval.reports.text import format_table

ROOT = Path(__file__).parents[1]
LIMIT = 60.0  # seconds, for 10,000 cases
PRAISE = ("accurate and clear", "correct, complete and safe", "vague and incomplete", "wrong and unsafe", "plain")
MODELS = ("model-a", "model-b", "model-c")


def write_study(folder: Path, cases: int) -> None:
    """Write cases, ratings, and six verdicts a case: 50 words a response, 70 a rationale."""
    rng = np.random.default_rng(0)
    words = np.array(WORDS)

    def text(length: int) -> str:
        return " ".join(words[rng.integers(0, len(words), length)]) + "."

    with (
        open(folder / "cases.jsonl", "w", encoding="utf-8") as case_file,
        open(folder / "ratings.jsonl", "w", encoding="utf-8") as rating_file,
        open(folder / "verdicts.jsonl", "w", encoding="utf-8") as verdict_file,
    ):
        for number in range(cases):
            responses = [{"model": model, "text": text(int(rng.integers(20, 80)))} for model in MODELS]
            case = {"id": f"case-{number}", "question": text(20), "responses": responses}
            print(json.dumps(case), file=case_file)
            quality = rng.normal(3, 1, 3)
            for model, score in zip(MODELS, np.clip(np.round(quality), 1, 5)):
                rating = {"case_id": case["id"], "model": model, "annotator": "rater", "criterion": "overall"}
                print(json.dumps(rating | {"score": float(score)}), file=rating_file)
            for order in itertools.permutations(range(3)):
                lean = np.zeros(3)
                lean[list(order)] = (0.3, 0.0, -0.3)
                expected = np.clip(quality + lean + rng.normal(0, 0.5, 3), 1, 5)
                steps = [f"Step {place + 2}: {PRAISE[rng.integers(5)]}; {text(18)}" for place in range(3)]
                verdict = {"case_id": case["id"], "judge": "synthetic", "rubric": "automedeval@1", "order": order}
                verdict |= {"valid": True, "scores": np.round(expected).astype(int).tolist(), "models": MODELS}
                verdict |= {"expected_scores": expected.round(6).tolist()}
                verdict["rationale"] = "\n".join(["Analyze:", f"Step 1: {text(10)}", *steps])
                print(json.dumps(verdict), file=verdict_file)


def main() -> None:
    """Time the recipe once and print one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    add_json(parser)
    args = parser.parse_args()
    results = Results("Audit", args.json)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_study(folder, args.cases)
        command = [sys.executable, str(ROOT / "recipes" / "audit.py"), "--gate", "false"]
        for name, file in (("verdicts", "verdicts.jsonl"), ("cases", "cases.jsonl"), ("ratings", "ratings.jsonl")):
            command += [f"--{name}", str(folder / file)]
        started = time.perf_counter()
        subprocess.run([*command, "--output", str(folder / "out")], check=True, capture_output=True, cwd=ROOT)
        seconds = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = results.add("audit of recorded verdicts", seconds, "s", most=LIMIT)
    results.add("peak memory", usage.ru_maxrss / 1e6, "GB")
    results.note(f"{args.cases:,} cases of three responses in six orders: {6 * args.cases:,} verdicts with rationales.")
    row = {
        "run": "audit of recorded verdicts",
        "seconds": seconds,
        "of the processor": usage.ru_utime + usage.ru_stime,
        "limit": LIMIT,
        "met": "yes" if found["met"] else "no",
        "GB": usage.ru_maxrss / 1e6,
    }
    print(f"{args.cases} cases of three responses in six orders: {6 * args.cases} verdicts with rationales")
    print(format_table([row]))
    results.write()


if __name__ == "__main__":
    main()
