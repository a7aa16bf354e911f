"""Propose what a good answer to each question must say and must not say, for physicians to approve.

The command `automedeval draft-criteria`, as a program of this checkout: `python recipes/draft_criteria.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.draft_criteria import main

if __name__ == "__main__":
    run(main)
