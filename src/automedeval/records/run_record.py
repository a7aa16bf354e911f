"""Describe a run for its record: the arguments, the versions, and the commits of code and models."""

import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from automedeval.records import offline
from automedeval.records.errors import RecordError, foreign_errors_at
from automedeval.records.hub_names import hub_commits
from automedeval.records.journal import write_json
from automedeval.records.processes import process_count
from automedeval.records.readers import is_one_of, named_file, read_json, verdicts_file
from automedeval.records.text import shown_address

_LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate", "openai")
BESIDE = " + "  # between files that are read together
_DECIDING = ("OPENAI_BASE_URL", "AUTOMEDEVAL_OFFLINE", "AUTOMEDEVAL_JUDGE")


def describe_run(*groups: Any, libraries: Sequence[str] = ()) -> dict:
    """Return the arguments in these dataclasses, the versions, and the commits of the code and of what the Hub gave."""
    arguments: dict = {}
    for group in groups:
        arguments |= {name: _shown(value) for name, value in vars(group).items()}
    arguments.pop("hub_token", None)  # a secret
    arguments["offline"] = offline.is_offline()
    return {
        "arguments": arguments,
        "versions": installed_versions(*libraries),
        **_origin(),
    }


def describe_result(command: str, options: Sequence[str] | None = None, **settings: Any) -> dict:
    """Return how a result of `automedeval COMMAND` was made, for its file and its page; by default with this program's options.

    Variables that decide which judge is asked, and where, stand in front: without them the command would send data elsewhere.
    """
    arguments = map(shown_address, sys.argv[1:] if options is None else options)
    words = shlex.join(["automedeval", command, *arguments])
    for name in _DECIDING:
        if value := os.environ.get(name):
            words = f"{name}={shlex.quote(shown_address(value))} {words}"
    return {"command": words, "version": version("automedeval")} | _origin() | settings


def _origin() -> dict:
    """Return the commits of the code and of what the Hub gave."""
    return {"commit": git_commit(), "revisions": hub_commits()}


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_shown, value))
    return shown_address(value) if isinstance(value, str) else value


def record_run(file: Path, *groups: Any) -> None:
    """Write what `describe_run` returns to a JSON file, with the run's date and the number of its processes."""
    begun = run_date(file).isoformat()
    write_json(file, describe_run(*groups) | {"date": begun, "processes": process_count()})


def run_date(file: Path) -> date:
    """Return the date on which the run began that a record is of: a resumed run shows chat templates no other one."""
    with foreign_errors_at(f"{file}: no record of a run", AttributeError, TypeError, ValueError):
        begun = read_json(file).get("date") if file.exists() else None
        return date.fromisoformat(begun) if begun else date.today()


def run_arguments(file: Path) -> dict:
    """Return the arguments in the record of a run; empty if there is none, or it has none."""
    try:
        return dict(read_json(file)["arguments"])
    except (ValueError, KeyError, TypeError):
        return {}


def default_folder(parent: str, files: str, argument: str) -> Path:
    """Return PARENT/NAME of a file, or of the first of FILE + FILE.

    RecordError if the folder's record has other files as this argument.
    """
    folder = Path(parent, Path(files.partition(BESIDE)[0]).stem)
    before = run_arguments(folder / "run.json").get(argument, files)
    together = before if isinstance(before, str) else BESIDE.join(map(str, before))
    refuse_others(folder, [together], files)
    return folder


def refuse_others(folder: Path, before: Collection[str], file: str) -> None:
    """Raise RecordError if a default folder has results, and none on this file, or FILE + FILE."""
    if before and not is_one_of(file, before):
        raise RecordError(f"{folder} has results on {', '.join(before)}: choose another --output")


def columns_of_run(verdicts: Iterable[str | Path], cases: str) -> list[str]:
    """Return the --columns by which a table was read when it was judged, by the records beside its verdicts; [] without any."""
    _, table = named_file(cases)
    for place in verdicts:
        folder = verdicts_file(named_file(str(place))[1]).parent
        for judged, columns in judged_files(folder):
            if columns and is_one_of(table, [judged]):
                return columns
    return []


def judged_files(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each file of cases whose verdicts a folder has, with its --columns."""
    for file in sorted(folder.glob("run-*.json")):
        yield from run_arguments(file).get("columns_of", {}).items()


def installed_versions(*more: str) -> dict[str, str]:
    """Return the versions of the libraries that can change a result, and of those of `more` that are installed."""
    versions = {}
    for name in ("automedeval", *_LIBRARIES, *more):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def git_commit() -> str | None:
    """Return the commit of the checkout that this package runs from; None if it was installed from a wheel."""
    package = str(Path(__file__).resolve().parents[1])
    command = ["git", "-C", package, "rev-parse", "--show-prefix", "HEAD"]
    try:
        prefix, commit = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    # an environment may lie inside somebody's checkout
    return commit if prefix == "src/automedeval/" else None
