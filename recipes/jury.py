"""Combine the verdicts of several judges into those of a jury.

The command `automedeval jury`, as a program of this checkout: `python recipes/jury.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.jury import main

if __name__ == "__main__":
    run(main)
