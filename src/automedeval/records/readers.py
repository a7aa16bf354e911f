"""Read records from JSON Lines, Parquet or the Hub. An error names the file, the line and the value."""

import codecs
import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from automedeval.records.errors import RecordError, errors_at, foreign_errors_at
from automedeval.records.hub_names import hub_rows, is_hub_dataset
from automedeval.records.types import Case, Verdict, _shown, whole

Placed = tuple[str, dict]  # "file:line" and what stands there
PlacedRecord = tuple[str, Any]
SAMPLE = Path(__file__).parents[1] / "sample"
PACKAGED = {"sample": SAMPLE / "test_cases.jsonl", "two_bots": SAMPLE / "two_bots.jsonl"}


def read_lines(path: str | Path, split: str = "") -> Iterator[Placed]:
    """Yield `(place, object)` for each record of a JSON Lines file, a parquet file or a `split` of a dataset of the Hub.

    `place` is "file:line" for error messages. Blank lines are skipped. Memory does not grow with the file. RecordError if the
    file cannot be read, is not UTF-8, or a line is not a JSON object.
    """
    file = Path(path)
    of_hub = split and not file.exists() and is_hub_dataset(str(path))
    if of_hub or file.suffix.lower() == ".parquet":
        yield from _read_dataset(str(path), split if of_hub else "")
        return
    with foreign_errors_at(path, OSError), open(file, "rb") as stream:
        for number, line in enumerate(stream, 1):
            place = f"{path}:{number}"
            record = _parsed(
                line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, place, file
            )
            if record is not None:
                yield place, record


def lock_file(path: Path) -> Path:
    """Return the file beside a log that its writer locks, and leaves there."""
    return path.with_name(f".{path.name}.lock")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):  # Python's reader keeps the last one alone
        raise ValueError("an object has one key twice")
    return mapping


