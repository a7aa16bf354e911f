"""A judge behind a real vLLM beside the same weights in this process. It runs where AUTOMEDEVAL_VLLM names a Python with vLLM.

python benchmarks/serving.py --install FOLDER     # once: 3.4 GB
AUTOMEDEVAL_VLLM=FOLDER/bin/python python -m pytest tests/models/test_vllm.py
"""

import json
import os
import subprocess
import sys

import pytest
from programs import JUDGE, ROOT, needs_judge

VLLM = os.environ.get("AUTOMEDEVAL_VLLM")


@needs_judge
@pytest.mark.slow
@pytest.mark.skipif(not VLLM, reason="AUTOMEDEVAL_VLLM does not name a Python with vLLM")
def test_a_judge_behind_vllm_gives_the_verdicts_of_the_same_weights_here(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "serving.py", "--python", VLLM, "--model", JUDGE, "--threads", "1"]
    command += ["--cases", "8", "--rubrics", "automedeval", "--max_new_tokens", "16", "--at_once", "8"]
    done = subprocess.run(
        [*map(str, command), "--json", tmp_path / "table.json"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "server: constrains yes, log-probabilities yes (20)" in done.stdout
    tables = json.loads((tmp_path / "table.json").read_text())["tables"]
    beside, _, killed = tables.values()
    assert [(row["valid"], row["told"], row["met"]) for row in beside] == [("1.000", "1.000", "yes")] * 2
    assert [(row["missing"], row["changed"]) for row in killed] == [(0, 0)]
