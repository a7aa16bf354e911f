"""Judge the responses of a file of cases: scores or choices for all answers and, by a judge that writes, a rationale.

The command `automedeval judge`, as a program of this checkout: `python recipes/judge.py --help`.
"""

from automedeval.cli.judge import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
