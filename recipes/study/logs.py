"""What a step prints: its results and its own progress bars on the terminal, all of it in two files.

`NAME.out` has what a step prints as its results, `NAME.log` the rest: progress bars, warnings of libraries, errors. A step
writes into the files itself, and this program reads them, so that a step does not notice when this program is killed.
"""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PAUSE = 0.1  # seconds between two looks at the files
TAIL = 12  # lines of the log that are shown of a step that failed
# A bar of tqdm: its label, and the unit of its rate.
BAR = re.compile(
    r"(?P<label>.+: )? *(?:\d+%\|.*\| )?\S+ \[[\d:]+(?:<[\d:?]+)?, +[\d.?]+[kMG]? ?(?:s/(?P<slow>\w+)|(?P<fast>\w+)/s)"
)
# Units of the libraries' bars, which have a label; the bar of training has none, and is shown.
OF_LIBRARIES = {"it", "examples"}
# What comes with the results: DeepSpeed's warnings, and the figures of each of the trainer's updates.
LOGGED = re.compile(r"\[\d{4}-\d\d-\d\d |\{'")


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str], lock: int) -> int:
    """Run a step with its output in `log` and the `.out` beside it; return its exit status.

    Args:
        lock: a file descriptor that the step inherits.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    out = log.with_suffix(".out")
    with (
        open(log, "a", encoding="utf-8", newline="\n") as errors,
        open(out, "a", encoding="utf-8", newline="\n") as results,
    ):
        followed = [_Followed(log, _is_bar), _Followed(out, _is_result)]
        errors.write(f"$ {shlex.join(command)}\n")
        errors.flush()
        environment = {**environment, "PYTHONUNBUFFERED": "1"}
        step = subprocess.Popen(command, env=environment, stdout=results, stderr=errors, pass_fds=[lock])
    try:
        while step.poll() is None:
            time.sleep(PAUSE)
            for each in followed:
                each.show()
    finally:
        step.wait()  # interrupted: the step is too, and says how it goes on
        for each in followed:
            each.show()
    return step.returncode


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a log; of a progress bar its last state."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return [line.rpartition("\r")[2] for line in lines if line.strip()][-TAIL:]


class _Followed:
    """A file that a step writes and this program reads.

    Args:
        file: the file; what it holds already was shown before.
        shown: whether a line, or a state of a progress bar, is for the terminal.
    """

    def __init__(self, file: Path, shown: Callable[[str], bool]):
        self._file, self._shown, self._rest = file, shown, b""
        self._read = file.stat().st_size

    def show(self) -> None:
        """Show what was written since the last look."""
        with open(self._file, "rb") as stream:
            stream.seek(self._read)
            new = stream.read()
        if not new:
            return
        self._read += len(new)
        *whole, self._rest = re.split(rb"(?<=[\r\n])", self._rest + new)
        for piece in whole:
            self._show(piece, last=piece.endswith(b"\n"))
        self._show(self._rest, last=False)

    def _show(self, piece: bytes, last: bool) -> None:
        """Show a line, or on a terminal a state of a progress bar, which the next one replaces."""
        text = piece.decode("utf-8", "replace").rstrip("\r\n")
        terminal = sys.stdout.isatty()
        if (last or (terminal and text.strip())) and self._shown(text):
            start, end = "\r\x1b[K" if terminal else "", "\n" if last else ""
            sys.stdout.write(start + (text if last else text[: shutil.get_terminal_size().columns - 1]) + end)
            sys.stdout.flush()


def _is_bar(text: str) -> bool:
    bar = BAR.match(text)
    return bar is not None and not (bar["label"] and (bar["slow"] or bar["fast"]) in OF_LIBRARIES)


def _is_result(text: str) -> bool:
    return not LOGGED.match(text)
