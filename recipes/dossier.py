"""Make the dossier of a report, for an ethics board, or check that a pack is unchanged.

The command `automedeval dossier`, as a program of this checkout: `python recipes/dossier.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.dossier import main

if __name__ == "__main__":
    run(main)
