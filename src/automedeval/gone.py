"""Commands and options that are gone, each with what to use instead: one line tells who still names one.

An option is a key of a run's YAML file as well; NAME=VALUE is one value of an option that stays. The table stands until the
first release.
"""

COMMANDS: dict[str, str] = {}
OPTIONS: dict[str, str] = {
    "batch_answers": "put the answers into FILE.answers.jsonl beside FILE.jsonl of --batch_file",
    "layout=medquad": "use --columns question=question reference=answer topic=focus",
    "layout=pandalm": "write cases.jsonl with model and text of each response, and choices.jsonl",
    "layout=table": "leave it out, or use --columns",
}


def explain(message: str, *names: str) -> str:
    """Return an error's message, with what to use instead of the first of these names that is gone."""
    known = COMMANDS | OPTIONS
    return next((f"{message}: it is gone; {known[name]}" for name in names if name in known), message)
