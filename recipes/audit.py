"""Audit a judge: measure how order, length, planted texts, repetition, harm and authorship change its scores.

The command `automedeval audit`, as a program of this checkout: `python recipes/audit.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.audit import main

if __name__ == "__main__":
    run(main)
