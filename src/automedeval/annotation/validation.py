"""Define the fields of a form; read what a browser sends, and check it before it is stored.

The same list of fields renders the form, parses it and checks its content. Error messages are for the physician.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.records import AutoMedEvalError, parse_json

LONGEST = 2_000  # characters of a comment, or of the reason for skipping
LONGEST_RATIONALE = 20_000  # characters of a rationale, or as many as the one on record has
BESIDE = ("csrf", "version", "seconds", "then", "reason")  # further fields of every form


class Refused(AutoMedEvalError):
    """A request that stores nothing; the message is one sentence for the physician, below the heading."""

    status, heading = 404, "Not found"


class Invalid(Refused):
    """The form does not fit the task."""

    status, heading = 422, "This does not fit"


@dataclass(frozen=True)
class Option:
    """One option of a field: stored value, text of the button, its meaning, and its keyboard key."""

    value: str
    text: str
    hint: str = ""
    key: str = ""


@dataclass(frozen=True)
class Field:
    """One field of a form.

    `path` is the place of its value in the content of the part; `kind` is "options", "number", "tags", "marks" (places in
    `text`) or "text"; `slot` is the number of its doctor, 0 for none; `about` names the doctor for a screen reader; `request`
    is the error of a required field that is empty.
    """

    path: tuple[str, ...]
    kind: str
    label: str
    rule: str = ""
    options: tuple[Option, ...] = ()
    slot: int = 0
    about: str = ""
    request: str = ""
    limit: int = LONGEST
    bounds: tuple[int, int] | None = None
    text: str = ""

    @property
    def name(self) -> str:
        return "-".join(self.path)

    @property
    def required(self) -> bool:
        return bool(self.request)

    def invalid(self, problem: str) -> Invalid:
        return Invalid(f"{self.about}: {self.label}: {problem}" if self.about else f"{self.label}: {problem}")

    def checked(self, value: Any, draft: bool = False) -> Any:
        """Return a value as it is stored; raise Invalid if the field does not allow it."""
        if self.kind == "text":
            text = value.strip()
            if len(text) > self.limit and not draft:  # too long a text is kept as a draft, not lost
                raise self.invalid(f"{len(text):,} characters are too many; at most {self.limit:,} can be stored.")
            return text
        if self.kind == "marks":
            places: list[list[int]] = []
            for start, end in sorted(value):
                if places and start <= places[-1][1]:
                    places[-1][1] = max(places[-1][1], end)
                else:
                    places.append([start, end])
            return places
        if self.bounds is not None:
            low, high = self.bounds
            if type(value) is not int or not low <= value <= high:
                raise self.invalid(f"a whole number from {low} to {high}. Nothing was stored.")
            return value
        allowed = [option.value for option in self.options]
        chosen = value if self.kind == "tags" else [value]
        if any(each not in allowed for each in chosen) or len(set(chosen)) < len(chosen):
            raise self.invalid("this is not one of the answers. Nothing was stored.")
        return [each for each in allowed if each in chosen] if self.kind == "tags" else value

    def read(self, texts: list[str]) -> Any:
        """Return the value that a browser sent as texts, which `checked` has to see; raise Invalid if there are two."""
        if self.kind == "tags":
            return texts
        if self.kind == "marks":
            return [self.place(line.strip()) for text in texts for line in re.split("\r?\n", text) if line.strip()]
        if len(texts) > 1:
            raise self.invalid("there are two answers. Nothing was stored.")
        (value,) = texts
        return int(value) if self.bounds and re.fullmatch("[0-9]{1,3}", value) else value

    def place(self, line: str) -> list[int]:
        """Return where the words of a line stand in the text: [start, end], in characters.

        The script of the page sends [start, end, words] as JSON; without it people copy the words.
        """
        try:
            start, end, words = parse_json(line)
        except (ValueError, TypeError):
            pass
        else:
            if type(start) is type(end) is int and 0 <= start < end and self.text[start:end] == words:
                return [start, end]
            raise self.invalid("these words are not where they were marked. Reload the page, and mark them again.")
        if (count := self.text.count(line)) != 1:
            problem = "do not stand in the response" if count == 0 else "stand there more than once: copy more of them"
            raise self.invalid(f"the words “{line[:60]}” {problem}.")
        return [start := self.text.index(line), start + len(line)]


def read_form(fields: Sequence[Field], form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the content of a form without its empty fields; raise Invalid for an unknown field. `in_layout` checks values."""
    by_name = {field.name: field for field in fields}
    content: dict[str, Any] = {}
    for name, values in form.items():
        if name in BESIDE:
            continue
        if name not in by_name:
            raise Invalid("This form has a field that the task does not ask for. Nothing was stored.")
        if texts := [text for text in values if text.strip()]:
            _put(content, by_name[name].path, by_name[name].read(texts))
    return content


def in_layout(fields: Sequence[Field], content: Mapping[str, Any], draft: bool = False) -> dict[str, Any]:
    """Return the content of fields in the layout in which it is stored.

    Raise Invalid if a field has a wrong value, or is missing; fields of a draft may be missing.
    """
    stored: dict[str, Any] = {}
    for field in fields:
        value = _at(content, field.path)
        value = {"text": "", "tags": []}.get(field.kind) if value is None else field.checked(value, draft)
        if value is None and field.required and not draft:
            raise Invalid(field.request)
        if len(field.path) > 1:
            stored.setdefault(field.path[0], {})
        if len(field.path) == 1 or value not in (None, ""):
            _put(stored, field.path, value)
    return stored


def values_of(fields: Sequence[Field], content: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values of the fields, by name, for a content."""
    values = {}
    for field in fields:
        value = _at(content, field.path)
        if field.kind == "marks" and value:
            value = "\n".join(json.dumps([start, end, field.text[start:end]]) for start, end in value)
        values[field.name] = [str(each) for each in (value if isinstance(value, list) else [value]) if each is not None]
    return values


def checked_reason(reason: str) -> str:
    """Return the reason for skipping a task; raise Invalid if it is empty or too long."""
    if not (text := Field(("reason",), "text", "Reason").checked(reason)):
        raise Invalid("Please say in a few words why you skip this task.")
    return text


def _put(content: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        content = content.setdefault(key, {})
    content[path[-1]] = value


def _at(content: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path, None if there is none; a list has its values by slot, from 1."""
    for key in path:
        if isinstance(content, list):
            content = content[int(key) - 1] if int(key) <= len(content) else None
        else:
            content = content.get(key) if isinstance(content, Mapping) else None
    return content
