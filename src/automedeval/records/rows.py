"""Read the rows of a file of any kind: JSON Lines, Parquet, CSV, a JSON array, a spreadsheet, or a dataset of the Hub."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from automedeval.records.readers import read_lines
from automedeval.records.types import RecordError

SEPARATORS = ",;\t"  # spreadsheets write ";" where "," stands in numbers


def read_rows(path: str | Path, hub: bool = False) -> Iterator[tuple[str, dict]]:
    """Yield `(place, row)` of a .csv, .tsv, .xlsx, .json, .jsonl or .parquet file or, with `hub`, of a dataset of the Hub.

    `place` is "file:line" for error messages. Rows of a table whose cells are all blank are skipped.

    Raises:
        RecordError: the file cannot be read, is not UTF-8, or does not hold rows.
    """
    file = Path(path)
    read = {**SHEETS, ".json": _read_json}.get(file.suffix)
    if read is None:
        yield from read_lines(path, hub)
        return
    try:
        yield from read(file)
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror or error}") from None


def _text_of(file: Path) -> str:
    content = file.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Which other encoding it is cannot be seen from the bytes, and a wrong one would change letters without a word.
        line = content.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{file}: not UTF-8 (line {line}); in a spreadsheet, save it as 'CSV UTF-8'") from None


def _read_csv(file: Path) -> Iterator[tuple[str, dict]]:
    csv.field_size_limit(2**31 - 1)  # an answer may be longer than the 128 KiB that csv expects
    text = _text_of(file)
    header = text.partition("\n")[0]
    separator = max(SEPARATORS, key=lambda each: len(next(csv.reader([header], delimiter=each), ())))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        names = _checked_names(next(reader, []), file)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            place = f"{file}:{reader.line_num}"
            if len(cells) != len(names):
                raise RecordError(f"{place}: the row does not have the header's {len(names)} columns")
            yield place, dict(zip(names, cells))
    except csv.Error as error:
        raise RecordError(f"{file}:{reader.line_num}: not CSV: {error}") from None


def _read_xlsx(file: Path) -> Iterator[tuple[str, dict]]:
    try:
        import openpyxl
    except ImportError:
        raise RecordError(f"{file}: save it as 'CSV UTF-8', or install openpyxl to read it as it is") from None
    with open(file, "rb"):  # a missing file is told as everywhere
        pass
    try:
        sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
        rows = [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    except Exception as error:  # noqa: BLE001 - a broken file makes the reader raise many kinds of errors
        raise RecordError(f"{file}: not a spreadsheet: {' '.join(str(error).split())[:200]}") from None
    names = _checked_names(rows[0] if rows else [], file)
    for number, cells in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in cells):
            yield f"{file}: row {number}", dict(zip(names, cells))


def _checked_names(names: list[str], file: Path) -> list[str]:
    """Return the names of columns without blanks around them; raise RecordError if two columns have one name."""
    names = [name.strip() for name in names]
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise RecordError(f"{file}: two columns are called {twice!r}")
    return names


def _read_json(file: Path) -> Iterator[tuple[str, dict]]:
    content = _text_of(file)
    if not content.lstrip().startswith("["):  # JSON Lines under another name
        yield from read_lines(file)
        return
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file}: not JSON: {error}") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise RecordError(f"{file}: row {number} is not an object: {json.dumps(row)[:80]}")
        yield f"{file}: row {number}", row


SHEETS = {".csv": _read_csv, ".tsv": _read_csv, ".xlsx": _read_xlsx}
