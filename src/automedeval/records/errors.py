"""The errors that a user can correct, and how those of libraries become one of them.

    AutoMedEvalError          the base, a ValueError; the message is one readable line
      x RecordError           every reader, writer and loader: a record, a file or an argument
        + UnclearArguments    records/tables/columns.py: a table can be read in several ways
        + OtherTexts          records/types.py: what was said of a case was said of other texts
      x ChatError             models/endpoint.py, models/decisions.py: no request can be answered
      x Refused               annotation/validation.py: a request to the physicians' page
        + SignedOut           annotation/app.py, status 401
        + NotYours            annotation/store.py and app.py, status 404
        + Stale               annotation/store.py, status 409
        + Invalid             annotation/validation.py, forms.py and app.py, status 422

Catch the base, or of a judge the two that tell who can help:

    try:
        verdicts = list(judge(cases))
    except RecordError as error:  # correct the file or the argument that the message names
        ...
    except ChatError as error:  # correct the key, the model's name or the address, or wait
        ...

Of a command and a recipe `run` of records/command_line.py catches the base: the message on stderr,
exit status 1. The page answers what is `Refused` with its status and its heading. What is wrong
with one answer of a model reaches no caller: the verdict is invalid and says why (`Verdict.error`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class AutoMedEvalError(ValueError):
    """An error that the user can correct; the message is one readable line."""


class RecordError(AutoMedEvalError):
    """A record, a file or an argument is wrong; the message names the place and the value."""


class OtherTexts(RecordError):
    """What was said of a case was said of other texts than it has now."""


class UnclearArguments(RecordError):
    """A table can be read in several ways; `ways` are entries of --columns for some of these."""

    def __init__(self, message: str, *ways: Sequence[str]):
        super().__init__(message)
        self.ways = ways


class ChatError(AutoMedEvalError):
    """The chat cannot go on: wrong key, no such model, endpoint down."""


class errors_at:  # not a generator, which takes three times as long
    """Begin the message of a RecordError that is raised inside with the place that it is about."""

    def __init__(self, place: object):
        self.place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, RecordError):
            raise RecordError(f"{self.place}: {error}") from None


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
    words = " ".join(str(error).split())[:300]
    kind = type(error).__name__
    if isinstance(error, LookupError):  # which has the key alone
        return f"{kind}: {words}"
    return words or kind
