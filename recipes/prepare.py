"""Turn public question-answer sets into cases; exclude rows by patterns and duplicate questions, and count them.

The command `automedeval prepare`, as a program of this checkout: `python recipes/prepare.py --help`.
"""

from automedeval.cli.prepare import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
