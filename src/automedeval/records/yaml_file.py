"""Read YAML files key by key; every error names the file and the key."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from automedeval.records.errors import RecordError, foreign_errors_at
from automedeval.records.readers import read_text
from automedeval.records.types import as_list

MOST = 10_000_000  # bytes in one file, with every alias written out
_KINDS = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}


class YamlFile:
    """Check the content of one YAML file; errors call it `place`."""

    def __init__(self, place: str):
        self.place = place

    def read(self, file: Any = None) -> Any:
        """Return the content of `file`, a path or packaged resource, or else of the file at `place`.

        It consists of plain values, and tags cannot make other objects. RecordError if it is not YAML, a value holds itself or
        half a character, or it has more than `MOST` bytes as JSON: a few lines of aliases of aliases stand for billions of
        values, and a digest visits each of them.
        """
        text = read_text(file or Path(self.place), self.place)
        size = 0
        with foreign_errors_at(f"{self.place}: not YAML"):
            content = yaml.safe_load(text)
            encoder = json.JSONEncoder(ensure_ascii=False, skipkeys=True, default=str)
            for piece in encoder.iterencode(content):
                size += len(piece.encode())
                if size > MOST:
                    raise ValueError(f"more than {MOST:,} bytes, with its aliases written out")
        return content

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise the error that names the file and the key."""
        raise RecordError(f"{self.place}: {key}: {problem}")

    def take(
        self,
        mapping: Mapping,
        key: str,
        kind: type,
        default: Any = ...,
        allowed: Sequence[str] = (),
        *,
        inside: str = "",
        least: int | None = None,
    ) -> Any:
        """Return `mapping[key]` after checking its type and, if some values are `allowed`, its value or items.

        Args:
            default: for a missing key; without a default the key is required.
            inside: stands before the key in errors, for instance "scale.".
            least: the smallest number that is allowed.
        """
        place = inside + key
        if key not in mapping:
            if default is ...:
                self.fail(place, "is missing")
            return default
        value = mapping[key]
        kinds = (int, float) if kind is float else kind
        is_truth_for_number = isinstance(value, bool) and kind is not bool
        if not isinstance(value, kinds) or is_truth_for_number or value != value:
            self.fail(place, f"must be {_KINDS[kind]}, not {value!r}")
        if least is not None and isinstance(value, int) and value < least:
            self.fail(place, f"must be at least {least}, not {value}")
        for entry in as_list(value):
            if allowed and entry not in allowed:
                self.fail(place, f"{entry!r} is not one of {', '.join(allowed)}")
        return value

    def values(self, mapping: Any, keys: Mapping[str, tuple], inside: str = "") -> dict:
        """Return the values of all `keys`, each with its type, default and allowed values as `take` has them."""
        self.only(mapping, list(keys), inside)
        return {key: self.take(mapping, key, *rule, inside=inside) for key, rule in keys.items()}

    def only(self, mapping: Any, allowed: Sequence[str], inside: str = "") -> None:
        """Fail unless `mapping` is a mapping without unknown keys."""
        known = ", ".join(allowed)
        if not isinstance(mapping, dict):
            self.fail(inside.rstrip(".") or "the file", f"must be a mapping with the keys {known}")
        for key in mapping:
            if key not in allowed:
                self.fail(f"{inside}{key}", f"unknown key; known are {known}")
