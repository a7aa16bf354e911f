"""Compare candidates by many verdicts and few ratings: the ratings of some cases correct the verdicts on all.

The command `automedeval compare`, as a program of this checkout: `python recipes/compare.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.compare import main

if __name__ == "__main__":
    run(main)
