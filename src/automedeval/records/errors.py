"""The errors that a user can correct, and how those of libraries become one of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class AutoMedEvalError(ValueError):
    """An error that the user can correct; the message is one readable line."""


class RecordError(AutoMedEvalError):
    """A record, a file or an argument is wrong; the message names the place and the value."""


class UnclearArguments(RecordError):
    """What a file holds can be read in several ways; `arguments` are words of the command line that name one of these."""

    def __init__(self, message: str, arguments: Sequence[str]):
        super().__init__(message)
        self.arguments = arguments


class ChatError(AutoMedEvalError):
    """The chat cannot go on: wrong key, no such model, endpoint down."""


@contextmanager
def errors_at(place: object) -> Iterator[None]:
    """Begin the message of a RecordError that is raised inside with the place that it is about."""
    try:
        yield
    except RecordError as error:
        raise RecordError(f"{place}: {error}") from None


@contextmanager
def foreign_errors_at(place: object, *kinds: type[Exception], advice: str = "") -> Iterator[None]:
    """Turn an error of these kinds that is raised inside, without any of every kind, into a RecordError about a place.

    The project's own errors pass as they are. `advice` stands behind the reason.
    """
    caught = kinds or (Exception,)
    try:
        yield
    except AutoMedEvalError:
        raise
    except caught as error:
        raise RecordError(f"{place}: {reason(error)}{advice}") from None


def reason(error: BaseException) -> str:
    """Return in one line why something failed, in the words of the system or the library."""
    if isinstance(error, FileExistsError):
        return "a file stands where a folder is needed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words, kind = " ".join(str(error).split())[:300], type(error).__name__
    if isinstance(error, LookupError):  # which has the key alone
        return f"{kind}: {words}"
    return words or kind
