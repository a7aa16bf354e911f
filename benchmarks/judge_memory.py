"""Measure whether the memory of `recipes/judge.py` grows with the number of cases.

    python benchmarks/judge_memory.py
    python benchmarks/judge_memory.py --small 200 --large 2000 --repeats 1

A tiny model with random weights gives scores to a small and to a large file of synthetic cases, each in a process of its
own, and then once more, where everything is judged already and the program only has to find that out. Printed are the
peaks of resident memory, the model and its libraries included, and the growth from the small file to the large one. The
target is 1.05 in every repeat. The exit status is 0 whether it is met or not.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import Results, add_json

from automedeval.reports.text import format_table

ROOT = Path(__file__).parents[1]
TARGET = 1.05
WORDS = ["water", "rest", "doctor", "fever", "pain", "rash", "tablet", "two", "days", "daily", "call", "if", "the"]
RUNS = ("judge all", "judge again")  # in this order: the second finds what the first left
BUILD_MODEL = """
import sys, pathlib
sys.path.insert(0, sys.argv[1])
from doubles.tiny_model import build_tiny_model
build_tiny_model(pathlib.Path(sys.argv[2]))
"""


def write_cases(file: Path, count: int) -> None:
    """Write cases of three short responses each, the same ones whenever it is called."""
    rng = random.Random(0)
    with open(file, "w", encoding="utf-8") as stream:
        for number in range(count):
            texts = [" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) for _ in range(4)]
            responses = [{"model": f"model-{slot}", "text": text} for slot, text in enumerate(texts[1:])]
            stream.write(json.dumps({"id": f"case-{number}", "question": texts[0], "responses": responses}) + "\n")


def peak(command: list[str], log: Path) -> float:
    """Run a command to its end and return the most resident memory that it held, in MB.

    What a child inherits at its start counts too, so this program stays small: it loads no torch.
    """
    with open(log, "wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')}")
    return usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, kilobytes elsewhere


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=1000, help="cases of the small file (default: %(default)s)")
    parser.add_argument("--large", type=int, default=20000, help="cases of the large file (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="how often all of it runs (default: %(default)s)")
    add_json(parser)
    args = parser.parse_args()
    results = Results("Judging memory", args.json)
    peaks: dict[str, dict[int, list[float]]] = {name: {args.small: [], args.large: []} for name in RUNS}
    with tempfile.TemporaryDirectory() as folder:
        model, log = Path(folder, "model"), Path(folder, "log")
        subprocess.run([sys.executable, "-c", BUILD_MODEL, str(ROOT / "tests"), str(model)], check=True)
        for count in (args.small, args.large):
            cases = Path(folder, f"{count}.jsonl")
            write_cases(cases, count)
            recipe = [sys.executable, str(ROOT / "recipes" / "judge.py"), "--judge", str(model), "--cases", str(cases)]
            for turn in range(args.repeats):
                for name in RUNS:
                    output = str(Path(folder, f"verdicts-{count}-{turn}"))
                    peaks[name][count].append(peak([*recipe, "--rationale", "false", "--output", output], log))
    table = []
    for name, found in peaks.items():
        for turn, (small, large) in enumerate(zip(found[args.small], found[args.large]), 1):
            told = f"{name}, run {turn}: {args.large:,} cases, {large:.0f} MB"
            row = results.add(told, large / small, f"× {args.small:,} cases", most=TARGET)
            line = {"run": name, f"{args.small} cases, MB": f"{small:.1f}", f"{args.large} cases, MB": f"{large:.1f}"}
            line |= {"growth": f"{large / small:.3f}", "target": row["target"], "met": "yes" if row["met"] else "no"}
            table.append(line)
    print(format_table(table))
    print(f"peak resident memory of one process each; Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}")
    results.write()


if __name__ == "__main__":
    main()
