"""What the tests of whole studies share: recipes/reproduce.py as a person starts it, and the commands of a dry run."""

import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from programs import ROOT, run_here

PAPER = "recipes/runs/automedeval-13b"


def reproduce(*arguments: object, **variables: str) -> subprocess.CompletedProcess:
    """Run the program in this process; no key is in the environment but those of `variables`."""
    program, here = str(ROOT / ("tests/rehearse.py" if "--place" in arguments else "recipes/reproduce.py")), Path.cwd()
    os.chdir(ROOT)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **variables}
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch("sys.path", [str(ROOT / "recipes"), *sys.path]),
    ):
        done = run_here([program, *map(str, arguments)], lambda: runpy.run_path(program, run_name="__main__"))
    os.chdir(here)
    return done


def plan(*arguments: object) -> list[list[str]]:
    """Return the commands that a dry run prints."""
    done = reproduce(*arguments, "--dry_run")
    assert done.returncode == 0, done.stderr
    return [shlex.split(line[2:]) for line in done.stdout.splitlines() if line.startswith("$ ")]


def recipe(words: list[str]) -> str:
    return next(Path(word).stem for word in words if word.startswith("recipes/"))


def option(words: list[str], name: str) -> str | None:
    """Return the value of an option."""
    return words[words.index(name) + 1] if name in words else None


def steps(commands: list[list[str]]) -> list[str]:
    """Return the name of each command's YAML."""
    return [Path(option(words, "--config")).stem for words in commands]


def resolved(words: list[str]) -> dict[str, Any]:
    """Return the arguments of a command: its YAML's, with those of the command line in their place."""
    values = yaml.safe_load((ROOT / option(words, "--config")).read_text())
    at = words.index("--config") + 2
    return values | {name[2:]: value for name, value in zip(words[at::2], words[at + 1 :: 2])}


def of(commands: list[list[str]], name: str) -> list[dict[str, Any]]:
    """Return the arguments of every command of a recipe."""
    return [resolved(words) for words in commands if recipe(words) == name]
