"""Commands and options that are gone, each with what to use instead: one line tells who still names one.

An option is a key of a run's YAML file as well. The table stands until the first release.
"""

COMMANDS: dict[str, str] = {
    "page": "a container serves the physicians' page, see docs/annotation.md",
}
OPTIONS: dict[str, str] = {
    "study": "a container serves the physicians' page, see docs/annotation.md",
}


def explain(message: str, *names: str) -> str:
    """Return an error's message, with what to use instead of the first of these names that is gone."""
    known = COMMANDS | OPTIONS
    return next((f"{message}: it is gone; {known[name]}" for name in names if name in known), message)
