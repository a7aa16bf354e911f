"""Read the cases of a file: records of cases, or a table of answers."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from automedeval.records.columns import Columns, UnclearColumns
from automedeval.records.rows import SHEETS, read_rows
from automedeval.records.types import Case, RecordError, digest


def read_cases(path: str | Path, least_responses: int = 1) -> Iterator[Case]:
    """Yield the cases of a file one by one; `least_responses=0` accepts cases without responses.

    Records of cases (JSON Lines, Parquet, a dataset of the Hub) are read one by one. A table of answers (CSV, a JSON array, a
    spreadsheet, or JSON Lines without the key `responses`) is read as a whole, see `Columns`; a case without an id is named by
    its question, so that further candidates and another order of the rows change no id.

    Raises:
        RecordError: a row cannot be read or is no case, an id is repeated, or the file has no case.
    """
    seen: dict[str, str] = {}
    for place, case in _placed_cases(path, least_responses):
        if case.id in seen:
            raise RecordError(f"{place}: the id {case.id!r} stands at {seen[case.id]} already")
        seen[case.id] = place
        yield case
    if not seen:
        raise RecordError(f"{path}: the file is empty")


def columns_of(path: str | Path) -> Columns | None:
    """Return what the columns of a table of answers hold, None for a file of cases; RecordError as `read_cases`."""
    rows = read_rows(path, hub=True)
    first = next(rows, None)
    return _guessed(path, [first, *rows], 1) if first and _is_table(path, first[1], 1) else None


def _is_table(path: str | Path, row: dict, least_responses: int) -> bool:
    """Return whether a file with this first row is a table of answers."""
    if "responses" in row or Path(path).suffix in SHEETS:
        return "responses" not in row
    if Path(path).suffix == ".json" or not least_responses:
        return bool(least_responses)
    try:
        Columns.guessed([row])
    except UnclearColumns:
        return False  # the error about a record says more
    return True


def _guessed(path: str | Path, rows: list[tuple[str, dict]], least_responses: int) -> Columns:
    try:
        return Columns.guessed([row for _, row in rows], least_responses)
    except UnclearColumns as error:
        raise RecordError(f"{path}: {error}; automedeval prepare {path} --columns question=NAME … says it") from None


def _placed_cases(path: str | Path, least_responses: int) -> Iterator[tuple[str, Case]]:
    rows = read_rows(path, hub=True)
    first = next(rows, None)
    if first is None:
        return
    if not _is_table(path, first[1], least_responses):
        for place, row in itertools.chain([first], rows):
            yield place, _checked(row, place, least_responses)
        return
    rows = [first, *rows]
    names: set[str] = set()
    for place, case in _guessed(path, rows, least_responses).cases(rows):
        name = case.id or f"q-{digest(case.question)}"
        if not case.id:  # a question that is asked again is a case of its own
            numbered = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
            name = next(each for each in numbered if each not in names)
        names.add(name)
        yield place, _checked(replace(case, id=name).to_dict(), place, least_responses)


def _checked(row: dict, place: str, least_responses: int) -> Case:
    try:
        return Case.from_dict(row, least_responses)
    except RecordError as error:
        raise RecordError(f"{place}: {error}") from None
