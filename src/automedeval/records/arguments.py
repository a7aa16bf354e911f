"""Declare options of the command line, and check them; every error names the option, its value and what is allowed."""

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any

from automedeval.records.errors import RecordError, foreign_errors_at
from automedeval.records.run_record import columns_of_run

MOST = 2_000_000  # of any number: sockets take few more seconds
BLANK = ("lowest", "skip")  # what a blank cell of a candidate is, see `columns.without_blanks`


def option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """Return the field of an option in a dataclass of arguments; without a default it is required; `more` is argparse's."""
    metadata = dict(more, help=help)
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def check_least(arguments: object, least: float, *names: str) -> None:
    """Raise RecordError if a named attribute is not from `least` to `MOST`; None passes."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not least <= value <= MOST:
            raise RecordError(f"--{name} must be at least {least}, at most {MOST:,}, not {value}")


def check_patterns(arguments: object, *names: str) -> None:
    """Raise RecordError if one of the named attributes is no regular expression; None passes."""
    for name in names:
        with foreign_errors_at(f"--{name}: not a regular expression", re.error):
            re.compile(getattr(arguments, name) or "")


def comma_list(values: str | Sequence[str] | None) -> list[str]:
    """Return the entries, separated by commas, of one or several values; blanks and empty entries are dropped."""
    text = values if isinstance(values, str) else ",".join(values or ())
    return list(filter(None, map(str.strip, text.split(","))))


@dataclass(kw_only=True)
class TableArguments:
    """How tables of answers are read: the base of the arguments of every program that reads cases."""

    blank: str | None = option(
        "blank cells of candidates in a table of answers: lowest: the model was asked and gave no answer, which "
        "has the lowest score; skip: it was not asked (default: stop and count them)",
        None,
        choices=list(BLANK),
    )
    columns: list[str] = option(
        "columns of a table of answers that are not known by their names: ROLE=COLUMN for question, reference, topic, "
        "cluster, id, and model and answer if a row is one answer; or all columns with candidates' answers",
        [],
    )

    @property
    def table(self) -> dict:
        """How `read_cases` is told to read a table."""
        return {"blank": self.blank, "columns": self.columns}

    def judged_table(self, verdicts: Sequence[str], cases: str) -> dict[str, Any]:
        """How `read_cases` is told to read a table that was judged: without --columns, by those of the run."""
        return self.table | {"columns": self.columns or columns_of_run(verdicts, cases)}


@dataclass(kw_only=True)
class BaselineArguments(TableArguments):
    """The arguments of programs that compare models."""

    baseline: str | None = option(
        "the model that each other one is compared with, case by case (default: the first of v1=… v2=…; "
        "by pairwise rubrics only pairs with it are judged)",
        None,
    )
