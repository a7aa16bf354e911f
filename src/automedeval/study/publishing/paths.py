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


Content = Path | bytes  # of a file that is published: where it lies, or what is written for it


def short_path(path: str) -> str:
    """Return a file's name and, of a path within the folder of the run, the folder that it lies in."""
    parts = PureWindowsPath(path)  # of either system: it takes "/" and "\\" alike
    inside = not parts.anchor and not {"~", ".."}.intersection(parts.parts)
    return "/".join(filter(None, (parts.parent.name if inside else "", parts.name)))


def read_bytes(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def shorten_paths(contents: dict[str, Content]) -> dict[str, Content]:
    """Put the last name in the place of each absolute path of a record, in every file that may repeat it."""
    names: dict[bytes, bytes] = {}
    for record in RECORDS:
        file = contents.get(record)
        for place in _places(read_json(file)) if isinstance(file, Path) else ():
            in_json = (json.dumps(place)[1:-1], json.dumps(place, ensure_ascii=False)[1:-1])
            for form in (place, *in_json):
                names[form.encode()] = short_path(place).encode()
    if not names:
        return contents
    longest_first = map(re.escape, sorted(names, key=len, reverse=True))
    pattern = re.compile(rb"(?<![\w.-])(?:" + b"|".join(longest_first) + rb")(?![\w-])")
    shortened = dict(contents)
    for path, content in contents.items():
        if path.endswith(REPEATED):
            shortened[path] = pattern.sub(lambda match: names[match[0]], read_bytes(content))
    return shortened


def _places(value: Any) -> Iterator[str]:
    """Yield the absolute paths in a JSON value: whole texts, what follows a "=", and the words of longer texts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _places(part)
    elif isinstance(value, str):
        for word in (value, value.partition("=")[2], *re.split(r"[\s=,\"']+", value)):
            path = PureWindowsPath(word)
            if path.anchor and len(path.parts) > 2 and "\n" not in word:
                yield word
