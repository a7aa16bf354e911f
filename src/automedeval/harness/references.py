"""The reference that the author of a task gave. Harnesses write it as a text, a list, an index or a letter of a choice."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.records import RecordError

# What Python writes for a value that is no text
_VALUE = re.compile(
    r"""None|True|False|[-+]?(inf|nan|[\d.]+(e[-+]?\d+)?)|[\[({]((['"\d\[({+-]|None|True|False|inf|nan).*)?[\])}]""",
    re.DOTALL,
)
_COLUMN = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


def reference_of(target: Any) -> str | None:
    """Return a target as one text, the texts of a list one a line; None where there is none.

    RecordError if it is something else, such as a number: what it stands for is not known.
    """
    texts = [each for each in (target if isinstance(target, list | tuple) else [target]) if not _missing(each)]
    if not all(isinstance(each, str) for each in texts):
        raise RecordError(f"no text and no list of texts: {str(target)[:60]}")
    return "\n".join(each for each in texts if each.strip()) or None


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def reference_of_choices(choices: Sequence[Any] | None, gold: int | Sequence[int] | None) -> str | None:
    """Return the right choices of a document as one text; None where it has no choices.

    RecordError if an index is that of no choice, or a choice is no text.
    """
    if not choices:
        return None
    chosen = _chosen(gold if isinstance(gold, list) else [gold], list(choices))
    return reference_of([each for choice in chosen for each in (choice if isinstance(choice, list) else [choice])])


def reference_of_letters(target: Any, options: Mapping[str, str]) -> str | None:
    """Return a target of inspect_ai as one text, with the options that its letters name; see `lettered`, `reference_of`."""
    texts: list[Any] = []
    for each in target if isinstance(target, list) else [target]:
        letters = [] if not isinstance(each, str) else [each] if each in options else list(each)
        shown = [options[letter] for letter in letters if letter in options]
        texts += shown if shown and len(shown) == len(letters) else [each]
    return reference_of(texts)


def lm_eval_reference(sample: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Return the reference of a sample of lm-evaluation-harness, which keeps of its target only what `str` makes of it.

    So the target is looked up in `doc` of the sample, in the column that `doc_to_target` of the task's configuration names;
    `doc_to_choice` names the choices. Nothing of the configuration is run; it is empty if it is not known. RecordError if no
    column is named, and the target may have been something else than a text.
    """
    doc, target, way = sample.get("doc"), sample.get("target"), config.get("doc_to_target")
    if column := _column(doc, way):
        value = column[0]
    elif not isinstance(target, str):
        value = target
    elif _VALUE.fullmatch(target) or (way is None and re.search(r"\bNone\b", target)):
        raise RecordError(f"it cannot be told what was written as {target[:60]!r}")
    else:
        value = target
        parts = [part for name in _COLUMN.finditer(str(way)) for part in _column(doc, name[0])]
        if any(not str(part or "").strip() for part in parts):
            raise RecordError(f"a part of {target[:60]!r} is empty")
    choices = config.get("doc_to_choice")
    if choices is not None:
        choices = list(choices.values()) if isinstance(choices, dict) else choices
        choices = choices if isinstance(choices, list) else next(iter(_column(doc, choices)), None)
        value = _chosen(value, choices if isinstance(choices, list) else [])
    return reference_of(value)


def _column(doc: Any, way: Any) -> list[Any]:
    """Return [the value] of the column of a document that is named as NAME or {{NAME}}; [] where nothing else is said."""
    if not isinstance(way, str) or not isinstance(doc, dict):
        return []
    if way in doc:
        return [doc[way]]
    named = _COLUMN.fullmatch(way.strip())
    for name in named[1].split(".") if named else ():
        if not isinstance(doc, dict) or name not in doc:
            return []
        doc = doc[name]
    return [doc] if named else []


def _chosen(value: Any, choices: list[Any]) -> Any:
    """Return a target with the choices in place of their indices; a text that is no index is kept."""
    if isinstance(value, list):
        return [_chosen(each, choices) for each in value]
    if isinstance(value, str) and value.isdecimal() and value not in choices:
        value = int(value)
    if not isinstance(value, int):
        return value
    if not 0 <= value < len(choices):
        raise RecordError(f"{value} is the index of no choice")
    return choices[value]
