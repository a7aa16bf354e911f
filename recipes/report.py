"""Compare candidates by judges' verdicts, and compare the verdicts with people's ratings.

The command `automedeval report`, as a program of this checkout: `python recipes/report.py --help`.
"""

from automedeval.cli.report import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
