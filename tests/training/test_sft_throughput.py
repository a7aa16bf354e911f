"""The benchmark of training speed runs every arm on a tiny model, and its table has figures. How fast is not judged here."""

import math
import re
import subprocess
import sys
from pathlib import Path

from doubles.tiny_dataset import build_instructions
from programs import ROOT

ARMS = ("(a) ours", "(b) TRL's defaults", "(c) bare loop")
ARMS += ("(d) ours, by length", "(d) ours, packed", "(d) ours, bf16 weights")


def measure(*options: object) -> subprocess.CompletedProcess:
    """Run the benchmark, one turn of one update after one that is not timed."""
    command = [sys.executable, "benchmarks/sft_throughput.py", "--repeats", "1", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_every_arm_is_measured_and_compared(tiny_model: Path, tmp_path: Path) -> None:
    data = build_instructions(tmp_path / "instructions", {"stage1": 4, "stage2": 3, "test": 1})
    done = measure("--model", tiny_model, "--dataset", data)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rates, ratios = {}, {}
    for name in ARMS:
        (line,) = [line for line in lines if re.match(re.escape(name) + r"  +\d", line)]
        rows, padding, rate, *compared, _peak = line.removeprefix(name).split()
        rates[name], ratios[name] = float(rate), [float(ratio) for ratio in compared]
        assert rates[name] > 0
        assert 0 <= float(padding.removesuffix("%")) < 100
        if name != "(d) ours, packed":  # whose rows come as they fit
            assert float(rows) == 4
        else:
            assert float(rows) >= 1
    for name in ARMS:  # one turn: its ratio is the ratio of its rates
        for base, ratio in zip(("(b) TRL's defaults", "(c) bare loop"), ratios[name]):
            assert math.isclose(ratio, rates[name] / rates[base], abs_tol=0.02)
    for name, target in (("(a)/(b)", "1.15"), ("(a)/(c)", "0.85")):
        (line,) = [line for line in lines if line.startswith(name)]
        assert re.fullmatch(rf"{re.escape(name)} \d+\.\d\d, target >= {target}, met: (yes|no)", line)
    (line,) = [line for line in lines if line.startswith("fastest batches here: ")]
    assert any(line.startswith(f"fastest batches here: {name};") for name in ARMS)
