"""Judge the responses of a file of cases: scores or choices for all answers and, by a judge that writes, a rationale.

The command `automedeval judge`, as a program of this checkout: `python recipes/judge.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.judge import main

if __name__ == "__main__":
    run(main)
