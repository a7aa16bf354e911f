"""Measure what the statistics and the report of a large study cost, against limits and against the loop they replace.

    python benchmarks/meta_evaluation.py
    python benchmarks/meta_evaluation.py --cases 1000 --resamples 1000

Synthetic cases of three responses, a judge and three raters. Timed in this process: the bootstrap of the mean measures and
of the rank correlations; in a process of its own: the whole report by `recipes/report.py`. The peer is the bootstrap
as it is usually written: draw cases, gather their responses, compute the measure again, in a loop over resamples. The exit
status is 0 whether a limit is met or not.
"""

import argparse
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
from scipy.stats import spearmanr

from automedeval.reports.text import format_table
from automedeval.stats import agreement, bootstrap
from automedeval.stats.agreement import Panel

ROOT = Path(__file__).parents[1]


def synthetic(cases: int) -> tuple[Panel, np.ndarray, np.ndarray]:
    """Return a panel of cases of three responses, people's scores and a judge's expected scores."""
    rng = np.random.default_rng(0)
    quality = rng.normal(size=3 * cases)
    people = np.clip(np.round(3 + quality + rng.normal(0, 0.5, (3, 3 * cases))), 1, 5).mean(axis=0)
    return Panel.of_sizes([3] * cases), people, 3 + quality + rng.normal(size=3 * cases)


def looped(panel: Panel, people: np.ndarray, judge: np.ndarray, rank: bool, resamples: int) -> float:
    """Return the seconds a resample takes the usual way."""
    rng = np.random.default_rng(1)
    started = time.perf_counter()
    for _ in range(resamples):
        drawn = rng.integers(0, panel.cases, panel.cases)
        rows = (3 * drawn[:, None] + np.arange(3)).ravel()
        x, y = people[rows], judge[rows]
        if rank:
            spearmanr(x, y)
        else:
            for one, two in ((0, 1), (0, 2), (1, 2)):
                gaps = [np.sign(side[one::3] - side[two::3]) for side in (x, y)]
                np.mean(gaps[0] == gaps[1])
            np.corrcoef(x, y)
    return (time.perf_counter() - started) / resamples


def write_study(folder: Path, cases: int, people: np.ndarray, judge: np.ndarray) -> None:
    """Write cases, ratings and verdicts with texts of a usual length."""
    rng = np.random.default_rng(2)
    text = lambda length: " ".join(rng.choice(WORDS, length))  # noqa: E731
    with (
        open(folder / "cases.jsonl", "w", encoding="utf-8") as case_file,
        open(folder / "ratings.jsonl", "w", encoding="utf-8") as rating_file,
        open(folder / "verdicts.jsonl", "w", encoding="utf-8") as verdict_file,
    ):
        models = ["model-a", "model-b", "model-c"]
        for number in range(cases):
            responses = [{"model": model, "text": text(120)} for model in models]
            case = {
                "id": f"case-{number}",
                "question": text(30),
                "reference": text(100),
                "topic": f"topic {number % 20}",
            }
            print(json.dumps(case | {"responses": responses}), file=case_file)
            rows = slice(3 * number, 3 * number + 3)
            for rater in range(3):
                for model, score in zip(models, np.clip(np.round(people[rows] + rng.normal(0, 0.5, 3)), 1, 5)):
                    rating = {
                        "case_id": case["id"],
                        "model": model,
                        "annotator": f"rater-{rater}",
                        "criterion": "overall",
                    }
                    print(json.dumps(rating | {"score": float(score)}), file=rating_file)
            expected = np.clip(judge[rows], 1, 5)
            verdict = {"case_id": case["id"], "judge": "synthetic", "rubric": "automedeval@1", "order": [0, 1, 2]}
            verdict |= {"valid": True, "scores": np.round(expected).astype(int).tolist(), "rationale": text(150)}
            print(json.dumps(verdict | {"expected_scores": expected.tolist()}), file=verdict_file)


def main() -> None:
    """Time everything once and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    add_json(parser)
    args = parser.parse_args()
    results = Results("Statistics and report", args.json)
    panel, people, judge = synthetic(args.cases)
    relation, judged = panel.relations(people), panel.relations(judge)
    means = agreement.accuracies(panel, relation, judged) | agreement.correlations(panel, people, judge)
    ranks = {"spearman": means.pop("spearman")}
    rows = []
    for name, statistics, limit in (("mean measures", means, 10.0), ("rank correlation", ranks, 60.0)):
        started = time.perf_counter()
        bootstrap.bootstrap(list(statistics.values()), args.cases, args.resamples)
        seconds = time.perf_counter() - started
        peer = looped(panel, people, judge, name != "mean measures", 20) * args.resamples
        results.add(f"bootstrap of {len(statistics)} {name}", seconds, "s", most=limit)
        results.add(
            f"bootstrap of {len(statistics)} {name}", seconds, "s", "the usual loop over resamples", peer / seconds
        )
        rows.append(
            {"run": f"{len(statistics)} {name}", "seconds": seconds, "limit": limit, "met": "yes" if seconds < limit else "no",
             "the usual loop, s": peer, "ratio": peer / seconds}
        )  # fmt: skip
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_study(folder, args.cases, people, judge)
        command = [sys.executable, str(ROOT / "recipes" / "report.py"), "--verdicts", str(folder), "--cases"]
        command += [
            str(folder / "cases.jsonl"),
            "--ratings",
            str(folder / "ratings.jsonl"),
            "--output",
            str(folder / "out"),
            "--encoder",
            "none",  # an encoder's time is its own: benchmarks/knowledge.py measures it
        ]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        seconds = time.perf_counter() - started
        size = (folder / "out" / "report.html").stat().st_size / 1e6
    rows.append({"run": "the whole report", "seconds": seconds, "limit": 60.0, "met": "yes" if seconds < 60 else "no"})
    whole = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    results.add("the whole report", seconds, "s", most=60)
    results.add("peak memory of the bootstraps", memory, "GB", most=1)
    results.add("peak memory of the report", whole, "GB")
    results.add("size of the report", size, "MB", most=15)
    results.note(
        f"{args.cases:,} cases of three responses, {args.resamples:,} resamples; the report with its default of them."
    )
    results.note("The usual loop was timed over 20 resamples, with one accuracy and one correlation only.")
    print(f"{args.cases} cases of three responses, {args.resamples} resamples (the report: its default)")
    print(format_table(rows))
    print(
        f"peak memory: {memory:.2f} GB of the bootstraps (limit 1), {whole:.2f} GB of the report; HTML {size:.1f} MB (limit 15)"
    )
    results.write()


if __name__ == "__main__":
    main()
