"""Put a judge's verdicts on the scale that people rate on, learnt from a few rated cases.

The command `automedeval calibrate`, as a program of this checkout: `python recipes/calibrate.py --help`.
"""

from automedeval.cli.calibrate import main
from automedeval.records.command_line import run

if __name__ == "__main__":
    run(main)
