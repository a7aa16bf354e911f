"""Audit a judge: measure how order, length, planted texts, repetition, harm and authorship change its scores.

The command `automedeval audit`, as a program of this checkout: `python recipes/audit.py --help`.
"""

from automedeval.cli.audit import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
