"""The server is killed while physicians save: what the page confirmed is there. Runs benchmarks/annotation_load.py itself."""

import re
import subprocess
import sys

import pytest
from programs import ROOT, succeeded

SCRIPT = ROOT / "benchmarks/annotation_load.py"


@pytest.mark.slow
def test_what_was_confirmed_survives_five_kills():
    command = [sys.executable, SCRIPT, *["--physicians", "6", "--kills", "5"]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    printed = succeeded(done).stdout
    for row in ("saves that are lost", "saves that are stored twice"):
        assert re.search(rf"(?m)^{row} +0 .* yes$", printed)
    told = (
        r"^(\d+) kills \(SIGKILL\) .*: (\d+) saves confirmed, (\d+) stored without a confirmation"
    )
    kills, confirmed, unconfirmed = map(int, re.search(told, printed, re.M).groups())
    assert kills == 5
    assert confirmed >= 5
    assert (
        unconfirmed <= 5 * 2 * 6
    )  # what was on its way: of each physician one form, at times sent twice
