"""What the tests of whole studies share: a script as a person starts it, and the commands of its dry run."""

import os
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from programs import ROOT

from automedeval.records.teachers import teacher_arguments

RUNS = Path("recipes/runs")
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
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT / "src"), **variables}
    command = ["bash", str(ROOT / RUNS / file), *words, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


def dry_run(name: str, **variables: str) -> list[list[str]]:
    done = script(name, "--dry_run", **variables)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line[2:]) for line in done.stdout.splitlines() if line.startswith("$ ")]


def program(words: list[str]) -> str:
    """Return the name of a command's recipe, or of its command of `automedeval`."""
    return (
        words[1]
        if words[0] == "automedeval"
        else next(Path(w).stem for w in words if w.startswith("recipes/"))
    )


def arguments(words: list[str]) -> dict[str, Any]:
    """Return the arguments of a command: its YAML's, with those of the command line in their place."""
    given = {name[2:]: value for name, value in pairwise(words) if name[:2] == "--"}
    if config := given.pop("config", None):
        values = yaml.safe_load((ROOT / config).read_text())
        values = {name: value for name, value in values.items() if name not in given}
        given |= teacher_arguments(given, config)
        return values | teacher_arguments(values, config) | given
    return given


def of(commands: list[list[str]], name: str) -> list[dict[str, Any]]:
    return [arguments(words) for words in commands if program(words) == name]


def steps(commands: list[list[str]]) -> list[str]:
    """Return of each command its program, and as what a judge is recorded, or which folder it makes or checks."""
    return [step(program(words), arguments(words)) for words in commands]


def step(name: str, values: dict[str, Any]) -> str:
    keys = ("judge_name", "output_dir", "output", "folder", "store")
    made = next((values[key] for key in keys if key in values), None)
    return f"{name}:{Path(made).name}" if made else name
