"""Serve the physicians' page: rate responses and verdicts, verify, decide as the jury, compare (paper, sections 3.1, 3.3, 4.2).

The command `automedeval annotate`, as a program of this checkout: `python recipes/annotate.py --help`.
"""

from automedeval.cli.annotate import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
