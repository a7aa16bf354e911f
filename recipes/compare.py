"""Compare candidates by many verdicts and few ratings: the ratings of some cases correct the verdicts on all.

The command `automedeval compare`, as a program of this checkout: `python recipes/compare.py --help`.
"""

from automedeval.cli.compare import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
