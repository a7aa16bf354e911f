"""Read the cases of a file: records of cases, or a table of answers."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from automedeval.records.columns import Columns, Table
from automedeval.records.errors import errors_at
from automedeval.records.messages import without_messages
from automedeval.records.questions import question_text
from automedeval.records.rows import SHEETS, read_rows
from automedeval.records.types import Case, RecordError, digest


def read_cases(
    path: str | Path,
    least_responses: int = 1,
    blank: str | None = None,
    columns: Sequence[str] = (),
) -> Iterator[Case]:
    """Yield the cases of a file one by one; `least_responses=0` accepts cases without responses.

    Records of cases (JSON Lines, Parquet, a dataset of the Hub) are read one by one. A table of answers (CSV, a JSON array, a
    spreadsheet, or JSON Lines without the key `responses`) is read as a whole, see `table_of`; `without_blanks`
    says what `blank` is. RecordError if a row cannot be read or is no case, an id is repeated, or the file has no case.
    """
    held = _opened(path, least_responses, blank, columns)
    rows = (
        ((place, case.to_dict()) for place, case in held.cases) if isinstance(held, Table) else held
    )
    seen: dict[str, str] = {}
    names: dict[str, str] = {}  # of models, without blanks
    for place, row in rows:
        with errors_at(place):
            case = Case.from_dict(row, least_responses)
            if case.id in seen:
                raise RecordError(f"the id {case.id!r} stands at {seen[case.id]} already")
            for name in case.models:
                if (other := names.setdefault("".join(name.split()), name)) != name:
                    both = f"the models {other!r} and {name!r}"
                    raise RecordError(f"{both} differ by blanks alone: rename one of them")
        seen[case.id] = place
        yield case
    if not seen:
        raise RecordError(f"{path}: the file is empty")


def table_of(
    path: str | Path,
    least_responses: int = 1,
    blank: str | None = None,
    columns: Sequence[str] = (),
) -> Table | None:
    """Return what a table of answers holds, by `columns` and else by their names; None for a file of cases.

    RecordError as `read_cases`.
    """
    held = _opened(path, least_responses, blank, columns)
    return held if isinstance(held, Table) else None


def read_table(
    path: str | Path,
    placed: Iterable[tuple[str, dict]],
    blank: str | None,
    columns: Sequence[str] = (),
    least_responses: int = 1,
) -> Table:
    """Return what the rows of a table of answers hold, see `Columns.of`; RecordError as `read_cases`."""
    contents = [(place, without_messages(row, place)) for place, row in placed]
    held = Columns.of([row for _, row in contents], str(path), columns, least_responses)
    table = held.table(str(path), contents, blank)
    answered = [each for each in table.cases if len(each[1].responses) or not least_responses]
    without = len(table.cases) - len(answered)
    notes = [f"cases without an answer, left out: {without:,}"] if without else []
    return table._replace(cases=list(_named(answered)), notes=table.notes + notes)


def _opened(
    path: str | Path, least_responses: int, blank: str | None, columns: Sequence[str] = ()
) -> Table | Iterator[tuple[str, dict]]:
    """Return a table, or the records of cases."""
    rows = read_rows(path, split="test")
    first = list(itertools.islice(rows, 1))
    of_cases = any("responses" in row for _, row in first)
    of_table = least_responses or columns or Path(path).suffix.lower() in SHEETS
    if of_cases and columns:
        raise RecordError(f"{path}: --columns are those of a table, and this file has cases")
    if not first or of_cases or not of_table:
        return itertools.chain(first, rows)
    placed = [*first, *rows]
    if mixed := next((place for place, row in placed if "responses" in row), None):
        raise RecordError(
            f"{mixed}: has 'responses', as a case has, and the first row is one of a table"
        )
    return read_table(path, placed, blank, columns, least_responses)


def _named(cases: Iterable[tuple[str, Case]]) -> Iterator[tuple[str, Case]]:
    """Yield the place and the case of each, with an id.

    One without an id is named by the first words of its question and six digits over all of it, so that further candidates and
    another order of the rows change no id. A question that is asked again is a case of its own.
    """
    names: set[str] = set()
    for place, case in cases:
        name = case.id
        if not name:
            words = "-".join(re.findall(r"\w+", question_text(case.question).casefold())[:6])[:48]
            name = f"{words or 'q'}-{digest(case.question)[:6]}"
            numbered = itertools.chain(
                [name], (f"{name}-{number}" for number in itertools.count(2))
            )
            name = next(each for each in numbered if each not in names)
        names.add(name)
        yield place, replace(case, id=name)
