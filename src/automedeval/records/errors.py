"""The errors that a user can correct."""

from collections.abc import Iterator
from contextlib import contextmanager


class AutoMedEvalError(ValueError):
    """An error that the user can correct; the message is one readable line."""


class RecordError(AutoMedEvalError):
    """A record, a file or an argument is wrong; the message names the place and the value."""


@contextmanager
def errors_at(place: object) -> Iterator[None]:
    """Begin the message of a RecordError that is raised inside with the place that it is about."""
    try:
        yield
    except RecordError as error:
        raise RecordError(f"{place}: {error}") from None


class ChatError(AutoMedEvalError):
    """The chat cannot go on: wrong key, no such model, endpoint down."""
