"""Read and write the folder of an instruction data set: parquet splits and statistics.json.

`write_rows` writes one split. `new_dataset` has the folder built beside its place, and moves it there when it is complete.
"""

import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from automedeval.models.tokenization import PromptEncoder, row_lengths
from automedeval.records import REFERENCE, RecordError
from automedeval.records.lock import lock
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import reads_back

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_TYPES = {"prompt": MESSAGES, "completion": MESSAGES, "order": pa.list_(pa.int32()), "models": pa.list_(pa.string())}
COLUMNS = "prompt completion case_id teacher judge quality rubric order models prompt_digest source license"
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS.split()])
WINDOW = 256  # rows that are tokenized and written together
COUNTED = ("teacher", "judge", "quality", "rubric", "source", "license")
TEST = "test"  # the split that no run trains on


@dataclass(frozen=True)
class Dataset:
    """A data set: the content of statistics.json, and the rows of each split in their order."""

    place: Path
    statistics: dict[str, Any]
    splits: dict[str, list[dict[str, Any]]]

    @property
    def training(self) -> list[dict[str, Any]]:
        """Return the rows of all splits but the test split."""
        return [row for name, rows in self.splits.items() if name != TEST for row in rows]


def row_limit(training: str | None) -> tuple[PromptEncoder | None, int | None]:
    """Return what counts the tokens of a row, and how many it may have, as a YAML of recipes/sft.py says; None without one."""
    if training is None:
        return None, None
    file = YamlFile(training)
    content = file.read()
    if not isinstance(content, dict):
        raise RecordError(f"{training}: not the YAML of a training")
    model, template = (
        file.take(content, *key) for key in (("model_name_or_path", str), ("chat_template_path", str, None))
    )
    return PromptEncoder.from_checkpoint(model, template), file.take(content, "max_length", int, least=1)


def read_statistics(place: str | Path) -> dict[str, Any]:
    """Return the content of a data set's statistics.json; its splits are in the order of training.

    RecordError if the file does not exist or cannot be read.
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
    """Read a data set that recipes/build_dataset.py or recipes/introspect_revise.py wrote.

    RecordError if the statistics or a split cannot be read, or a split lacks a column.
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
    """Return the rows of a split; RecordError if the file does not exist or cannot be read."""
    file = Path(place) / f"{split}.parquet"
    try:
        return pa.parquet.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{file}: cannot be read: {' '.join(str(error).split())[:200]}") from None


@contextmanager
def new_dataset(place: str | Path) -> Iterator[Path]:
    """Yield a folder to build a data set in, and move it to its place when the block ends without an error.

    Else, or if the process is killed, the place stays as it was. RecordError if the place holds something else, or another
    process is building there.
    """
    place = Path(place)
    scratch, old = (place.with_name(f".{place.name}.{state}") for state in ("building", "old"))

    def clean() -> None:
        for rest in (scratch, old):
            if rest.exists() and (rest == scratch or place.exists()):
                shutil.rmtree(rest)

    held = lock(place, "building there")
    try:
        if old.exists() and not place.exists():
            old.rename(place)  # killed between the two renames below
        clean()
        other = place.exists() and not (place.is_dir() and not any(place.iterdir()))
        if other and not (place / "statistics.json").exists():
            raise RecordError(f"{place}: is not an instruction data set, and is not replaced; choose another --output")
        scratch.mkdir()
        yield scratch
        if place.exists():
            place.rename(old)
        scratch.rename(place)
    finally:
        clean()
        held.release()


def row_faults(
    rows: Iterable[Mapping[str, Any]],
    encoder: PromptEncoder | None,
    max_length: int | None,
    rubrics: Mapping[str, Rubric] | None,
) -> Iterator[str | None]:
    """Yield for each row why training cannot use it, None if it can.

    Args:
        encoder: counts tokens up to the end of the answer, as training does; more than `max_length` are too many. None counts
            nothing.
        rubrics: by name; the completion must be readable by the row's rubric. None checks nothing.
    """
    rows = iter(rows)
    while window := list(itertools.islice(rows, WINDOW)):
        for row, length in zip(window, row_lengths(window, encoder)):
            completion = row["completion"][0]["content"]
            if length is not None and max_length is not None and length > max_length:
                yield f"more than {max_length:,} tokens"
            elif rubrics and not reads_back(completion, rubrics[row["rubric"]], len(row["order"])):
                yield "completion cannot be read back"
            else:
                yield None


def write_rows(
    file: Path, rows: Iterable[Mapping[str, Any]], encoder: PromptEncoder | None = None
) -> tuple[dict[str, Any], Counter]:
    """Write the rows of one split to a parquet file; return their statistics, and how many there are by `origin`.

    Args:
        rows: their keys are the columns of SCHEMA.
        encoder: counts tokens up to the end of the answer, as training does; None counts nothing.
    """
    digest, tokens, number = hashlib.sha256(), [], 0
    counts: dict[str, Counter] = {name: Counter() for name in COUNTED}
    origins: Counter[tuple] = Counter()
    rows = iter(rows)
    with pa.parquet.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        while window := list(itertools.islice(rows, WINDOW)):
            for row, length in zip(window, row_lengths(window, encoder)):
                digest.update(json.dumps(row, sort_keys=True).encode())
                for name, counter in counts.items():
                    counter[row[name] or "not stated"] += 1
                origins[origin(row)] += 1
                tokens += [] if length is None else [length]
            number += len(window)
            writer.write_table(pa.Table.from_pylist(window, schema=SCHEMA))
    tokens.sort()
    statistics = {
        "rows": number,
        "fingerprint": digest.hexdigest()[:12],
        **{name: dict(sorted(counter.items())) for name, counter in counts.items()},
        "tokens": {"median": tokens[len(tokens) // 2] if tokens else None, "most": tokens[-1] if tokens else None},
    }
    return statistics, origins


def origin(row: Mapping[str, Any]) -> tuple[str, str, str, str, str, bool]:
    """Return a row's source, licence, teacher, judge and rubric, and whether the reference is one of its responses."""
    source, license = (row[name] or "not stated" for name in ("source", "license"))
    return source, license, row["teacher"], row["judge"], row["rubric"], row["models"][-1] == REFERENCE
