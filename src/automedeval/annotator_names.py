"""Whether a file that is to go out names the people who rated."""

import json
import re
from pathlib import PurePosixPath
from typing import Any

import yaml

from automedeval.found_verdicts import RATER
from automedeval.records import RecordError

ANNOTATORS = ("annotator", "annotators")  # keys under which ratings name people
_PEOPLE = re.compile(rb"annotator|rater:(?=\S)", re.I)
NAMES = "{}: names annotators; --annotators_are_pseudonyms true says that these are not people's names"


def check_annotators(place: str, content: bytes) -> None:
    """Raise RecordError if a file names the people who rated, by a key or a column, or as judges of their own scores."""
    suffix, named = PurePosixPath(place).suffix.lower(), False
    if not _PEOPLE.search(content):
        return
    if suffix == ".csv":
        header = re.split(r"[,;|\t]", content.decode("utf-8-sig", "replace").partition("\n")[0])
        named = any(name.strip("\"' \r").lower() in ANNOTATORS for name in header)
    elif suffix in (".json", ".jsonl", ".yaml", ".yml"):
        for text in content.split(b"\n") if suffix == ".jsonl" else [content]:
            try:
                read = json.loads if suffix.startswith(".json") else yaml.safe_load
                named = named or (_PEOPLE.search(text) is not None and names_people(read(text)))
            except (ValueError, yaml.YAMLError):
                raise RecordError(f"{place}: cannot be read as {suffix[1:].upper()}") from None
    if named or (suffix in (".md", ".txt", ".csv") and re.search(rb"\b" + RATER.encode() + rb"(?=[^\s`])", content)):
        raise RecordError(NAMES.format(place))


def names_people(value: Any) -> bool:
    """Return whether a value of JSON's kinds holds, at any depth, an annotator's name."""
    if isinstance(value, list):
        return any(map(names_people, value))
    if not isinstance(value, dict):
        return False
    for key, held in value.items():
        each = held if isinstance(held, list) else [held]
        if str(key).lower() in ANNOTATORS and any(isinstance(name, str | dict) and name for name in each):
            return True
        if key == "judge" and str(held).startswith(RATER):
            return True
    return any(map(names_people, value.values()))
