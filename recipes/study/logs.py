"""What a step prints, in two files; on the terminal a step has one line, with its progress bar while it runs.

`NAME.out` has what a step prints as its results, `NAME.log` the rest: progress bars, warnings of libraries, errors. A step
writes into the files itself, so that it does not notice when this program is killed.
"""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PAUSE = 0.5  # seconds between two looks at the log
TAIL = 12  # lines of the log that are shown of a step that failed
NEAR_END = 4096  # bytes of the log in which its last progress bar is looked for
# A bar of tqdm: its label, and the unit of its rate.
BAR = re.compile(
    r"(?P<label>.+: )? *(?:\d+%\|.*\| )?\S+ \[[\d:]+(?:<[\d:?]+)?, +[\d.?]+[kMG]? ?(?:s/(?P<slow>\w+)|(?P<fast>\w+)/s)"
)
# Units of the libraries' bars, which have a label; the bar of training has none, and is shown.
OF_LIBRARIES = {"it", "examples"}


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str], lock: int, heading: str) -> int:
    """Run a step with its output in `log` and the `.out` beside it; return its exit status.

    Prints one line: the heading at once, and how long the step took when it has ended. On a terminal the step's progress bar
    stands there meanwhile.

    Args:
        lock: a file descriptor that the step inherits.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    out, started, terminal = log.with_suffix(".out"), time.monotonic(), sys.stdout.isatty()
    print(heading, end="", flush=True)
    with (
        open(log, "a", encoding="utf-8", newline="\n") as errors,
        open(out, "a", encoding="utf-8", newline="\n") as results,
    ):
        errors.write(f"$ {shlex.join(command)}\n")
        errors.flush()
        environment = {**environment, "PYTHONUNBUFFERED": "1"}
        step = subprocess.Popen(command, env=environment, stdout=results, stderr=errors, pass_fds=[lock])
    try:
        while True:
            try:
                step.wait(PAUSE)
                break
            except subprocess.TimeoutExpired:
                if terminal and (bar := _last_bar(log)):
                    print(f"\r\x1b[K{bar[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
    finally:
        step.wait()  # interrupted: the step is too, and says how it goes on
        again = f"\r\x1b[K{heading}" if terminal else ""
        print(f"{again} ({time.monotonic() - started:,.0f} s, {out})", flush=True)
    return step.returncode


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a log; of a progress bar its last state."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return [line.rpartition("\r")[2] for line in lines if line.strip()][-TAIL:]


def _last_bar(log: Path) -> str | None:
    """Return the last state of a step's own progress bar; None if there is none near the end of the log."""
    with open(log, "rb") as stream:
        stream.seek(max(0, log.stat().st_size - NEAR_END))
        states = re.split(r"[\r\n]", stream.read().decode("utf-8", "replace"))
    return next(filter(_is_bar, reversed(states)), None)


def _is_bar(text: str) -> bool:
    bar = BAR.match(text)
    return bar is not None and not (bar["label"] and (bar["slow"] or bar["fast"]) in OF_LIBRARIES)
