"""The folder of an instruction data set: parquet splits, card, statistics; all of it appears at once, or nothing does."""

import fcntl
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from automedeval.records import RecordError

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SCHEMA = pa.schema(
    [
        ("prompt", MESSAGES),
        ("completion", MESSAGES),
        ("case_id", pa.string()),
        ("teacher", pa.string()),
        ("judge", pa.string()),
        ("quality", pa.string()),
        ("rubric", pa.string()),
        ("order", pa.list_(pa.int32())),
        ("models", pa.list_(pa.string())),
        ("prompt_digest", pa.string()),
        ("source", pa.string()),
        ("license", pa.string()),
    ]
)
ROWS = 256  # that are in memory before they are written
COUNTED = ("teacher", "judge", "quality", "rubric", "source", "license")
TEST = "test"  # the split that no run trains on


@dataclass(frozen=True)
class Dataset:
    """A data set as its folder holds it: what its statistics say, and the rows of its splits in their order."""

    place: Path
    statistics: dict[str, Any]
    splits: dict[str, list[dict[str, Any]]]

    @property
    def training(self) -> list[dict[str, Any]]:
        """Return the rows of all splits but the test split."""
        return [row for name, rows in self.splits.items() if name != TEST for row in rows]


def read_statistics(place: str | Path) -> dict[str, Any]:
    """Return what a data set's folder says of itself; its splits stand in the order of training.

    Raises:
        RecordError: there is no such folder, or its statistics cannot be read.
    """
    file = Path(place) / "statistics.json"
    try:
        statistics = json.loads(file.read_text(encoding="utf-8"))
        list(statistics["splits"]), statistics["fingerprint"], statistics["seed"], statistics["arithmetic"]
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror or error}; recipes/build_dataset.py writes a data set") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not the statistics of a data set ({type(error).__name__}: {error})") from None
    return statistics


def read_dataset(place: str | Path) -> Dataset:
    """Read a data set that recipes/build_dataset.py or recipes/introspect.py wrote.

    Raises:
        RecordError: there is none, its statistics or a split of theirs cannot be read, or a split lacks a column.
    """
    place, statistics = Path(place), read_statistics(place)
    splits = {}
    for name in statistics["splits"]:
        table = read_table(place, name)
        if missing := [column for column in SCHEMA.names if column not in table.column_names]:
            names = ", ".join(table.column_names)
            raise RecordError(f"{place / name}.parquet: no column {missing[0]!r}; there are {names}")
        splits[name] = table.select(SCHEMA.names).to_pylist()
    return Dataset(place, statistics, splits)


def read_table(place: str | Path, split: str) -> pa.Table:
    """Return a split's rows as its file has them now.

    Raises:
        RecordError: there is no such file, or it cannot be read.
    """
    file = Path(place) / f"{split}.parquet"
    try:
        return pa.parquet.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{file}: cannot be read: {' '.join(str(error).split())[:200]}") from None


class DatasetFolder:
    """Builds a folder beside its place and puts it there when it is done. Use as a context manager.

    Leaving it without `publish`, or being killed, leaves what was there before.

    Raises:
        RecordError: on entering, when the place holds something else, or another process is building there.
    """

    def __init__(self, place: str | Path):
        self.place = Path(place)
        self.scratch = self.place.with_name(f".{self.place.name}.building")
        self._old = self.place.with_name(f".{self.place.name}.old")

    def __enter__(self) -> "DatasetFolder":
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.place.with_name(f".{self.place.name}.lock"), "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RecordError(f"{self.place}: another process is building there") from None
        if self._old.exists() and not self.place.exists():
            self._old.rename(self.place)  # killed between the two renames of `publish`
        for rest in (self.scratch, self._old):
            if rest.exists():
                shutil.rmtree(rest)
        if self.place.exists() and not self._replaceable():
            self._lock.close()
            raise RecordError(f"{self.place}: holds something that is no instruction data set; choose another --output")
        self.scratch.mkdir()
        return self

    def _replaceable(self) -> bool:
        return self.place.is_dir() and (not any(self.place.iterdir()) or (self.place / "statistics.json").exists())

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.scratch.exists():
            shutil.rmtree(self.scratch)
        self._lock.close()

    def publish(self) -> None:
        """Put the folder in its place, instead of what was there before."""
        if self.place.exists():
            self.place.rename(self._old)
        self.scratch.rename(self.place)
        if self._old.exists():
            shutil.rmtree(self._old)


class SplitWriter:
    """Writes the rows of one split as they come, counts them and takes their fingerprint. Use as a context manager."""

    def __init__(self, file: Path):
        self._writer = pa.parquet.ParquetWriter(file, SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._digest = hashlib.sha256()
        self.counts: dict[str, Counter] = {name: Counter() for name in COUNTED}
        self.rows = 0
        self.tokens: list[int] = []

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._flush()
        self._writer.close()

    def write(self, row: Mapping[str, Any], tokens: int | None = None) -> None:
        """Add one row, whose keys are the columns."""
        self._digest.update(json.dumps(row, sort_keys=True).encode())
        for name, counter in self.counts.items():
            counter[row[name] or "not stated"] += 1
        self.rows += 1
        if tokens is not None:
            self.tokens.append(tokens)
        self._rows.append({name: _storable(value) for name, value in row.items()})
        if len(self._rows) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA))
            self._rows.clear()

    def statistics(self) -> dict[str, Any]:
        """Return counts, lengths and fingerprint of what was written."""
        lengths = sorted(self.tokens)
        return {
            "rows": self.rows,
            "fingerprint": self._digest.hexdigest()[:12],
            **{name: dict(sorted(counter.items())) for name, counter in self.counts.items()},
            "tokens": {
                "median": lengths[len(lengths) // 2] if lengths else None,
                "most": lengths[-1] if lengths else None,
            },
        }


def _storable(value: Any) -> Any:
    """Turn lone surrogates, which JSON can carry and parquet cannot, into question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, dict):
        return {name: _storable(each) for name, each in value.items()}
    return value
