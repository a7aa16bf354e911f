"""Shorten the paths of this machine in what is published: they may tell a user's name."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from automedeval.records import RecordError

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
    texts = {
        path: file if isinstance(file, bytes) else file.read_bytes()
        for path, file in files.items()
        if path.endswith(REPEATED)
    }
    try:
        places = {
            place for name in RECORDS if name in texts for place in _places(json.loads(texts[name]))
        }
    except ValueError as error:
        raise RecordError(f"{', '.join(RECORDS)}: one is not JSON: {error}") from None
    forms = {
        place: (place, json.dumps(place)[1:-1], json.dumps(place, ensure_ascii=False)[1:-1])
        for place in places
    }
    names = {form.encode(): short_path(place).encode() for place in forms for form in forms[place]}
    if not names:
        return {}
    longest_first = map(re.escape, sorted(names, key=len, reverse=True))
    pattern = re.compile(rb"(?<![\w.-])(?:" + b"|".join(longest_first) + rb")(?![\w-])")
    changed = {
        path: pattern.sub(lambda match: names[match[0]], text) for path, text in texts.items()
    }
    return {path: text for path, text in changed.items() if text != texts[path]}


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
