"""What a step prints: all of it into its two files, its results and its own progress bars onto the terminal as well."""

import os
import subprocess
import sys
import time
from pathlib import Path

from programs import ROOT

# Prints as steps do: by tqdm and transformers' and datasets' units, by DeepSpeed's logger, by the trainer, by print.
STEP = """
import logging, sys
from tqdm import tqdm
bars = [(None, "verdict"), ("leakage", "case"), ("Loading weights", "it"), ("Truncating", " examples"), (None, "it")]
for label, unit in bars:
    for _ in tqdm(range(3), desc=label, unit=unit, mininterval=0):
        pass
with tqdm(unit="passage", desc="index", mininterval=0) as bar:
    bar.update(2)
print("warning of a library", file=sys.stderr)
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] %(message)s"))
logging.getLogger("DeepSpeed").addHandler(handler)
logging.getLogger("DeepSpeed").warning("Setting accelerator to CPU")
print({"loss": "2.1"})
print("30 cases\\n\\nvalid rate 1.000", flush=True)
print("error: the last line", file=sys.stderr)
sys.exit(STATUS)
"""
PARENT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from study.logs import last_lines, run_logged
log = Path(sys.argv[2])
status = run_logged([sys.executable, "-c", sys.argv[3]], log, os.environ, os.open(os.devnull, os.O_RDONLY))
print(*last_lines(log)[-2:], sep="\\n", file=sys.stderr)
sys.exit(status)
"""


def run_step(log: Path, status: int = 0, **options) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", PARENT, ROOT / "recipes", log, STEP.replace("STATUS", str(status))]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


def test_results_and_own_bars_are_shown_and_all_is_in_the_files(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "01-step.log"
    done = run_step(log)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    bars, results = shown[:-3], shown[-3:]
    assert results == ["30 cases", "", "valid rate 1.000"]
    assert [bar.partition(":")[0].split("%")[0].strip() for bar in bars] == ["100", "leakage", "100", "index"]
    assert all("3/3" in bar for bar in bars[:3])
    everything = log.read_text()
    for text in ("Loading weights", "Truncating", "warning of a library", "leakage", "verdict/s", "$ "):
        assert text in everything
    results = log.with_suffix(".out").read_text()
    assert "Setting accelerator" in results
    assert "'loss'" in results


def test_the_last_lines_are_of_this_run_and_the_next_run_adds_to_the_files(tmp_path: Path) -> None:
    log = tmp_path / "01-step.log"
    done = run_step(log, status=3)
    assert done.returncode == 3
    assert done.stderr.splitlines() == ["warning of a library", "error: the last line"]
    first = log.read_text()
    again = run_step(log)
    assert again.stdout.count("valid rate") == 1
    assert log.read_text().startswith(first)


def test_a_step_outlives_the_program_that_started_it(tmp_path: Path) -> None:
    """Its output goes to files and not through this program, so that it ends as it would have."""
    log, mark = tmp_path / "01-step.log", tmp_path / "mark"
    step = (
        "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(0.3)\n"
        f"print('x' * 100_000, flush=True); open({str(mark)!r}, 'w').close()"
    )
    words = [sys.executable, "-c", PARENT, ROOT / "recipes", log, step]
    done = subprocess.run(words, capture_output=True, timeout=60, env=os.environ)
    assert done.returncode == -9
    until = time.monotonic() + 30
    while not mark.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert mark.exists()
