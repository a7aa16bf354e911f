"""Define the fields of a form; read what a browser sends, and check it before it is stored.

The same list of fields renders the form and reads it. Error messages are for the physician.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.records import AutoMedEvalError, JsonObject
from automedeval.records.types import as_list

LONGEST = 2_000  # characters of a comment, or of the reason for skipping
LONGEST_RATIONALE = 20_000  # characters of a rationale, or as many as the one on record has
BESIDE = ("version", "then", "reason")  # further fields of every form


class Refused(AutoMedEvalError):
    """A request that stores nothing; the message is one sentence for the physician, below the heading."""

    status = 404
    heading = "Not found"


class Invalid(Refused):
    """The form does not fit the task."""

    status = 422
    heading = "This does not fit"


@dataclass(frozen=True)
class Option:
    """One option of a field: stored value, text of the button, meaning and keyboard key."""

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

    def stored(self, texts: Sequence[str], draft: bool = False) -> Any:
        """Return what is stored of the texts that a browser sent for the field, None if no option was chosen.

        Raise Invalid if the field does not allow them.
        """
        given = [text for text in texts if text.strip()]
        if len(given) > 1 and self.kind != "tags":
            raise self.invalid("there are two answers. Nothing was stored.")
        if self.kind == "text":
            text = "".join(given).strip()
            if len(text) > self.limit and not draft:  # too long a text is kept as a draft, not lost
                raise self.invalid(
                    f"{len(text):,} characters are too many; at most {self.limit:,} can be stored."
                )
            return text
        chosen = [option.value for option in self.options if str(option.value) in given]
        if len(chosen) < len(given):
            raise self.invalid("this is not one of the answers. Nothing was stored.")
        if self.kind == "tags":
            return chosen
        return chosen[0] if chosen else None


def read_form(
    fields: Sequence[Field], form: Mapping[str, Sequence[str]], draft: bool
) -> JsonObject:
    """Return the content of a form (name → texts) in the layout in which it is stored.

    Raise Invalid for an unknown field, a wrong value, or one that is missing; fields of a draft may be missing.
    """
    if form.keys() - {field.name for field in fields} - set(BESIDE):
        raise Invalid("This form has a field that the task does not ask for. Nothing was stored.")
    content: JsonObject = {}
    for field in fields:
        value = field.stored(form.get(field.name, ()), draft)
        if value is None and field.request and not draft:
            raise Invalid(field.request)
        *groups, name = field.path
        group = content
        for key in groups:
            group = group.setdefault(key, {})
        if not groups or value not in (None, ""):
            group[name] = value
    return content


def values_of(fields: Sequence[Field], content: Mapping) -> dict[str, list[str]]:
    """Return the values of the fields, by name, for a content."""
    values = {}
    for field in fields:
        value = _at(content, field.path)
        values[field.name] = [str(text) for text in as_list(value) if text is not None]
    return values


def checked_reason(reason: str) -> str:
    """Return the reason for skipping a task; raise Invalid if it is empty or too long."""
    if not (text := Field(("reason",), "text", "Reason").stored([reason])):
        raise Invalid("Please say in a few words why you skip this task.")
    return text


def _at(content: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path, None if there is none; a list has its values by slot, from 1."""
    for key in path:
        if isinstance(content, list):
            content = content[int(key) - 1] if int(key) <= len(content) else None
        else:
            content = content.get(key) if isinstance(content, Mapping) else None
    return content