_RECORDS = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_key_twice)
_ANY = json.JSONDecoder()
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str, others: bool = False) -> Any:
    """Return the value of a JSON text, with its texts `whole`. Every JSON from outside is read here.

    ValueError, in one line, if it is not JSON, or nested too deeply; and for NaN or a key twice, unless others wrote the text,
    whose programs take them.
    """
    decoder = _ANY if others else _RECORDS
    try:
        value = decoder.decode(text)
        if _SURROGATE.search(text):  # two of them are one character
            value = decoder.decode(whole(json.dumps(value, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def json_of_others(text: str, place: object) -> Any:
    """Return the value of a JSON text, whose program may write NaN; RecordError, with the place, if it is not JSON."""
    with foreign_errors_at(f"{place}: not JSON", ValueError):
        return parse_json(text, others=True)


def read_json(file: Path) -> Any:
    """Return what a file of JSON holds, see `json_of_others`."""
    return json_of_others(read_text(file), file)


def _parsed(line: bytes, place: str, file: Path) -> dict | None:
    """Return the object in a line of a file, None for a blank line."""
    try:
        text = line.decode("utf-8").strip()
        record = parse_json(text) if text else None
    except UnicodeDecodeError as error:
        raise RecordError(f"{place}: not UTF-8 (byte {error.start + 1} of the line)") from None
    except ValueError as error:
        advice = ""
        if not line.endswith(b"\n") and lock_file(file).exists():  # a log
            advice = "; cut off: the command that wrote it mends it"
        raise RecordError(f"{place}: not JSON ({error}): {text[:60]}{advice}") from None
    if text and not isinstance(record, dict):
        raise RecordError(f"{place}: expected one JSON object per line, found {_shown(record)}")
    return record


def _read_dataset(path: str, split: str) -> Iterator[Placed]:
    import datasets  # slow to import, and only parquet and the Hub need it

    what = f"split {split!r} cannot" if split else "cannot"
    with foreign_errors_at(f"{path}: {what} be read"):
        if split:
            rows = hub_rows(path, split, streaming=True)
        else:
            rows = datasets.load_dataset("parquet", data_files=path, split="train", streaming=True)
        for number, row in enumerate(rows, 1):
            yield f"{path}:{number}", json.loads(json.dumps(row, default=_as_text))


def _as_text(value: object) -> str | None:
    """Return what JSON has for a value that it lacks: dates, times, decimals and bytes become text, an image null."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value) if isinstance(value, (date, time, timedelta, Decimal)) else None


def read_placed(path: str | Path, kind: type[Any]) -> Iterator[PlacedRecord]:
    """Yield ("file:line", `kind.from_dict` of the record) for every record; errors begin with the file and line."""
    for place, record in read_lines(path):
        with errors_at(place):
            read = kind.from_dict(record)
        yield place, read


def read_records(path: str | Path, kind: type) -> Iterator[Any]:
    """Yield `kind.from_dict` of every record; errors begin with the file and line."""
    return (record for _, record in read_placed(path, kind))


def named_file(text: str) -> tuple[str, str]:
    """Split NAME=FILE at the first "=" into name and file; the name is empty without one, and of a file that exists."""
    if "=" not in text or Path(text).exists():
        return "", text
    name, _, file = text.partition("=")
    return name, file


def located(path: str | Path) -> str | Path:
    """Return a path; of "sample" and "two_bots", where no such file is there, the packaged file's."""
    return path if os.path.exists(path) else PACKAGED.get(str(path), path)


def is_one_of(path: str | Path, others: Iterable[str | Path]) -> bool:
    """Return whether a path, or a word for a packaged file, leads to one of these files."""
    file, *files = [Path(located(each)).resolve() for each in (path, *others)]
    return file in files


def verdicts_file(path: str | Path) -> Path:
    """Return the verdicts.jsonl in a folder; a path that is no folder is returned as it is."""
    file = Path(path)
    return file / "verdicts.jsonl" if file.is_dir() else file


def placed_verdicts(
    paths: Iterable[str | Path],
    cases: Mapping[str, Case] | None = None,
    with_reference: bool = False,
) -> Iterator[tuple[str, Verdict]]:
    """Yield ("file:line", verdict) of files, or of folders that hold a verdicts.jsonl. Every verdict is read here.

    A verdict on one of the cases is yielded as `Verdict.of_case` returns it, one on another case as it is. RecordError if it
    does not fit its case, or the number of its models, or stands twice.
    """
    places: dict[tuple, str] = {}
    for path in paths:
        for place, verdict in read_placed(verdicts_file(path), Verdict):
            key = verdict.identity
            case = (cases or {}).get(verdict.case_id)
            with errors_at(place):
                if key in places:
                    raise RecordError(
                        f"the verdict of {verdict.judge} on case {verdict.case_id!r} in this order "
                        f"is at {places[key]} already"
                    )
                if case is not None:
                    verdict = verdict.of_case(case, with_reference)
                elif verdict.models:
                    verdict.check_fit(len(verdict.models))
            places[key] = place
            yield place, verdict


def without_repeats(
    placed: Iterable[PlacedRecord], about: Callable[[Any], Hashable]
) -> Iterator[PlacedRecord]:
    """Yield placed ratings, choices or preferences; `about` returns the model, judge or two of them that a record is about.

    RecordError if an annotator gave two records about the same thing on the same criterion.
    """
    seen = set()
    for place, record in placed:
        key = (record.case_id, about(record), record.annotator, record.criterion)
        if key in seen:
            raise RecordError(
                f"{place}: {record.annotator!r} rated the same of case {record.case_id!r} on "
                f"{record.criterion!r} before"
            )
        seen.add(key)
        yield place, record


def read_text(file: Any, place: str | None = None) -> str:
    """Return the text of a path or packaged resource, which errors call `place`; RecordError if it cannot be read as UTF-8."""
    place = place or str(file)
    with foreign_errors_at(place, OSError):
        content = file.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Which other encoding it is cannot be seen from the bytes, and a wrong one would change letters without a word.
        line = len(content[: error.start + 1].splitlines())
        raise RecordError(
            f"{place}: not UTF-8 (line {line}); in a spreadsheet, save it as 'CSV UTF-8'"
        ) from None
