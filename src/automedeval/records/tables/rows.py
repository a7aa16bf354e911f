"""Read the rows of a file of any kind: JSON Lines, Parquet, CSV, a JSON array, a spreadsheet, or a dataset of the Hub."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from automedeval.records.errors import RecordError, foreign_errors_at
from automedeval.records.readers import Placed, parse_json, read_lines, read_text

SEPARATORS = ",;\t"  # spreadsheets write ";" where "," stands in numbers


def read_rows(path: str | Path, split: str = "") -> Iterator[Placed]:
    """Yield `(place, row)` of a .csv, .tsv, .xlsx, .json, .jsonl or .parquet file, or of a `split` of a dataset of the Hub.

    `place` is "file:line" for error messages. Rows of a table whose cells are all blank are skipped. RecordError if the file
    cannot be read, is not UTF-8, or does not hold rows.
    """
    file = Path(path)
    read = {**SHEETS, ".json": _read_json}.get(file.suffix.lower())
    yield from read(file) if read else read_lines(path, split)


def _read_csv(file: Path) -> Iterator[Placed]:
    csv.field_size_limit(2**31 - 1)  # an answer may be longer than the 128 KiB that csv expects
    text = read_text(file)
    fits = []
    for separator in SEPARATORS:
        with suppress(RecordError):  # a name between quotation marks is no CSV by another one
            _, names = next(_cells(file, text, separator), ("", []))
            if len(names) > 1:
                fits.append(separator)
    if len(fits) > 1:
        signs = " or ".join(map(repr, fits))
        raise RecordError(
            f"{file}: {signs} may separate the cells: save it with one that no column's name has"
        )
    yield from _named(file, _cells(file, text, [*fits, ","][0]))


def _cells(file: Path, text: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """Yield ("file:line", cells) of each row that has a filled cell; RecordError for one that cannot be read."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    width = 0
    try:
        for cells in reader:
            if any(map(filled, cells)):
                width = width or len(cells)
                if len(cells) != width:
                    raise RecordError(
                        f"{file}:{reader.line_num}: the row does not have the header's "
                        f"{width} columns"
                    )
                yield f"{file}:{reader.line_num}", cells
    except csv.Error as error:
        raise RecordError(f"{file}:{reader.line_num}: not CSV: {error}") from None


def _read_xlsx(file: Path) -> Iterator[Placed]:
    import openpyxl  # takes its time, and only spreadsheets need it

    sheets = {}
    with foreign_errors_at(f"{file}: cannot be read as a spreadsheet"):
        values = openpyxl.load_workbook(file, read_only=True, data_only=True)
        formulas = openpyxl.load_workbook(file, read_only=True)
        for sheet, written in zip(values.worksheets, formulas.worksheets):
            # the dimensions that the file states may be of an earlier content
            sheet.reset_dimensions()
            written.reset_dimensions()
            pairs = zip(sheet.iter_rows(), written.iter_rows())
            rows = [list(map(_content, cells, given)) for cells, given in pairs]
            if any(map(filled, chain(*rows))):
                sheets[sheet.title] = rows
    if len(sheets) > 1:
        names = ", ".join(map(repr, sheets))
        raise RecordError(
            f"{file}: the sheets {names} have cells; save the one with the answers as a file of its own"
        )
    for rows in sheets.values():
        numbered = enumerate(rows, 1)
        placed = (
            (f"{file}: row {number}", row) for number, row in numbered if any(map(filled, row))
        )
        yield from _named(file, placed)


class _NoValue:
    """A formula whose value was not saved, which is neither a text nor blank."""

    def __str__(self) -> str:
        return "a formula without a value: open and save the file in a spreadsheet program"


def _content(cell: Any, written: Any) -> Any:
    """Return the text of a cell, also of a number, "" of a blank one; else what is no text, such as a date.

    `written` is the cell with its formula.
    """
    value = cell.value
    # else the formula's value is ""
    if value is None and written.data_type == "f" and cell.data_type != "str":
        return _NoValue()
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return str(value)
    return "" if value is None else value


def filled(cell: Any) -> bool:
    """Return whether a cell holds something: a text that is not blank, or another value than null."""
    return bool(cell.strip()) if isinstance(cell, str) else cell is not None


def _named(file: Path, placed: Iterable[tuple[str, list]]) -> Iterator[Placed]:
    """Yield rows, each with a filled cell, by the names in the first one.

    A column without a name gets the one that pandas gives it, "Unnamed: 0" and so on. No two columns may have one name.
    """
    names: list[str] = []
    for place, cells in placed:
        if names:
            names += [f"Unnamed: {at}" for at in range(len(names), len(cells))]
            yield place, dict(zip_longest(names, cells, fillvalue=""))
            continue
        names = [str(cell).strip() or f"Unnamed: {at}" for at, cell in enumerate(cells)]
        for name in names:
            if names.count(name) > 1:
                raise RecordError(f"{file}: two columns are called {name!r}")


def _read_json(file: Path) -> Iterator[Placed]:
    content = read_text(file)
    try:
        rows = parse_json(content)
    except ValueError as error:
        if content.lstrip().startswith("["):
            raise RecordError(f"{file}: not JSON: {error}") from None
        yield from read_lines(file)  # JSON Lines under another name
        return
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        if not isinstance(row, dict):
            raise RecordError(f"{file}: row {number} is not an object: {json.dumps(row)[:80]}")
        yield f"{file}: row {number}", row


SHEETS = {".csv": _read_csv, ".tsv": _read_csv, ".xlsx": _read_xlsx}
