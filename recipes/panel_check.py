"""Check a frozen panel: judge it again with today's judge, and tell whether that is worse than the one physicians checked.

The command `automedeval panel check`, as a program of this checkout: `python recipes/panel_check.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.panel_check import main

if __name__ == "__main__":
    run(main)
