"""Measure what the audit of a large file of recorded verdicts costs, against a limit.

    python benchmarks/audit.py
    python benchmarks/audit.py --cases 500

Synthetic cases of three responses by three models, people's ratings, and a judge that read every case in all six orders and
wrote a stepwise rationale each time. Timed is the recipe in a process of its own, from reading the files to the report. The
exit status is 0 whether the limit is met or not.
"""

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from judge_memory import peak
from rows import Results, add_json
from synthetic import write_study

ROOT = Path(__file__).parents[1]
LIMIT = 60.0  # seconds, for 10,000 cases


def main() -> None:
    """Audit once, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    add_json(parser)
    args = parser.parse_args()
    results = Results("Audit", args.json)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_study(folder, args.cases, 1, list(itertools.permutations(range(3))))
        command = [
            sys.executable,
            str(ROOT / "recipes" / "audit.py"),
            "--gate",
            "false",
            "--output",
            str(folder / "out"),
        ]
        for name in ("verdicts", "cases", "ratings"):
            command += [f"--{name}", str(folder / f"{name}.jsonl")]
        started = time.perf_counter()
        memory = peak(command, folder / "log")
        results.add("audit of recorded verdicts", time.perf_counter() - started, "s", most=LIMIT)
    results.add("peak memory", memory / 1e3, "GB")
    results.note(f"{args.cases:,} cases of three responses in six orders: {6 * args.cases:,} verdicts with rationales.")
    results.show()
    results.write()


if __name__ == "__main__":
    main()
