"""What a step prints: all of it into its two files, and one line onto the terminal, with its own progress bars meanwhile."""

import os
import pty
import re
import subprocess
import sys
import time
from contextlib import suppress
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
status = run_logged([sys.executable, "-c", sys.argv[3]], log, os.environ, os.open(os.devnull, os.O_RDONLY), "== 1/1 a step")
print(*last_lines(log)[-2:], sep="\\n", file=sys.stderr)
sys.exit(status)
"""


def run_step(log: Path, status: int = 0, **options) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", PARENT, ROOT / "recipes", log, STEP.replace("STATUS", str(status))]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


def test_a_step_has_one_line_and_all_is_in_the_files(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "01-step.log"
    done = run_step(log)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"== 1/1 a step \(\d+ s, {re.escape(str(log.with_suffix('.out')))}\)\n", done.stdout)
    everything = log.read_text()
    for text in ("Loading weights", "Truncating", "warning of a library", "leakage", "verdict/s", "$ "):
        assert text in everything
    results = log.with_suffix(".out").read_text()
    for text in ("30 cases\n\nvalid rate 1.000\n", "Setting accelerator", "'loss'"):
        assert text in results


def test_a_terminal_shows_the_steps_own_bar_and_then_its_line(tmp_path: Path) -> None:
    log, main, side = tmp_path / "01-step.log", *pty.openpty()
    bar, of_library = (
        " 50%|█████     | 2/4 [00:01<00:01,  2.00verdict/s]",
        "Loading weights:  50%|█| 1/2 [00:01<00:01, 1.00it/s]",
    )
    mark = tmp_path / "shown"
    step = (
        "import sys, time, pathlib\n"
        f"sys.stderr.write({f'{bar}{chr(13)}{of_library}'!r}); sys.stderr.flush()\n"
        f"while not pathlib.Path({str(mark)!r}).exists(): time.sleep(0.05)"
    )
    with subprocess.Popen([sys.executable, "-c", PARENT, ROOT / "recipes", log, step], stdout=side) as process:
        os.close(side)
        shown = b""
        while b"verdict/s" not in shown:
            shown += os.read(main, 1000)
        mark.touch()
        with suppress(OSError):  # the terminal is closed
            while more := os.read(main, 1000):
                shown += more
    os.close(main)
    assert process.returncode == 0
    states = shown.decode().rstrip().split("\r\x1b[K")
    assert {states[0], *states[1:-1]} == {"== 1/1 a step", bar}
    assert states[-1].startswith("== 1/1 a step (")


def test_the_last_lines_are_of_this_run_and_the_next_run_adds_to_the_files(tmp_path: Path) -> None:
    log = tmp_path / "01-step.log"
    done = run_step(log, status=3)
    assert done.returncode == 3
    assert done.stderr.splitlines() == ["warning of a library", "error: the last line"]
    first = log.read_text()
    run_step(log)
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
