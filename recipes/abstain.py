"""Keep the verdicts that are certified to be reliable, and give the other cases to people.

The command `automedeval abstain`, as a program of this checkout: `python recipes/abstain.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.abstain import main

if __name__ == "__main__":
    run(main)
