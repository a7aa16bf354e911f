"""Read the cases of a file: records of cases, or a table of answers."""

import gc
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from automedeval.records.errors import errors_at
from automedeval.records.messages import without_messages
from automedeval.records.questions import question_text
from automedeval.records.readers import Placed, located
from automedeval.records.tables.columns import (
    Columns,
    PlacedCase,
    PlacedCases,
    no_value,
    without_blanks,
)
from automedeval.records.tables.rows import SHEETS, read_rows
from automedeval.records.types import Case, RecordError, digest


class Table(NamedTuple):
    """What a table of answers holds."""

    columns: Columns  # that were read
    cases: PlacedCases  # unchecked
    line: str  # on columns, rows and cases, and on what is blank or not the same


def read_cases(
    path: str | Path,
    least_responses: int = 1,
    blank: str | None = None,
    columns: Sequence[str] = (),
) -> Iterator[Case]:
    """Yield the cases of a file one by one; `least_responses=0` accepts cases without responses.

    Records of cases (JSON Lines, Parquet, a dataset of the Hub) are read one by one. A table of answers (CSV, a JSON array, a
    spreadsheet, or JSON Lines without the key `responses`) is read as a whole, see `read_table`; `without_blanks` says what
    `blank` is. RecordError if a row cannot be read or is no case, an id is repeated, or the file has no case.
    """
    yield from CaseFile(path, least_responses, blank, columns)


class CaseFile:
    """The cases of a file, see `read_cases`, to be read through once; `table` is what a table of answers holds, else None."""

    def __init__(
        self,
        path: str | Path,
        least_responses: int = 1,
        blank: str | None = None,
        columns: Sequence[str] = (),
    ):
        path = located(path)
        self.path = path
        self.least_responses = least_responses
        self.table: Table | None = None
        rows = read_rows(path, split="test")
        first = list(islice(rows, 1))
        self._rows: Iterable[Placed] = chain(first, rows)
        if any("responses" in row for _, row in first):
            if columns:
                raise RecordError(
                    f"{path}: --columns are those of a table, and this file has cases"
                )
        elif first and (least_responses or columns or Path(path).suffix.lower() in SHEETS):
            self.table = read_table(path, self._rows, blank, columns, least_responses)
            self._rows = ((place, case.to_dict()) for place, case in self.table.cases)
        self._cases = self._read()

    @property
    def notes(self) -> list[str]:
        """Return a line on what is read of a table; none for a file of cases."""
        return [self.table.line] if self.table else []

    def __iter__(self) -> Iterator[Case]:
        return self._cases

    def first(self, limit: int | None) -> list[Case]:
        """Read the first `limit` cases, or all; to go on with the others, iterate."""
        was_on = gc.isenabled()
        gc.disable()  # which would look through all of them again and again: a fifth of the time of a million
        try:
            return list(islice(self, limit))
        finally:
            # They go to the oldest objects, which it seldom looks through.
            gc.freeze()
            gc.unfreeze()
            if was_on:
                gc.enable()

    def _read(self) -> Iterator[Case]:
        places: dict[str, str] = {}  # of the cases, by id
        for place, row in self._rows:
            with errors_at(place):
                case = Case.from_dict(row, self.least_responses)
                if case.id in places:
                    raise RecordError(f"the id {case.id!r} stands at {places[case.id]} already")
            places[case.id] = place
            yield case
        if not places:
            raise RecordError(f"{self.path}: the file has no rows")


def read_table(
    path: str | Path,
    placed: Iterable[Placed],
    blank: str | None,
    columns: Sequence[str],
    least_responses: int = 1,
) -> Table:
    """Return what the rows of a table of answers hold, see `Columns.of`; RecordError as `read_cases`."""
    contents = []
    for place, row in placed:
        with errors_at(place):
            contents.append((place, without_messages(row)))
    rows = [row for _, row in contents]
    read = Columns.of(rows, str(path), columns, least_responses)
    cases, notes = read.cases(contents)
    cases, blanks = without_blanks(str(path), cases, blank)
    told = [f"read: {read}"]
    if unread := read.unread(rows):
        told.append(f"not read: {', '.join(unread)}")
    told += [f"rows: {len(rows):,}, cases: {len(cases):,}", *notes, *blanks]
    answers = chain.from_iterable(case.responses for _, case in cases)
    words = sum(no_value(answer.text) for answer in answers)
    if words:
        told.append(f"answers that are words like NA or None, read as they stand: {words:,}")
    answered = [(place, case) for place, case in cases if case.responses or not least_responses]
    if without := len(cases) - len(answered):
        told.append(f"cases without an answer, left out: {without:,}")
    if repeated := len(answered) - len({case.digest for _, case in answered}):
        told.append(
            f"cases with the texts of an earlier one, which count again (of joined files once, without ids): {repeated:,}"
        )
    if not columns:
        told.append("--columns says it otherwise")
    return Table(read, list(_named(answered)), f"{path}: {'; '.join(told)}")


def _named(cases: PlacedCases) -> Iterator[PlacedCase]:
    """Yield the place and the case of each, with an id.

    One without an id is named by the first words of its question and six digits over all of it, so that further candidates and
    another order of the rows change no id. A question that is asked again is a case of its own.
    """
    names = Counter[str]()
    for place, case in cases:
        name = case.id
        if not name:
            words = "-".join(re.findall(r"\w+", question_text(case.question).casefold())[:6])[:48]
            name = f"{words or 'q'}-{digest(case.question)[:6]}"
            names[name] += 1
            if names[name] > 1:
                name += f"-{names[name]}"
        yield place, replace(case, id=name)
