"""Tables of tests as data: tests/data/ROOM/NAME.yaml has the rows of tests/ROOM/test_NAME.py, by the name of the test."""

import csv
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from factories import read_yaml

from automedeval.records import RecordError


@cache
def rows_of(test_file: str) -> dict[str, Any]:
    """Return the name of a test → its rows, and what else the table has; give it `__file__`."""
    file = Path(test_file)
    place = Path(__file__).parent / "data" / file.parent.name
    table = place / f"{file.stem.removeprefix('test_')}.yaml"
    return read_yaml(table)


def each_row(names: str) -> Callable:
    """Run a test once for each of its rows, with these arguments, as in "change, message"; rows may have names."""

    def with_rows(test: Callable) -> Callable:
        rows = rows_of(inspect.getfile(test))[test.__name__]
        if isinstance(rows, dict):
            return pytest.mark.parametrize(names, rows.values(), ids=rows)(test)
        return pytest.mark.parametrize(names, rows)(test)

    return with_rows


def with_words(content: object, **words: object) -> Any:
    """Return JSON content with texts in the place of some words."""
    text = json.dumps(content)
    for word, value in words.items():
        text = text.replace(word, json.dumps(str(value))[1:-1])
    return json.loads(text)


def holds_all(text: str, pieces: Iterable[str]) -> None:
    """Fail where one of these is not in a text, and show it."""
    missing = [piece for piece in pieces if piece not in text]
    assert not missing, missing


@contextmanager
def refused(begins: object, *said: str, kind: type[Exception] = RecordError) -> Iterator[None]:
    """Expect an error of one line that begins so (with a file) and says all of this."""
    with pytest.raises(kind) as error:
        yield
    line = str(error.value)
    assert line.startswith(str(begins))
    assert "\n" not in line
    holds_all(line, said)


def write_csv(file: str | Path, names: Iterable[str], rows: Iterable[Iterable[object]]) -> Path:
    with open(file, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([names, *rows])
    return Path(file)


def read_csv(file: str | Path) -> list[dict[str, str]]:
    with open(file, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, strict=True))
