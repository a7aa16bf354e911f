"""What the tests of whole studies share: a script as a person starts it, and the commands of its dry run."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from factories import Json, read_yaml
from programs import ROOT, succeeded

from automedeval.records.teachers import teacher_arguments

RUNS = Path("recipes/runs")
LIMIT = 3600  # seconds of a whole study
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where the commands are
SCRIPTS = {
    "demo": ["demo/run.sh"],
    "small": ["automedeval-135m/run.sh"],
    "paper": ["automedeval-13b/run.sh"],
    "feedbackqa": ["feedbackqa/run.sh", *"BSCUIXO"],
}
for variant in (
    *("no_chain", "no_curriculum", "no_introspection", "out_of_fold", "vanilla", "lora", "run2"),
):
    SCRIPTS[variant] = ["automedeval-13b/variants.sh", variant]


def script(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Start the script of a study or a variant; no key is in the environment but those of `variables`."""
    file, *words = SCRIPTS[name]
    environment = {"PATH": PATH, "PYTHONPATH": str(ROOT / "src"), **variables}
    command = ["bash", str(ROOT / RUNS / file), *words, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


def started(command: list[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen:
    """Start a command in a session of its own; what it prints goes to the end of a file."""
    options = {"cwd": ROOT, "env": environment, "start_new_session": True}
    with open(log, "ab") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, **options)


def kill(process: subprocess.Popen) -> None:
    """Kill a command that was started, with all that it started."""
    with suppress(ProcessLookupError):  # all of its session has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_when_written(process: subprocess.Popen, file: Path, log: Path) -> None:
    """Kill a command that was started as soon as a file has content."""
    until = time.monotonic() + LIMIT
    while not (file.is_file() and file.stat().st_size):
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < until, f"nothing came into {file}"
        time.sleep(0.02)
    kill(process)


def ended(process: subprocess.Popen, log: Path, before: int = 0) -> str:
    """Wait for a command that was started; return what it printed behind these bytes, and fail with it if it failed."""
    process.wait(LIMIT)
    printed = log.read_bytes()[before:].decode(errors="replace")
    assert process.returncode == 0, printed[-3000:]
    return printed


def dry_run(name: str, *arguments: str, **variables: str) -> list[list[str]]:
    done = succeeded(script(name, "--dry_run", *arguments, **variables))
    return [shlex.split(line[2:]) for line in done.stdout.splitlines() if line.startswith("$ ")]


def program(words: list[str]) -> str:
    """Return the name of a command's recipe, or of its command of `automedeval`."""
    return (
        words[1]
        if words[0] == "automedeval"
        else next(Path(w).stem for w in words if w.startswith("recipes/"))
    )


def arguments(words: list[str]) -> Json:
    """Return the arguments of a command: its YAML's, or those of the command line."""
    given = {name[2:]: value for name, value in pairwise(words) if name[:2] == "--"}
    if config := given.pop("config", None):
        values = read_yaml(ROOT / config)
        values = {name: value for name, value in values.items() if name not in given}
        given |= teacher_arguments(given, config)
        return values | teacher_arguments(values, config) | given
    return given


def of(commands: list[list[str]], name: str) -> list[Json]:
    return [arguments(words) for words in commands if program(words) == name]


def steps(commands: list[list[str]]) -> list[str]:
    """Return of each command its program, and as what a judge is recorded, or which folder it makes or checks."""
    return [step(program(words), arguments(words)) for words in commands]


def step(name: str, values: Json) -> str:
    keys = ("judge_name", "output_dir", "output", "folder", "store")
    made = next((values[key] for key in keys if key in values), None)
    return f"{name}:{Path(made).name}" if made else name
