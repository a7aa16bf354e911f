"""Measure how long a program waits before it can work: the package's import, and a recipe's help.

    python benchmarks/startup.py

Each command runs in fresh processes, in turn with the others, after one round that nobody counts; the medians are printed
beside those of an empty program and of `import trl`. Prints whether the targets are met; the exit status is 0 either way.
"""

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rows import Results, add_json

from automedeval.reports.text import format_table

RECIPE = Path(__file__).parents[1] / "recipes" / "judge.py"
COMMANDS = {  # what is shown: (arguments of python, most seconds it should take)
    "python -c pass": (["-c", "pass"], None),
    'python -c "import trl"': (["-c", "import trl"], None),
    'python -c "import automedeval"': (["-c", "import automedeval"], 0.3),
    "python recipes/judge.py --help": ([str(RECIPE), "--help"], 2.5),
}


def seconds(arguments: list[str]) -> float:
    """Return how long a fresh python takes from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="fresh processes per command (default: %(default)s)")
    add_json(parser)
    args = parser.parse_args()
    results = Results("Start-up time", args.json)
    commands = dict(COMMANDS)
    if importlib.util.find_spec("trl") is None:
        del commands['python -c "import trl"']
        print("trl is not installed; it is left out")
    rounds = [{name: seconds(arguments) for name, (arguments, _) in commands.items()} for _ in range(args.repeats + 1)]
    medians = {name: statistics.median(times[name] for times in rounds[1:]) for name in commands}
    rows = []
    for name, (_, target) in commands.items():
        row = {"command": name, "seconds": f"{medians[name]:.3f}"}
        found = results.add(name, medians[name], "s", most=target)
        for peer, label in (("python -c pass", "× empty"), ('python -c "import trl"', "× trl")):
            if peer in medians:
                row[label] = medians[name] / medians[peer]
        if target:
            row |= {"target": found["target"], "met": "yes" if found["met"] else "no"}
        rows.append(row)
    print(format_table(rows))
    print(f"medians of {args.repeats} fresh processes; Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}")
    results.note(f"Medians of {args.repeats} new processes.")
    results.write()


if __name__ == "__main__":
    main()
