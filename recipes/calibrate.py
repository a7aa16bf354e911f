"""Put a judge's verdicts on the scale that people rate on, learnt from a few rated cases.

The command `automedeval calibrate`, as a program of this checkout: `python recipes/calibrate.py --help`.
"""

from automedeval.cli import run
from automedeval.commands.calibrate import main

if __name__ == "__main__":
    run(main)
