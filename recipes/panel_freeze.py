"""Freeze a panel: what physicians checked of a judge, so that `automedeval panel check` can tell later whether it is the same.

The command `automedeval panel freeze`, as a program of this checkout: `python recipes/panel_freeze.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.panel_freeze import main

if __name__ == "__main__":
    run(main)
