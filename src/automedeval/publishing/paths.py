"""Shorten the paths of this machine in what is published: they may tell a user's name."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

# What records of runs say of this machine, and what stands beside them in words.
RECORDS = ("run.json", "statistics.json", "training/record.json")
REPEATED = (*RECORDS, ".md", "adapter_config.json")


def short_path(path: str) -> str:
    """Return a file's name and, of a path within the folder of the run, the folder that it lies in."""
    parts = PureWindowsPath(path)  # of either system: it takes "/" and "\\" alike
    inside = not parts.anchor and not {"~", ".."}.intersection(parts.parts)
    return "/".join(filter(None, (parts.parent.name if inside else "", parts.name)))


def without_paths(files: Mapping[str, Path | bytes]) -> dict[str, bytes]:
    """Return the files that repeat an absolute path of a record, with its last name in place of the path."""
    records = [_read(_content(files[name])) for name in RECORDS if name in files]
    places = sorted({place for record in records for place in _places(record)}, key=len, reverse=True)
    if not places:
        return {}
    names = {form.encode(): short_path(place).encode() for place in places for form in _written(place)}
    pattern = re.compile(rb"(?<![\w.-])(?:" + b"|".join(map(re.escape, names)) + rb")(?![\w-])")
    texts = {path: _content(file) for path, file in files.items() if path.endswith(REPEATED)}
    changed = {path: pattern.sub(lambda match: names[match[0]], text) for path, text in texts.items()}
    return {path: text for path, text in changed.items() if text != texts[path]}


def _content(file: Path | bytes) -> bytes:
    return file if isinstance(file, bytes) else file.read_bytes()


def _read(record: bytes) -> Any:
    """Return the value of JSON, or the text of anything else."""
    try:
        return json.loads(record)
    except ValueError:
        return record.decode(errors="replace")


def _written(place: str) -> tuple[str, ...]:
    """Return a path as a text writes it, and as JSON does."""
    return place, json.dumps(place)[1:-1], json.dumps(place, ensure_ascii=False)[1:-1]


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
