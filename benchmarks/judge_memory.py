"""Measure whether the memory of `recipes/judge.py` grows with the number of cases.

    python benchmarks/judge_memory.py
    python benchmarks/judge_memory.py --small 200 --large 2000 --repeats 1

A tiny model with random weights gives scores to a small and to a large file of synthetic cases, each in a process of its
own, and then once more, where everything is judged already and the program only has to find that out. A row is the growth of
the peak of resident memory, libraries included, from the small file to the large one. The target is 1.05 in every repeat.
"""

import tempfile
from pathlib import Path

from processes import peak, recipe
from rows import Results, arguments
from synthetic import build_model, write_cases

TARGET = 1.05
RUNS = ("judge all", "judge again")  # in this order: the second finds what the first left


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--small", type=int, default=1000, help="cases of the small file (default: %(default)s)"
    )
    parser.add_argument(
        "--large", type=int, default=20000, help="cases of the large file (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="how often all of it runs (default: %(default)s)"
    )
    parser.add_argument(
        "--judge", help="(default: a tiny checkpoint with random weights, made here)"
    )
    args = parser.parse_args()
    results = Results("Judging memory", args.json)
    peaks: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judge = args.judge or build_model(folder / "model")
        for count in (args.small, args.large):
            write_cases(folder / "cases.jsonl", count)
            for turn in range(args.repeats):
                options = {"judge": judge, "cases": folder / "cases.jsonl", "rationale": "false"}
                command = recipe("judge", **options, output=folder / f"verdicts-{count}-{turn}")
                for run in RUNS:
                    peaks.setdefault((run, count), []).append(peak(command, folder / "log"))
    for run in RUNS:
        for turn, (small, large) in enumerate(
            zip(peaks[run, args.small], peaks[run, args.large]), 1
        ):
            told = f"{run}, run {turn}: {args.large:,} cases"
            unit = f"× {args.small:,} cases, {large:.0f} MB"
            results.add(told, large / small, unit, most=TARGET)
    results.show()
    results.write()


if __name__ == "__main__":
    main()
