"""A judge behind a real vLLM gives the verdicts of the same weights in this process.

vLLM is installed once, into an environment in the user's cache (3.4 GB). AUTOMEDEVAL_VLLM names the Python of another one, or
is `none`, which skips the test.
"""

import json
import os
import subprocess
import sys

import pytest
from programs import JUDGE, ROOT, needs_judge

LIMITS = ("--install_limit", "600", "--limit", "1200")  # seconds, for a machine where it hangs


@needs_judge
@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("AUTOMEDEVAL_VLLM") == "none", reason="AUTOMEDEVAL_VLLM is none")
def test_a_judge_behind_vllm_gives_the_verdicts_of_the_same_weights_here(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "serving.py", *LIMITS, "--model", JUDGE, "--threads", "1"]
    command += ["--cases", "8", "--rubrics", "automedeval", "--max_new_tokens", "16", "--at_once", "--no_restart"]
    done = subprocess.run(
        [*map(str, command), "--json", tmp_path / "figures.json"], capture_output=True, text=True, cwd=ROOT
    )
    if "could not be installed" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "server: constrains yes, log-probabilities yes (20)" in done.stderr + done.stdout
    rows = {row["name"]: row["value"] for row in json.loads((tmp_path / "figures.json").read_text())["rows"]}
    for name in ("automedeval, no rationale", "automedeval, rationale"):
        assert [rows[f"{name}: {what}"] for what in ("valid", "same values", "probabilities told")] == [1, 1, 1]
        assert rows[f"{name}: expected scores differ by at most"] <= 0.05
    assert rows["automedeval, rationale: same rationale"] > 0  # else nothing was compared
