"""The errors that a user can correct."""


class AutoMedEvalError(ValueError):
    """An error that the user can correct; the message is one readable line."""


class RecordError(AutoMedEvalError):
    """A record, a file or an argument is wrong; the message names the place and the value."""


class ChatError(AutoMedEvalError):
    """The chat cannot go on: wrong key, no such model, endpoint down."""
