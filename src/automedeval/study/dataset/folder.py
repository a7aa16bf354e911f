"""Read and write the folder of an instruction data set: parquet splits, statistics.json, and its card.

`write_splits` writes the splits. `new_dataset` has the folder built beside its place, and moves it there when it is complete.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median_high
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from automedeval.models.checkpoints import from_hub
from automedeval.models.tokenization import PromptEncoder, row_lengths
from automedeval.records import (
    REFERENCE,
    JsonObject,
    RecordError,
    digest,
    errors_at,
    foreign_errors_at,
    read_json,
)
from automedeval.records.hub_names import HUB_ID
from automedeval.records.journal import lock, write_json
from automedeval.records.templates import write_readme
from automedeval.records.types import take
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import Rubrics
from automedeval.rubrics.grammar import reads_back

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_TYPES = {
    "prompt": MESSAGES,
    "completion": MESSAGES,
    "order": pa.list_(pa.int32()),
    "models": pa.list_(pa.string()),
    "trained": pa.list_(pa.list_(pa.int32())),
}
COLUMNS = "prompt completion case_id teacher judge quality rubric order models prompt_digest source license trained"
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS.split()])
UNSTATED = "not stated"
TALLIED = ("teacher", "judge", "quality", "rubric", "source", "license")
STATISTICS = "statistics.json"
NEEDED = {"splits": dict, "fingerprint": str, "seed": int, "arithmetic": list}  # in it
TEST = "test"  # the split that no run trains on
UNCOUNTED = "rows: no --training is given, so no length was checked"  # a line of the card
Rows = Sequence[JsonObject]


def without_test(splits: Mapping[str, list[Any]]) -> list[Any]:
    """Return what stands in all splits but the test split."""
    stages = (content for name, content in splits.items() if name != TEST)
    return list(chain.from_iterable(stages))


@dataclass(frozen=True)
class Dataset:
    """A data set: the content of statistics.json, and the rows of each split in their order."""

    place: Path
    statistics: JsonObject
    splits: dict[str, list[JsonObject]]

    @property
    def training(self) -> list[JsonObject]:
        """Return the rows of all splits but the test split."""
        return without_test(self.splits)


@dataclass(frozen=True)
class RowLimit:
    """How many tokens a training row may have, up to the end of the answer, and what counts them."""

    encoder: PromptEncoder
    max_length: int

    @classmethod
    def read(cls, training: str | None) -> "RowLimit | None":
        """Return the limit that a YAML of recipes/sft.py says; None without one."""
        if training is None:
            return None
        file = YamlFile(training)
        content = file.read()
        if not isinstance(content, dict):
            file.fail("the file", "must be the YAML of a training")
        model = file.take(content, "model_name_or_path", str)
        template = file.take(content, "chat_template_path", str, None)
        max_length = file.take(content, "max_length", int, least=1)
        return cls(PromptEncoder.from_checkpoint(model, template), max_length)


def dataset_folder(dataset: str) -> Path:
    """Return the folder of a data set: itself, or the cached copy of ORG/NAME or ORG/NAME@REVISION from the Hub.

    Only files beside statistics.json are downloaded. RecordError if there is no such data set.
    """
    if Path(dataset).exists() or not HUB_ID.fullmatch(dataset.partition("@")[0]):
        return Path(dataset)
    needed = [STATISTICS, "*.parquet"]
    return from_hub(dataset, repo_type="dataset", allow_patterns=needed, ignore_patterns="*/*")


def read_statistics(place: Path) -> JsonObject:
    """Return the content of a data set's statistics.json; its splits are in the order of training.

    RecordError if the file does not exist or cannot be read.
    """
    file = place / STATISTICS
    statistics = read_json(file)
    with errors_at(f"{file}: not the statistics of a data set"):
        for name, kind in NEEDED.items():
            take(statistics, name, (kind,))
    return statistics


def read_dataset(place: Path) -> Dataset:
    """Read a data set that recipes/build_dataset.py or recipes/introspect_revise.py wrote.

    RecordError if the statistics or a split cannot be read, or a split lacks a column.
    """
    statistics = read_statistics(place)
    splits = {}
    for name in statistics["splits"]:
        table = read_table(place, name)
        with foreign_errors_at(f"{place / name}.parquet: no such column", KeyError):
            splits[name] = table.select(SCHEMA.names).to_pylist()
    return Dataset(place, statistics, splits)


def read_table(place: Path, split: str) -> pa.Table:
    """Return the rows of a split; RecordError if the file does not exist or cannot be read."""
    file = place / f"{split}.parquet"
    with foreign_errors_at(f"{file}: cannot be read", OSError, pa.ArrowException):
        return pa.parquet.read_table(file)


def read_split(place: Path, split: str) -> pa.Table:
    """Return rows of a data set's folder; `split` is as `datasets` writes it: stage1, stage1[:50%], stage1+stage2.

    RecordError if there is no such split, or a file cannot be read.
    """
    from datasets import ReadInstruction  # slow to import, and most readers take whole splits

    sizes = {name: facts["rows"] for name, facts in read_statistics(place)["splits"].items()}
    with foreign_errors_at(f"{place}, {split}", ValueError, AssertionError):
        parts = ReadInstruction.from_spec(split).to_absolute(sizes)
    tables = [
        read_table(place, part.splitname).slice(part.from_, part.to - part.from_) for part in parts
    ]
    return pa.concat_tables(tables)


@contextmanager
def new_dataset(place: Path) -> Iterator[Path]:
    """Yield a folder to build a data set in, and move it to its place when the block ends without an error.

    Else, or if the process is killed meanwhile, the place stays as it was. RecordError if the place holds something else, or
    another process is building there.
    """
    scratch = place.with_name(f".{place.name}.building")
    reserved = lock(place, "building there")
    try:
        holds_something = place.is_file() or (place.is_dir() and any(place.iterdir()))
        if holds_something and not (place / STATISTICS).exists():
            raise RecordError(
                f"{place}: is not an instruction data set, and is not replaced; choose another --output"
            )
        shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
        scratch.mkdir()
        yield scratch
        if place.exists():
            shutil.rmtree(place)
        scratch.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        reserved.release()


def row_faults(
    rows: Mapping[Any, JsonObject], limit: RowLimit | None, rubrics: Rubrics
) -> dict[Any, str]:
    """Return why training cannot use rows, by their keys: one is too long, or its rubric cannot read the completion."""
    lengths = row_lengths(list(rows.values()), limit.encoder) if limit else [0] * len(rows)
    faults = {}
    for (key, row), length in zip(rows.items(), lengths):
        answer = row["completion"][0]["content"]
        if limit and length > limit.max_length:
            faults[key] = f"more than {limit.max_length:,} tokens"
        elif not reads_back(answer, rubrics[row["rubric"]], len(row["order"])):
            faults[key] = "completion cannot be read back"
    return faults


def write_splits(
    folder: Path, splits: Mapping[str, Rows], limit: RowLimit | None = None
) -> JsonObject:
    """Write the rows of each split, whose keys are SCHEMA's columns, to a parquet file; return what the card says of them.

    A split without rows is left out: `datasets` cannot read an empty file.
    """
    import pandas  # takes its time; comes with datasets

    frames = []
    facts: JsonObject = {}
    for name, rows in splits.items():
        if not rows:
            continue
        table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
        pa.parquet.write_table(table, folder / f"{name}.parquet", compression="zstd")
        frame = table.select([*TALLIED, "models"]).to_pandas().fillna(UNSTATED)
        frames.append(frame)
        seen = hashlib.sha256()
        for row in rows:
            seen.update(json.dumps(row, sort_keys=True).encode())
        lengths = row_lengths(rows, limit.encoder) if limit else []
        median = median_high(lengths) if lengths else None
        facts[name] = {
            "rows": len(rows),
            "fingerprint": seen.hexdigest()[:12],
            "tokens": {"median": median, "most": max(lengths, default=None)},
        }
        for column in ("teacher", "quality"):
            facts[name][column] = frame[column].value_counts().sort_index().to_dict()
    if not frames:
        raise RecordError("the data set has no row")
    whole = pandas.concat(frames)

    def counted(*columns: str) -> list[JsonObject]:
        return whole.groupby(list(columns)).size().reset_index(name="rows").to_dict("records")

    return {
        # of all rows of all splits: what ties a model to the data it was trained on
        "fingerprint": digest([[name, facts[name]["fingerprint"]] for name in sorted(facts)]),
        "splits": facts,
        "licenses": sorted(whole["license"].unique()),
        "sources": counted("source", "license"),
        "teachers": counted("teacher", "judge", "rubric"),
        "reference_rows": int((whole["models"].str[-1] == REFERENCE).sum()),
        "tokenizer": Path(limit.encoder.tokenizer.name_or_path).name if limit else None,
        "max_length": limit.max_length if limit else None,
    }


def write_card(folder: Path, statistics: JsonObject) -> None:
    """Write the data set's card and its statistics, from which alone the card is filled."""
    write_readme(folder, "automedeval.study.dataset", "dataset_card.md.jinja", statistics)
    write_json(folder / "statistics.json", statistics)
