"""What tests of every room need: the places of the repository, and a way to run a recipe by its documented command."""

import contextlib
import io
import itertools
import pkgutil
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from random import SystemRandom
from typing import Any
from unittest import mock

import pytest
from factories import read_json
from filelock import FileLock, Timeout
from tables import holds_all

from automedeval.cli import console

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "src/automedeval/sample"
ENCODER = ROOT / "models/all-MiniLM-L6-v2"
JUDGE = ROOT / "models/SmolLM2-135M-Instruct"
module_fixture = pytest.fixture(scope="module")  # made once for all tests of a file
FAST = {"dtype": "float32", "device": "cpu", "max_new_tokens": 8}  # options of a tiny judge
needs_encoder = pytest.mark.skipif(
    not ENCODER.is_dir(), reason=f"{ENCODER} is not there: `make test` gets it"
)
needs_judge = pytest.mark.skipif(
    not JUDGE.is_dir(), reason=f"{JUDGE} is not there: `make test` gets it"
)

needs_deepspeed = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="processes are limited and killed by means of Linux"
    ),
    # DeepSpeed compiles a small extension the first time that it talks to other processes on CPUs.
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="DeepSpeed compiles with g++, and there is none"
    ),
]

# `accelerate launch` starts several processes on GPUs, but one on CPUs, whatever it is given.
TWO_PROCESSES = ("-m", "torch.distributed.run", "--nproc_per_node", "2")


def run_recipe(
    name: str,
    *words: object,
    launch: tuple[str, ...] | None = None,
    env: dict[str, str] | None = None,
    **options: object,
) -> subprocess.CompletedProcess:
    """Run a recipe, or a command that has none: in this process, or in one of its own with `launch` or `env`."""
    recipe = str(ROOT / "recipes" / f"{name}.py")
    arguments = [*words, *flags(**options)]
    own_process = launch is not None or env is not None
    if not Path(recipe).is_file():
        if not own_process:
            return run_command(name.replace("_", "-"), *arguments)
        launch = (*(launch or ()), "-m", "automedeval.cli.console")
        recipe = name.replace("_", "-")
    command = [recipe, *map(str, arguments)]
    if not own_process:
        return run_here(command, lambda: runpy.run_path(recipe, run_name="__main__"))
    command = [sys.executable, *(launch or ()), *command]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, env=env)


def succeeded(done: subprocess.CompletedProcess) -> subprocess.CompletedProcess:
    """Return a program that ended with status 0, and show what it said if it did not."""
    assert done.returncode == 0, done.stderr
    return done


def told(done: subprocess.CompletedProcess, *pieces: str) -> str:
    """Return what a program printed that ended with status 0; fail where it lacks one of these."""
    printed = succeeded(done).stdout
    holds_all(printed, pieces)
    return printed


def flags(**options: object) -> list[object]:
    """Return options by their names as the words of a command line; a list is several words."""
    words: list[object] = []
    for name, value in options.items():
        words += [f"--{name}", *(value if isinstance(value, list | tuple) else [value])]
    return words


def run_command(*words: object, **options: object) -> subprocess.CompletedProcess:
    return run_here(["automedeval", *map(str, [*words, *flags(**options)])], console.main)


def judge_by_length(output: Path, *files: object, **options: object) -> subprocess.CompletedProcess:
    """Judge cases or logs by the lengths of their answers, which takes no model."""
    return run_command("judge", *files, judge="baseline:longer text", output=output, **options)


@contextlib.contextmanager
def on(day: str) -> Iterator[None]:
    """Let runs that begin here begin on this day."""
    today = date.fromisoformat(day)
    with mock.patch("automedeval.records.run_record.date", wraps=date) as calendar:
        calendar.today.return_value = today
        yield


APPEND = "automedeval.records.journal.Journal.append"
SAVE = "automedeval.study.training.run.Run.on_save"


class Stopped(BaseException):
    """Ends a program in this process as a kill ends one of its own: no program catches it."""


@contextlib.contextmanager
def stopped(name: str, count: int = 1) -> Iterator[None]:
    """End what runs in this process when a function, as of APPEND or SAVE, has run so many times; fail if it ends before."""
    function = pkgutil.resolve_name(name)
    calls = itertools.count(1)

    def counted(*given: Any, **named: Any) -> Any:
        result = function(*given, **named)
        if next(calls) == count:
            raise Stopped
        return result

    with pytest.raises(Stopped), mock.patch(name, counted):
        yield


def run_here(argv: list[str], program: Callable[[], object]) -> subprocess.CompletedProcess:
    """Run a program in this process; return what it printed and its exit status."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("sys.argv", argv),
    ):
        try:
            program()
        except SystemExit as stop:
            status = stop.code
            if isinstance(status, str):
                err.write(f"\n{status}\n")
                status = 1
    return subprocess.CompletedProcess(argv[1:], status, out.getvalue(), err.getvalue())


def free_port() -> int:
    """Return a free port below those that the system gives out by itself, so that nothing takes it before it is used."""
    while True:
        port = SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def served(model: Path, log: Path) -> Iterator[str]:
    """Run `transformers serve` with one model; yield the address of its API."""
    port = free_port()
    command = [
        Path(sys.executable).with_name("transformers"),
        "serve",
        model,
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as server:
        try:
            for _ in range(240):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                    break
                assert server.poll() is None, log.read_text(errors="replace")[-3000:]
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def processes_of(output: Path) -> int:
    """Return how many processes shared the last start of the one run in a folder."""
    (record,) = output.glob("run*.json")
    return read_json(record)["processes"]


LONGEST_COMPILATION = 300  # seconds


def torch_extensions(config: pytest.Config) -> Path:
    """Return the folder in which DeepSpeed compiles its extension, once for each checkout, for all tests that need it.

    A killed compilation leaves a file `lock`, and every later one waits for it without end. The folder is therefore the
    tests' own. Only who holds `.lock` compiles there, and `.lock` ends with its process: an old `lock` found then is left
    over. A new one may be of a program that loads what is compiled.
    """
    place = config.cache.mkdir("torch_extensions")
    with contextlib.suppress(Timeout, FileNotFoundError), FileLock(place / ".lock", timeout=0):
        for left in place.glob("*/lock"):
            if time.time() - left.stat().st_mtime > LONGEST_COMPILATION:
                left.unlink()
    return place


def figures_of_the_paper() -> list[tuple[str, list[str]]]:
    """Return the paper's tables and figures by docs/reproducing.md, each with its files."""
    section = (
        (ROOT / "docs/reproducing.md")
        .read_text(encoding="utf-8")
        .partition("## What makes what")[2]
    )
    rows = re.findall(r"(?m)^\| (.*(?:Table|Figure).*) \| (.*) \|$", section)
    return [(about, re.findall(r"`(.*?)`", files)) for about, files in rows]


def error_line(done: subprocess.CompletedProcess) -> str:
    """Return the one line that a failed recipe prints besides its progress bars; no traceback."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


def failed(done: subprocess.CompletedProcess, *pieces: str) -> str:
    """Return the one line of a recipe that failed; fail where one of these is not in it."""
    line = error_line(done)
    holds_all(line, pieces)
    return line
