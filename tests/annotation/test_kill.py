"""The server is killed while physicians save: what the page confirmed is there. Runs benchmarks/annotation_load.py itself."""

import json
import re
import runpy
import subprocess
import sys

import pytest
from doubles.study_page import opened, physician, write_study
from programs import ROOT, succeeded

SCRIPT = ROOT / "benchmarks" / "annotation_load.py"


@pytest.mark.slow
def test_what_was_confirmed_survives_five_kills():
    command = [sys.executable, SCRIPT, *["--physicians", "6", "--kills", "5"]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    printed = succeeded(done).stdout
    for row in ("saves that are lost", "saves that are stored twice"):
        assert re.search(rf"^{row} +0 .* yes$", printed, re.M)
    told = (
        r"^(\d+) kills \(SIGKILL\) .*: (\d+) saves confirmed, (\d+) stored without a confirmation"
    )
    kills, confirmed, unconfirmed = map(int, re.search(told, printed, re.M).groups())
    assert kills == 5
    assert confirmed >= 5
    assert (
        unconfirmed <= 5 * 2 * 6
    )  # what was on its way: of each physician one form, at times sent twice


def test_the_comparison_sees_what_is_lost_changed_or_there_twice(tmp_path, monkeypatch):
    """One answer, stored through the page, against what a client might remember."""
    monkeypatch.syspath_prepend(
        SCRIPT.parent
    )  # as where the script is run: it imports from its neighbours
    script = runpy.run_path(str(SCRIPT))
    study = write_study(tmp_path, kinds=("rate",), cases=1)
    with opened(study) as store:
        someone = physician(store, "physician-1")
        task, scores = int(someone.place().split("/")[2]), someone.fill(2)
        someone.post(someone.place(), **scores)
    (stored,) = script["stored"](study)
    sent = {"physician": "physician-1", "task": task, "part": "responses", "scores": scores}
    assert stored == json.loads(json.dumps(sent))
    compare = script["compare"]
    assert (compare([sent], [stored]), compare([sent], [])) == ((0, 0), (1, 0))
    assert compare([sent | {"scores": scores | {next(iter(scores)): "1"}}], [stored]) == (1, 0)
    assert compare([sent], [stored, stored]) == (0, 1)
    assert compare([], [stored]) == (0, 0)  # stored, and the confirmation did not arrive
