"""A typed question to a real vLLM has the answer of the same weights in this process.

vLLM is installed once, into an environment in the user's cache (3.4 GB). AUTOMEDEVAL_VLLM names the Python of another one, or
is `none`, which skips the test.
"""

import os
import subprocess
import sys

import pytest
from factories import read_json
from programs import JUDGE, ROOT, needs_judge


@needs_judge
@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("AUTOMEDEVAL_VLLM") == "none", reason="AUTOMEDEVAL_VLLM is none")
def test_typed_questions_to_vllm_have_the_answers_of_the_same_weights_here(tmp_path):
    options = "--install_limit 600 --limit 1200 --threads 1 --cases 8 --max_new_tokens 16 --at_once"
    script = ROOT / "benchmarks/serving.py"
    files = ["--model", JUDGE, "--json", tmp_path / "figures.json"]
    command = [sys.executable, script, *options.split(), *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if "could not be installed" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    rows = {row["name"]: row["value"] for row in read_json(tmp_path / "figures.json")["rows"]}
    for name in ("yes_no", "true_false"):
        assert rows[f"{name}: answered"] >= 0.5  # a model of 135M writes no option to some
        assert rows[f"{name}: same option"] == 1
    assert rows["yes_no: odds told"] >= 0.25
    assert rows["yes_no: odds differ by at most"] <= 0.05
