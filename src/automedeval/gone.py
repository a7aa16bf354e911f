"""Commands and options that are gone, each with what to use instead: one line tells who still names one.

An option is a key of a run's YAML file as well. The table stands until the first release.
"""

COMMANDS: dict[str, str] = {
    "abstain": "use `automedeval calibrate --risk R`",
    "jury": "compare the judges by `automedeval compare --verdicts A B`",
    "preferences": "use `automedeval export --to preferences`",  # recipes/preferences.py
}
OPTIONS: dict[str, str] = {
    "abstain_at": "use `automedeval calibrate --risk R`",
    "uncertified": "use `automedeval export --to preferences`",
}


def explain(message: str, *names: str) -> str:
    """Return an error's message, with what to use instead of the first of these names that is gone."""
    known = COMMANDS | OPTIONS
    return next((f"{message}: it is gone; {known[name]}" for name in names if name in known), message)
