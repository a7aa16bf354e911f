"""Declare and check arguments of the command line; every error names the option, its value and what is allowed."""

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from automedeval.records.types import RecordError


def option(default: Any, about: str, **more: Any) -> Any:
    """Return the field of an option: its default (MISSING: it is required), its help, and what argparse takes of it."""
    return field(default=default, metadata={"help": about, **more})


def check_least(arguments: object, least: float, *names: str) -> None:
    """Raise RecordError if one of the named attributes is less than `least`, or no number; None passes."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not value >= least:
            raise RecordError(f"--{name} must be at least {least}, not {value}")


def check_between(arguments: object, low: float, high: float, *names: str) -> None:
    """Raise RecordError unless each of the named attributes is above `low` and below `high`."""
    for name in names:
        value = getattr(arguments, name)
        if not low < value < high:
            raise RecordError(f"--{name} must be above {low} and below {high}, not {value}")


def check_choice(name: str, value: str | None, allowed: Sequence[str]) -> None:
    """Raise RecordError unless the value of the option `name` is allowed; None passes."""
    if value is not None and value not in allowed:
        raise RecordError(f"--{name} must be one of {', '.join(allowed)}, not {value!r}")


def check_patterns(arguments: object, *names: str) -> None:
    """Raise RecordError if one of the named attributes is no regular expression; None passes."""
    for name in names:
        try:
            re.compile(getattr(arguments, name) or "")
        except re.error as error:
            raise RecordError(f"--{name}: not a regular expression: {error}") from None
