"""Read the rows of a file of any kind: JSON Lines, Parquet, CSV, a JSON array, a spreadsheet, or a dataset of the Hub."""

import csv
import io
import itertools
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.records.errors import RecordError, foreign_errors_at
from automedeval.records.readers import Placed, parse_json, read_lines, read_text

SEPARATORS = ",;\t"  # spreadsheets write ";" where "," stands in numbers
PLAIN = re.compile(
    r"General|@|(?:0|#,##0)(?:\.0+)?"
)  # formats of numbers without a sign, a unit or a zero in front


def read_rows(path: str | Path, split: str = "") -> Iterator[Placed]:
    """Yield `(place, row)` of a .csv, .tsv, .xlsx, .json, .jsonl or .parquet file, or of a `split` of a dataset of the Hub.

    `place` is "file:line" for error messages. Rows of a table whose cells are all blank are skipped. RecordError if the file
    cannot be read, is not UTF-8, or does not hold rows.
    """
    file = Path(path)
    read = {**SHEETS, ".json": _read_json}.get(file.suffix.lower())
    if read is None:
        yield from read_lines(path, split)
        return
    yield from read(file)


def _read_csv(file: Path) -> Iterator[Placed]:
    csv.field_size_limit(2**31 - 1)  # an answer may be longer than the 128 KiB that csv expects
    text = read_text(file)
    # Excel may name the separator in a line in front, whose end stays, so that the others keep their numbers.
    named = re.match(r"sep=([,;\t])(?=[\r\n])", text)
    if named:
        text = text[named.end() :]
    fits = []
    for separator in named[1] if named else SEPARATORS:
        with suppress(RecordError):  # a name between quotation marks is no CSV by another one
            if len(next(_cells(file, text, separator), ("", []))[1]) > 1:
                fits.append(separator)
    if len(fits) > 1:
        signs = " or ".join(map(repr, fits))
        raise RecordError(
            f"{file}: {signs} may separate the cells: save it with one that no column's name has"
        )
    yield from _named(file, _cells(file, text, fits[0] if fits else SEPARATORS[0]))


