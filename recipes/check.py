"""Check the statements of answers: whether a reference, books, or the other answers contradict them.

The command `automedeval check`, as a program of this checkout: `python recipes/check.py --help`.
"""

from automedeval.cli.check import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
