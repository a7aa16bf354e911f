"""The facts of a run: sentences of facts.yaml with figures that are read from its files, each with its place in the file."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from automedeval.records.yaml_file import load_yaml
from automedeval.reports.text import shown

_OTHERS = "The files of this run lack other figures"
_FIGURE = re.compile(r"\{([\w.]+)(:names)?\}")
Roots = Mapping[str, Sequence[str]]  # first word of a figure's name → its file, and the keys that lead to it there


class Fact(NamedTuple):
    """One sentence of a run, and where its figures are: file → JSON pointers (RFC 6901), none for a ledger."""

    section: str
    text: str
    places: dict[str, list[str]]


def read_packaged(name: str) -> Any:
    """Return the content of one of this room's YAML files."""
    return load_yaml(resources.files("automedeval.dossier").joinpath("templates", name).read_bytes())


def facts_of(documents: Mapping[str, Any], roots: Roots) -> tuple[dict[str, Fact], list[str]]:
    """Return the facts whose figures are all there, by name, and a line for each thing that is not, with what it leaves out.

    Args:
        documents: file → its content.
    """
    content = read_packaged("facts.yaml")
    facts: dict[str, Fact] = {}
    left_out: dict[str, list[str]] = defaultdict(list)
    for section, named in content["sections"].items():
        for name, sentences in named.items():
            absent = []
            for sentence in sentences if isinstance(sentences, list) else [sentences]:
                places: dict[str, list[str]] = {}
                try:
                    text = _FIGURE.sub(partial(_figure, documents, roots, places), sentence)
                except LookupError as missing:
                    absent.append(missing.args[0])
                else:
                    facts[name] = Fact(section, text, places)
                    break
            else:
                left_out[content["absent"].get(absent[0], _OTHERS)].append(name)
    lines = [
        f"{absent}: {len(names)} {'fact' if len(names) == 1 else 'facts'} left out ({', '.join(names)})."
        for absent, names in left_out.items()
    ]
    return facts, lines


def _figure(documents: Mapping[str, Any], roots: Roots, places: dict[str, list[str]], match: re.Match) -> str:
    """Return a figure in words, and add its place to the others; LookupError names the key that is not there."""
    name, *keys = match[1].split(".")
    file, *start = roots.get(name, ("",))
    value = documents.get(file)
    for number, key in enumerate((*start, *keys)):
        if value is None and number >= len(start):
            break
        value = value.get(key) if isinstance(value, Mapping) else None
        name += f".{key}" * (number >= len(start))
    if value is None:
        raise LookupError(name)
    pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in (*start, *keys))
    places.setdefault(file, []).extend([pointer] * file.endswith(".json"))
    return ", ".join(value) if match[2] else in_words(value)


def in_words(value: Any, nested: bool = False) -> str:
    """Return a value of a result in words; an estimate has its interval and its n, and two counts are "3 of 30"."""
    if isinstance(value, Mapping) and "value" in value:
        reason = f" ({value.get('reason')})" * (value["value"] is None)
        return f"{shown({'low': None, 'high': None, **value})}{reason} (n = {value.get('n', 'not known')})"
    if isinstance(value, Mapping):
        parts = [
            f"{key} {', '.join(map(str, held)) if key == 'degrees' else in_words(held, True)}"
            for key, held in value.items()
            if held is not None
        ]
        return ("({})" if nested else "{}").format("; ".join(parts) or "none")
    if isinstance(value, list):
        two_counts = len(value) == 2 and all(type(each) is int for each in value)
        return (" of " if two_counts else ", ").join(map(in_words, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
