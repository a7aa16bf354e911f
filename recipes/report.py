"""Compare candidates by judges' verdicts, and compare the verdicts with people's ratings.

The command `automedeval report`, as a program of this checkout: `python recipes/report.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.report import main

if __name__ == "__main__":
    run(main)
