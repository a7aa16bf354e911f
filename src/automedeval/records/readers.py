"""Read records from JSON Lines, Parquet or the Hub; an error names the file, the line and the value."""

import codecs
import json
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from automedeval.records.types import Case, RecordError, _shown


def read_lines(path: str | Path, hub: bool = False) -> Iterator[tuple[str, dict]]:
    """Yield `(place, object)` for each record of a JSON Lines file, a parquet file or, with `hub`, a Hub dataset id.

    `place` is "file:line" for error messages. Blank lines are passed over. Memory does not grow with the file.

    Raises:
        RecordError: the file cannot be read, is not UTF-8, or a line is not a JSON object.
    """
    file = Path(path)
    if file.suffix == ".parquet" or (hub and not file.exists() and _looks_like_hub_id(str(path))):
        yield from _read_dataset(str(path))
        return
    try:
        with open(file, "rb") as stream:
            for number, line in enumerate(stream, 1):
                place = f"{path}:{number}"
                record = _parsed(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, place)
                if record is not None:
                    yield place, record
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _parsed(line: bytes, place: str) -> dict | None:
    """Return the object of a line, None for a blank line."""
    try:
        text = line.decode("utf-8").strip()
        record = json.loads(text, parse_constant=_no_constant) if text else None
    except UnicodeDecodeError as error:
        raise RecordError(f"{place}: not UTF-8 (byte {error.start + 1} of the line)") from None
    except ValueError as error:
        raise RecordError(f"{place}: not JSON ({error}): {text[:60]}") from None
    except RecursionError:
        raise RecordError(f"{place}: JSON nested too deeply") from None
    if text and not isinstance(record, dict):
        raise RecordError(f"{place}: expected one JSON object a line, found {_shown(record)}")
    return record


def _looks_like_hub_id(path: str) -> bool:
    return path.count("/") == 1 and not path.startswith((".", "/")) and not Path(path).suffix


def _read_dataset(path: str) -> Iterator[tuple[str, dict]]:
    import datasets  # heavy, and only parquet and the Hub need it

    try:
        if path.endswith(".parquet"):
            rows = datasets.load_dataset("parquet", data_files=path, split="train", streaming=True)
        else:
            rows = datasets.load_dataset(path, split="test", streaming=True)
        for number, row in enumerate(rows, 1):
            yield f"{path}:{number}", {name: _as_json(value, f"{path}:{number}, {name}") for name, value in row.items()}
    except RecordError:
        raise
    except Exception as error:  # noqa: BLE001 - the readers below raise a dozen kinds, none of them ours
        raise RecordError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None


def _as_json(value: Any, place: str) -> Any:
    """Return a value of a column as JSON can hold it: dates, times, decimals and bytes as text."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {name: _as_json(held, place) for name, held in value.items()}
    if isinstance(value, list):
        return [_as_json(held, place) for held in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, (date, time, timedelta, Decimal)):
        return str(value)
    raise RecordError(f"{place}: JSON has no {type(value).__name__}; leave the column out, or make it text")


def read_placed(path: str | Path, kind: type, hub: bool = False, **options: Any) -> Iterator[tuple[str, Any]]:
    """Yield `("file:line", kind.from_dict)` of every record; faults are raised with the file and line in front."""
    for place, record in read_lines(path, hub):
        try:
            yield place, kind.from_dict(record, **options)
        except RecordError as error:
            raise RecordError(f"{place}: {error}") from None


def read_records(path: str | Path, kind: type) -> Iterator[Any]:
    """Yield `kind.from_dict` of every record; faults are raised with the file and line in front."""
    return (record for _, record in read_placed(path, kind))


def read_cases(path: str | Path, least_responses: int = 1) -> Iterator[Case]:
    """Yield the cases of a file one by one; `least_responses=0` takes those that have no response yet.

    Raises:
        RecordError: a fault of `read_records`, an id that came before, or a file without a single case.
    """
    seen: dict[str, str] = {}
    for place, case in read_placed(path, Case, hub=True, least_responses=least_responses):
        if case.id in seen:
            raise RecordError(f"{place}: the id {case.id!r} stands at {seen[case.id]} already")
        seen[case.id] = place
        yield case
    if not seen:
        raise RecordError(f"{path}: the file is empty")


def read_text(file: Path) -> str:
    """Return a text file's text.

    Raises:
        RecordError: it is not there, or not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{file}: not UTF-8: {error.reason}") from None
