"""Argument groups that several recipes share, and how every recipe reads its arguments.

One YAML is one run: `--config run.yaml` gives values by the arguments' names, the command line overrides it, both override
the defaults below. Unknown keys fail. Help is written once, in the field.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser

from automedeval.records import AutoMedEvalError, RecordError
from automedeval.records.journal import ALONE, Processes, write_whole


class _OneLine:
    def error(self, message: str) -> NoReturn:
        raise RecordError(f"{message} (--help lists what there is)")


class _Parser(_OneLine, HfArgumentParser):
    pass


class _FileParser(_OneLine, argparse.ArgumentParser):
    pass


def parse(kinds: Sequence[type], description: str, argv: Sequence[str] | None = None) -> tuple[Any, ...]:
    """Parse the command line, and the file that `--config` names, into one instance of each dataclass.

    Raises:
        RecordError: an argument that is not known, missing or wrong; the YAML file cannot be read, or has a key that no
            argument has.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(kinds, description=description, allow_abbrev=False)
    parser.add_argument(
        "--config", metavar="RUN.yaml", help="a YAML file with arguments by name; the command line wins"
    )
    file = _FileParser(add_help=False, allow_abbrev=False)
    file.add_argument("--config")
    config = file.parse_known_args(argv)[0].config
    if config:
        known = {action.dest for action in parser._actions} - {"help", "config"}
        # In front of the command line, as if typed there: the same checks of types and choices, and the later one wins.
        argv = [*_config_arguments(config, known), *argv]
    *values, rest = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return tuple(values[: len(kinds)])


def _config_arguments(file: str, known: set[str]) -> list[str]:
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{file}: must be a mapping of arguments to values")
    arguments = []
    for key, value in content.items():
        if key not in known:
            raise RecordError(f"{file}: unknown key {key!r}")
        if isinstance(value, dict):
            raise RecordError(f"{file}: {key}: must be one value or a list of values")
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            arguments.append(f"--{key}={text}")
    return arguments


def run(main: Callable[[], None]) -> None:
    """Run a recipe; what the person at the keyboard can mend becomes one line and exit status 1."""
    try:
        main()
    except AutoMedEvalError as error:
        _end(f"error: {error}")
    except KeyboardInterrupt:
        _end("interrupted; the same command goes on from here")
    except OSError as error:
        why = "is a file, and a folder is needed" if isinstance(error, FileExistsError) else error.strerror or error
        _end(f"error: {error.filename or ''}: {why}")
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        _end("error: out of memory; a smaller --batch_tokens may help")


def _end(line: str) -> NoReturn:
    # In one piece: `sys.exit` writes the end of the line by itself, and another process of the run may come in between.
    sys.stderr.write(f"{line}\n")
    sys.exit(1)


def installed_versions(*more: str) -> dict[str, str]:
    """Return the versions of the libraries that can change a result, and of `more` that are installed."""
    names = ("automedeval", "torch", "transformers", "tokenizers", "accelerate", "openai")
    found = {name: version(name) for name in names}
    for name in more:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def git_commit() -> str | None:
    """Return the commit of the checkout that the running program stands in, None outside of one."""
    command = ["git", "-C", str(Path(sys.argv[0]).resolve().parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def join_processes() -> Processes:
    """Join the other processes of `accelerate launch`, if there are any."""
    rank, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if count == 1:
        return ALONE
    from accelerate import PartialState  # slow to import, and one process does without

    # A process that is done waits for the slowest, which may take days.
    return Processes(rank, count, PartialState(timeout=timedelta(days=30)).wait_for_everyone)


def record_run(file: Path, *groups: Any, timing: dict[str, float] | None = None) -> None:
    """Leave the resolved arguments, versions and git commit beside what a run writes; `timing` is added to earlier ones."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        timings = json.loads(file.read_text(encoding="utf-8"))["timings"]
    except (OSError, ValueError, KeyError, TypeError):  # the first run, or one that was cut off while it wrote
        timings = []
    record = {
        "arguments": {name: value for group in groups for name, value in vars(group).items()},
        "versions": installed_versions(),
        "commit": git_commit(),
        "timings": timings + ([timing] if timing else []),
    }
    write_whole(file, json.dumps(record, indent=1) + "\n")
