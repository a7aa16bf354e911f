"""What to use instead of commands and options that are gone: the table is templates/gone.yaml."""

from automedeval.records.tables import packaged

_TABLE = packaged("records", "gone")
COMMANDS: dict[str, str] = _TABLE["commands"]
OPTIONS: dict[str, str] = _TABLE["options"]


def explain(message: str, *names: str) -> str:
    """Return an error's message, with what to use instead of the first of these names that is gone."""
    known = COMMANDS | OPTIONS
    return next(
        (f"{message}: it is gone; {known[name]}" for name in names if name in known), message
    )
