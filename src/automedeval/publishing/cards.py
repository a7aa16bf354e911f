"""Check cards of the Hub: the kinds of repository, and the fields that the card of a model or a data set must have."""

import re
from collections.abc import Collection
from typing import Any

from automedeval.records import RecordError
from automedeval.records.yaml_file import load_yaml

MODEL, DATASET, METRIC, PAGE = KINDS = ("model", "dataset", "metric", "page")
CARD = "README.md"
REQUIRED = {
    MODEL: ("license", "language", "base_model", "datasets", "pipeline_tag", "library_name", "tags"),
    DATASET: ("license", "language", "pretty_name", "task_categories", "configs"),
}
LEFTOVER = re.compile(r"\b(?:TODO|TBD|FIXME)\b|\[More Information Needed\]|\{\{.*?\}\}|\{%.*?%\}")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def front_matter(card: str, place: str = "the card") -> dict[str, Any]:
    """Return the metadata that a card opens with; RecordError if it opens with none, or the metadata is no mapping."""
    match = re.match(r"---\n(.*?\n)---\n", card, re.S)
    try:
        metadata = load_yaml(match[1]) if match else None
    except ValueError as error:
        raise RecordError(f"{place}: its front matter: {error}") from None
    if not isinstance(metadata, dict):
        raise RecordError(f"{place}: must open with metadata between two lines ---")
    return metadata


def check_card(card: str, kind: str, files: Collection[str], place: str = "the card") -> None:
    """Raise RecordError if the card of a model or a data set lacks a field, holds a placeholder, or names a missing file."""
    about = front_matter(card, place)
    for name in REQUIRED[kind]:
        if about.get(name) in (None, "", [], {}):
            raise RecordError(f"{place}: the field {name!r} is not filled in (needed: {', '.join(REQUIRED[kind])})")
    for number, line in enumerate(card.splitlines(), 1):
        if match := LEFTOVER.search(line):
            raise RecordError(f"{place}, line {number}: {match[0]!r} is not filled in")
    for name in ("base_model", "datasets") if kind == MODEL else ():
        for value in about[name] if isinstance(about[name], list) else [about[name]]:
            if not isinstance(value, str) or not HUB_ID.fullmatch(value) or value.startswith("models/"):
                raise RecordError(f"{place}: {name}: {value!r} is no Hub id (--{name} names it)")
    if kind == DATASET:
        for path in _data_files(about["configs"], place):
            if path not in files:
                raise RecordError(f"{place}: configs: names {path}, which is not there")


def _data_files(configs: Any, place: str) -> list[str]:
    try:
        return [each["path"] for config in configs for each in config["data_files"]]
    except (TypeError, KeyError):
        raise RecordError(f"{place}: configs: must name the path of every split under data_files") from None
