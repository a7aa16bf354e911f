"""The reference that the author of a task gave. Harnesses write it as a text, a list, an index or a letter of a choice."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.records import RecordError

# What Python writes for a value that is no text
_VALUE = re.compile(
    r"""None|True|False|[-+]?(inf|nan|[\d.]+(e[-+]?\d+)?)|[\[({]((['"\d\[({+-]|None|True|False|inf|nan).*)?[\])}]""",
    re.DOTALL,
)


def reference_of(target: Any) -> str | None:
    """Return a target as one text, the texts of a list one a line; None where there is none.

    RecordError if it is something else, such as a number: what it stands for is not known.
    """
    given = target if isinstance(target, list | tuple) else [target]
    texts = [each for each in given if each is not None and each == each]  # JSON of others has NaN
    if not all(isinstance(each, str) for each in texts):
        raise RecordError(f"no text and no list of texts: {str(target)[:60]}")
    return "\n".join(each for each in texts if each.strip()) or None


def reference_of_choices(choices: Sequence[Any] | None, gold: int | Sequence[int] | None) -> str | None:
    """Return the right choices of a document of lighteval as one text; None where it has no choices.

    RecordError if an index is that of no choice, or a choice is no text.
    """
    texts: list[Any] = []
    for index in (gold if isinstance(gold, list) else [gold]) if choices else ():
        if not isinstance(index, int) or not 0 <= index < len(choices or ()):
            raise RecordError(f"{index} is the index of no choice")
        texts += choice if isinstance(choice := (choices or ())[index], list) else [choice]
    return reference_of(texts)


def reference_of_letters(target: Any, options: Mapping[str, str]) -> str | None:
    """Return a target of inspect_ai as one text, with the options that its letters name; see `lettered`, `reference_of`."""
    texts: list[Any] = []
    for each in target if isinstance(target, list) else [target]:
        letters = [] if not isinstance(each, str) else [each] if each in options else list(each)
        shown = [options[letter] for letter in letters if letter in options]
        texts += shown if shown and len(shown) == len(letters) else [each]
    return reference_of(texts)


def lm_eval_reference(target: Any) -> str | None:
    """Return the target of a sample of lm-evaluation-harness, which is what `str` made of the author's value.

    RecordError if it may have been something else than a text, or a template filled with nothing.
    """
    if isinstance(target, str) and (_VALUE.fullmatch(target) or re.search(r"\bNone\b", target)):
        raise RecordError(f"it cannot be told what was written as {target[:60]!r}")
    return reference_of(target)
