"""Measure how long `recipes/judge.py` takes over a large file before its first verdict, and with how much memory.

    python benchmarks/judge_startup.py
    python benchmarks/judge_startup.py --cases 10000 1000000

A tiny model with random weights begins to judge files of synthetic cases, with scores alone; each run is killed at its first
verdict. Until then every case has been read, checked and planned, its prompt rendered and found to fit, and the model loaded.
Beside it stands the least that a reader of JSON Lines has to do: `json.loads` of each line.
"""

import json
import sys
import tempfile
from collections import deque
from pathlib import Path

from processes import first_verdict, recipe, timed
from rows import Results, arguments
from synthetic import build_model, write_cases

MANY = 1_000_000
MOST = 8  # times `json.loads`, of so many cases: of fewer, the imports are most


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--cases",
        type=int,
        nargs="+",
        default=[1000, MANY],
        help="sizes (1,000 and 1,000,000)",
    )
    parser.add_argument(
        "--judge", help="(default: a tiny checkpoint with random weights, made here)"
    )
    args = parser.parse_args()
    if not Path("/proc/self/status").exists():
        sys.exit(
            "the peak of a running process is read from /proc, which this system does not have"
        )
    results = Results("Seconds before the first verdict", args.json)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judge = args.judge or build_model(folder / "model")
        for count in args.cases:
            cases, output = folder / f"{count}.jsonl", folder / f"verdicts-{count}"
            write_cases(cases, count)
            command = recipe("judge", judge=judge, cases=cases, rationale="false", output=output)
            seconds, most = first_verdict(command, output / "verdicts.jsonl", folder / "log")
            with open(cases, "rb") as stream:
                parsed, _ = timed(lambda lines=stream: deque(map(json.loads, lines), 0))
            size = cases.stat().st_size / 1e6
            name = f"{count:,} cases, {size:.1f} MB: until the first verdict"
            least = 1 / MOST if count >= MANY else None
            results.add(
                name, seconds, "s", "json.loads of each line", parsed / seconds, least=least
            )
            results.add(f"{count:,} cases: peak of memory", most, "MB")
    results.show()
    results.write()


if __name__ == "__main__":
    main()
