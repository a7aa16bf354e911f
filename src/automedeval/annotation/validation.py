"""Define the fields of a form; read what a browser sends, and check it before it is stored.

The same list of fields renders the form, parses it and checks its content. Error messages are for the physician.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.records import AutoMedEvalError, JsonObject

LONGEST = 2_000  # characters of a comment, or of the reason for skipping
LONGEST_RATIONALE = 20_000  # characters of a rationale, or as many as the one on record has
BESIDE = ("version", "then", "reason")  # further fields of every form


class Refused(AutoMedEvalError):
    """A request that stores nothing; the message is one sentence for the physician, below the heading."""

    status, heading = 404, "Not found"


class Invalid(Refused):
    """The form does not fit the task."""

    status, heading = 422, "This does not fit"


@dataclass(frozen=True)
class Option:
    """One option of a field: stored value, text of the button, its meaning, and its keyboard key."""

    value: int | str
    text: str
    hint: str = ""
    key: str = ""


@dataclass(frozen=True)
class Field:
    """One field of a form."""

    path: tuple[str, ...]  # the place of its value in the content of the part
    kind: str  # "options", "tags" or "text"
    label: str
    rule: str = ""
    options: tuple[Option, ...] = ()
    slot: int = 0  # the number of its doctor, 0 for none
    about: str = ""  # names the doctor for a screen reader
    request: str = ""  # what is said where a required field is empty; "": it may be
    limit: int = LONGEST

    @property
    def name(self) -> str:
        return "-".join(self.path)

    def invalid(self, problem: str) -> Invalid:
        return Invalid(": ".join(filter(None, (self.about, self.label, problem))))

    def checked(self, value: Any, draft: bool = False) -> Any:
        """Return a value as it is stored; raise Invalid if the field does not allow it."""
        if self.kind == "text":
            text = value.strip()
            if len(text) > self.limit and not draft:  # too long a text is kept as a draft, not lost
                raise self.invalid(
                    f"{len(text):,} characters are too many; at most {self.limit:,} can be stored."
                )
            return text
        allowed = [option.value for option in self.options]
        chosen = value if self.kind == "tags" else [value]
        if any(choice not in allowed for choice in chosen) or len(set(chosen)) < len(chosen):
            raise self.invalid("this is not one of the answers. Nothing was stored.")
        return [tag for tag in allowed if tag in chosen] if self.kind == "tags" else value

    def read(self, texts: list[str]) -> Any:
        """Return the value that a browser sent as texts, which `checked` has to see; raise Invalid if there are two."""
        by_text = {str(option.value): option.value for option in self.options}
        values = [by_text.get(text, text) for text in texts]
        if self.kind == "tags":
            return values
        if len(values) > 1:
            raise self.invalid("there are two answers. Nothing was stored.")
        return values[0]


def read_form(fields: Sequence[Field], form: Mapping[str, Sequence[str]]) -> JsonObject:
    """Return the content of a form without its empty fields; raise Invalid for an unknown field. `in_layout` checks values."""
    by_name = {field.name: field for field in fields}
    content: JsonObject = {}
    for name in form.keys() - set(BESIDE):
        if name not in by_name:
            raise Invalid(
                "This form has a field that the task does not ask for. Nothing was stored."
            )
        if texts := [text for text in form[name] if text.strip()]:
            _put(content, by_name[name].path, by_name[name].read(texts))
    return content


def in_layout(fields: Sequence[Field], content: Mapping, draft: bool = False) -> JsonObject:
    """Return the content of fields in the layout in which it is stored.

    Raise Invalid if a field has a wrong value, or is missing; fields of a draft may be missing.
    """
    stored: JsonObject = {}
    for field in fields:
        value = _at(content, field.path)
        blank = {"text": "", "tags": []}.get(field.kind)
        value = blank if value is None else field.checked(value, draft)
        if value is None and field.request and not draft:
            raise Invalid(field.request)
        if len(field.path) > 1:
            stored.setdefault(field.path[0], {})
        if len(field.path) == 1 or value not in (None, ""):
            _put(stored, field.path, value)
    return stored


def values_of(fields: Sequence[Field], content: Mapping) -> dict[str, list[str]]:
    """Return the values of the fields, by name, for a content."""
    values = {}
    for field in fields:
        value = _at(content, field.path)
        texts = value if isinstance(value, list) else [value]
        values[field.name] = [str(text) for text in texts if text is not None]
    return values


def checked_reason(reason: str) -> str:
    """Return the reason for skipping a task; raise Invalid if it is empty or too long."""
    if not (text := Field(("reason",), "text", "Reason").checked(reason)):
        raise Invalid("Please say in a few words why you skip this task.")
    return text


def _put(content: JsonObject, path: tuple[str, ...], value: Any) -> None:
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