def _cells(file: Path, text: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """Yield ("file:line", cells) of each row that has a filled cell; RecordError for one that cannot be read."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    width = 0
    try:
        for cells in reader:
            if any(map(filled, cells)):
                width = width or len(cells)
                if len(cells) != width:
                    missing = f"the row does not have the header's {width} columns"
                    raise RecordError(f"{file}:{reader.line_num}: {missing}")
                yield f"{file}:{reader.line_num}", cells
    except csv.Error as error:
        raise RecordError(f"{file}:{reader.line_num}: not CSV: {error}") from None


def _read_xlsx(file: Path) -> Iterator[Placed]:
    import openpyxl  # takes its time, and only spreadsheets need it

    sheets = {}
    with foreign_errors_at(f"{file}: cannot be read as a spreadsheet"):
        merged = _merged_cells(file)
        values = openpyxl.load_workbook(file, read_only=True, data_only=True)
        formulas = openpyxl.load_workbook(file, read_only=True)
        for sheet, written in zip(values.worksheets, formulas.worksheets):
            # the dimensions that the file states may be of an earlier content
            sheet.reset_dimensions()
            written.reset_dimensions()
            rows = []
            for cells, formulas_of_row in zip(sheet.iter_rows(), written.iter_rows()):
                rows.append(list(map(_cell, cells, formulas_of_row)))
            _mark_merged(rows, merged.get(sheet.title, ()))
            if any(map(filled, itertools.chain(*rows))):
                sheets[sheet.title] = rows
    if len(sheets) > 1:
        names = ", ".join(map(repr, sheets))
        raise RecordError(
            f"{file}: the sheets {names} have cells; save the one with the answers as a file of its own"
        )
    for rows in sheets.values():
        placed = ((f"{file}: row {number}", row) for number, row in enumerate(rows, 1))
        yield from _named(file, placed)


def _merged_cells(file: Path) -> dict[str, list[Any]]:
    """Return the merged cells of each sheet; a book without them is not read as a whole."""
    import openpyxl

    with zipfile.ZipFile(file) as archive:
        sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
        if not any(b"mergeCell " in archive.read(name) for name in sheets):
            return {}
    return {
        sheet.title: list(sheet.merged_cells.ranges)
        for sheet in openpyxl.load_workbook(file).worksheets
    }


def _mark_merged(rows: list[list[Any]], merged: Iterable[Any]) -> None:
    """Put what it is into each cell below the first one of merged cells, which has none of their content."""
    for cells in merged:
        what = f"a part of the merged cells {cells.coord}: part them, and fill each one"
        for row in rows[cells.min_row : cells.max_row]:
            row += [""] * (cells.max_col - len(row))
            for column in range(cells.min_col - 1, cells.max_col):
                row[column] = NoText(what, merged=True)


@dataclass(frozen=True)
class NoText:
    """A cell of a spreadsheet that has no text; `what` says what it has."""

    what: str
    merged: bool = False  # then it is as a blank cell where nothing reads it

    def __str__(self) -> str:
        return self.what


def _cell(cell: Any, written: Any) -> Any:
    """Return the text of a cell, also of a number, "" if it is blank, else NoText; `written` is the cell with its formula."""
    value = cell.value
    if cell.data_type == "e":
        return NoText(f"the error {value}")
    if value is None and written.data_type == "f" and cell.data_type != "str":
        # else the formula's value is ""
        return NoText("a formula whose value is not in the file")
    if cell.data_type == "n" and value is not None and not PLAIN.fullmatch(cell.number_format):
        return NoText(f"a number that the sheet shows as {cell.number_format!r}: make it a text")
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return str(value)
    return "" if value is None else value


def filled(cell: Any) -> bool:
    """Return whether a cell holds something: a text that is not blank, or another value than null."""
    if isinstance(cell, str):
        return bool(cell.strip())
    return cell is not None and not (isinstance(cell, NoText) and cell.merged)


def _named(file: Path, placed: Iterable[tuple[str, list]]) -> Iterator[Placed]:
    """Yield the rows by the names in the first one; rows without a filled cell are left out, as blank lines are.

    A column without a name gets the one that pandas gives it, "Unnamed: 0" and so on. No two columns may have one name.
    """
    names: list[str] = []
    is_header_alone = False
    for place, cells in placed:
        if not any(map(filled, cells)):
            continue
        if names:
            is_header_alone = False
            names += [f"Unnamed: {at}" for at in range(len(names), len(cells))]
            yield place, dict(itertools.zip_longest(names, cells, fillvalue=""))
            continue
        names = [str(cell).strip() or f"Unnamed: {at}" for at, cell in enumerate(cells)]
        is_header_alone = True
        for name in names:
            if names.count(name) > 1:
                raise RecordError(f"{file}: two columns are called {name!r}")
    if is_header_alone:
        raise RecordError(f"{file}: a header, and no row below it")


def _read_json(file: Path) -> Iterator[Placed]:
    content = read_text(file)
    try:
        rows = parse_json(content)
    except ValueError as error:
        if content.lstrip().startswith("["):
            raise RecordError(f"{file}: not JSON: {error}") from None
        yield from read_lines(file)  # JSON Lines under another name
        return
    if isinstance(rows, dict) and all(isinstance(value, dict | list) for value in rows.values()):
        raise RecordError(
            f"{file}: one object, and no list of rows; pandas writes one by to_json(orient='records')"
        )
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        if not isinstance(row, dict):
            raise RecordError(f"{file}: row {number} is not an object: {json.dumps(row)[:80]}")
        yield f"{file}: row {number}", row


SHEETS = {".csv": _read_csv, ".tsv": _read_csv, ".xlsx": _read_xlsx}
