"""Run programs in processes of their own, and measure them. It loads no torch: a child inherits what is held, in its peak."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from rows import ROOT, own_seconds

T = TypeVar("T")


def recipe(name: str, **options: object) -> list[str]:
    """Return the command of a recipe, or of `automedeval`, with its options."""
    given = (str(word) for key, value in options.items() for word in (f"--{key}", value))
    program = ROOT / "recipes" / f"{name}.py"
    return [
        sys.executable,
        *([str(program)] if program.is_file() else ["-m", "automedeval.cli.console", name]),
        *given,
    ]


def peak(command: list[str], log: Path) -> float:
    """Run a command to its end and return the most resident memory that it held, in MB."""
    with open(log, "wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')}")
    return usage.ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )  # bytes there, kilobytes elsewhere


def first_verdict(command: list[str], verdicts: Path, log: Path) -> tuple[float, float]:
    """Start a command, kill it at its first verdict; return the seconds until then and its peak of memory in MB."""
    started = time.perf_counter()
    with open(log, "wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        try:
            while not (verdicts.exists() and verdicts.stat().st_size):
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')}")
                time.sleep(0.02)
            seconds = time.perf_counter() - started
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        finally:
            process.kill()
            process.wait()
    (most,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return seconds, most / 1024


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that some work takes, and what it returns."""
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def spent(work: Callable[[], object]) -> float:
    """Return the seconds of processors that some work takes here, and in processes that it starts and awaits."""
    before = own_seconds()
    work()
    return own_seconds() - before


def in_turns(
    sides: Mapping[str, Callable[[], T]], repeats: int
) -> tuple[dict[str, float], dict[str, T]]:
    """Let sides take turns, so that what else the machine does meets all; return median seconds, and what came back last."""
    rounds = [{name: timed(work) for name, work in sides.items()} for _ in range(repeats)]
    medians = {name: statistics.median(times[name][0] for times in rounds) for name in sides}
    return medians, {name: found for name, (_, found) in rounds[-1].items()}
