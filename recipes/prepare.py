"""Turn public question-answer sets into cases; exclude rows by patterns and duplicate questions, and count them.

The command `automedeval prepare`, as a program of this checkout: `python recipes/prepare.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.prepare import main

if __name__ == "__main__":
    run(main)
