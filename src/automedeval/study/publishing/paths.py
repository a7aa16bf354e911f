"""Shorten the paths of this machine in what is published: they may tell a user's name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from automedeval.records import read_json

# What records of runs say of this machine, and what stands beside them in words.
RECORDS = ("run.json", "statistics.json", "training/record.json")
REPEATED = (*RECORDS, ".md", "adapter_config.json")


def short_path(path: str) -> str:
    """Return a file's name and, of a path within the folder of the run, the folder that it lies in."""
    parts = PureWindowsPath(path)  # of either system: it takes "/" and "\\" alike
    inside = not parts.anchor and not {"~", ".."}.intersection(parts.parts)
    return "/".join(filter(None, (parts.parent.name if inside else "", parts.name)))


def put(file: Path, content: bytes) -> None:
    """Write a file of a folder that is laid out, in the place of the link to the original."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_bytes(content)


def shorten_paths(folder: Path) -> None:
    """Put the last name in the place of each absolute path of a record, in every file of a folder that may repeat it."""
    places: set[str] = set()
    for name in RECORDS:
        if (folder / name).is_file():
            places.update(_places(read_json(folder / name)))
    names: dict[bytes, bytes] = {}
    for place in places:
        escaped = (json.dumps(place)[1:-1], json.dumps(place, ensure_ascii=False)[1:-1])
        for form in (place, *escaped):
            names[form.encode()] = short_path(place).encode()
    if not names:
        return
    longest_first = map(re.escape, sorted(names, key=len, reverse=True))
    pattern = re.compile(rb"(?<![\w.-])(?:" + b"|".join(longest_first) + rb")(?![\w-])")
    for file in folder.rglob("*"):
        if file.is_file() and file.as_posix().endswith(REPEATED):
            put(file, pattern.sub(lambda match: names[match[0]], file.read_bytes()))


def _places(value: Any) -> Iterator[str]:
    """Yield the absolute paths in a JSON value: whole texts, what follows a "=", and the words of longer texts."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _places(each)
    elif isinstance(value, str):
        for part in {value, value.partition("=")[2], *re.split(r"[\s=,\"']+", value)}:
            parts = PureWindowsPath(part)
            if parts.anchor and len(parts.parts) > 2 and "\n" not in part:
                yield part
