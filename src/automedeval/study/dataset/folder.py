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
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from automedeval.models.tokenization import PromptEncoder, row_lengths
from automedeval.records import (
    REFERENCE,
    RecordError,
    digest,
    errors_at,
    foreign_errors_at,
    read_json,
)
from automedeval.records.hub_names import HUB_ID, hub_name, note_commit
from automedeval.records.journal import lock, write_json, write_whole
from automedeval.records.templates import environment
from automedeval.records.types import take
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import Rubric
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


@dataclass(frozen=True)
class Dataset:
    """A data set: the content of statistics.json, and the rows of each split in their order."""

    place: Path
    statistics: dict[str, Any]
    splits: dict[str, list[dict[str, Any]]]

    @property
    def training(self) -> list[dict[str, Any]]:
        """Return the rows of all splits but the test split."""
        return list(chain.from_iterable(self.splits[name] for name in self.splits if name != TEST))


def row_limit(training: str | None) -> tuple[PromptEncoder | None, int | None]:
    """Return what counts the tokens of a row, and how many it may have, as a YAML of recipes/sft.py says; None without one."""
    if training is None:
        return None, None
    file = YamlFile(training)
    content = file.read()
    if not isinstance(content, dict):
        raise RecordError(f"{training}: not the YAML of a training")
    model = file.take(content, "model_name_or_path", str)
    template = file.take(content, "chat_template_path", str, None)
    max_length = file.take(content, "max_length", int, least=1)
    return PromptEncoder.from_checkpoint(model, template), max_length


def dataset_folder(dataset: str) -> Path:
    """Return the folder of a data set: itself, or the cached copy of ORG/NAME or ORG/NAME@REVISION from the Hub.

    Only files beside statistics.json are downloaded. RecordError if there is no such data set.
    """
    if Path(dataset).exists() or not HUB_ID.fullmatch(dataset.partition("@")[0]):
        return Path(dataset)
    from huggingface_hub import snapshot_download  # takes its time, and most data sets are folders

    name, revision = hub_name(dataset)
    with foreign_errors_at(f"no folder {dataset!r}, and no download from the Hub"):
        place = snapshot_download(
            name,
            repo_type="dataset",
            revision=revision,
            allow_patterns=[STATISTICS, "*.parquet"],
            ignore_patterns="*/*",
        )
    folder = Path(place)
    note_commit(dataset, folder.name)
    return folder


def read_statistics(place: str | Path) -> dict[str, Any]:
    """Return the content of a data set's statistics.json; its splits are in the order of training.

    RecordError if the file does not exist or cannot be read.
    """
    file = Path(place) / STATISTICS
    statistics = read_json(file)
    with errors_at(f"{file}: not the statistics of a data set"):
        for name, kind in NEEDED.items():
            take(statistics, name, (kind,))
    return statistics


def read_dataset(place: str | Path) -> Dataset:
    """Read a data set that recipes/build_dataset.py or recipes/introspect_revise.py wrote.

    RecordError if the statistics or a split cannot be read, or a split lacks a column.
    """
    place, statistics = Path(place), read_statistics(place)
    splits = {}
    for name in statistics["splits"]:
        table = read_table(place, name)
        if "trained" not in table.column_names:  # of a data set that was built before there was one
            table = table.append_column(
                SCHEMA.field("trained"), pa.nulls(len(table), _TYPES["trained"])
            )
        missing = [column for column in SCHEMA.names if column not in table.column_names]
        if missing:
            there = ", ".join(table.column_names)
            raise RecordError(
                f"{place / name}.parquet: no column {missing[0]!r}; there are {there}"
            )
        splits[name] = table.select(SCHEMA.names).to_pylist()
    return Dataset(place, statistics, splits)


def read_table(place: str | Path, split: str) -> pa.Table:
    """Return the rows of a split; RecordError if the file does not exist or cannot be read."""
    file = Path(place) / f"{split}.parquet"
    with foreign_errors_at(f"{file}: cannot be read", OSError, pa.ArrowException):
        return pa.parquet.read_table(file)


def read_split(place: str | Path, split: str) -> pa.Table:
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
def new_dataset(place: str | Path) -> Iterator[Path]:
    """Yield a folder to build a data set in, and move it to its place when the block ends without an error.

    Else, or if the process is killed meanwhile, the place stays as it was. RecordError if the place holds something else, or
    another process is building there.
    """
    place = Path(place)
    scratch = place.with_name(f".{place.name}.building")
    reserved = lock(place, "building there")
    try:
        other = place.exists() and not (place.is_dir() and not any(place.iterdir()))
        if other and not (place / "statistics.json").exists():
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
    rows: Sequence[Mapping[str, Any]],
    encoder: PromptEncoder | None,
    max_length: int | None,
    rubrics: Mapping[str, Rubric],
) -> list[str | None]:
    """Return for each row why training cannot use it, None if it can: it is too long, or its rubric cannot read the completion.

    `encoder` counts tokens up to the end of the answer, as training does; None counts nothing.
    """
    faults: list[str | None] = []
    for row, length in zip(rows, row_lengths(rows, encoder)):
        answer = row["completion"][0]["content"]
        if length is not None and max_length is not None and length > max_length:
            faults.append(f"more than {max_length:,} tokens")
        elif not reads_back(answer, rubrics[row["rubric"]], len(row["order"])):
            faults.append("completion cannot be read back")
        else:
            faults.append(None)
    return faults


def write_splits(
    folder: Path,
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    encoder: PromptEncoder | None = None,
) -> dict[str, Any]:
    """Write the rows of each split, whose keys are SCHEMA's columns, to a parquet file; return what the card says of them.

    A split without rows is left out: `datasets` cannot read an empty file. `encoder` counts tokens as in `row_faults`.
    """
    import pandas  # takes its time; comes with datasets

    frames = []
    facts: dict[str, Any] = {}
    for name, rows in splits.items():
        if not rows:
            continue
        table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
        pa.parquet.write_table(table, folder / f"{name}.parquet", compression="zstd")
        frames.append(table.select([*TALLIED, "models"]).to_pandas().fillna(UNSTATED))
        facts[name] = _facts_of(rows, encoder)
        for column in TALLIED:
            facts[name][column] = frames[-1][column].value_counts().sort_index().to_dict()
    if not frames:
        raise RecordError("the data set has no row")
    frame = pandas.concat(frames)

    def rows_by(*columns: str) -> list[dict[str, Any]]:
        """Return the combinations of values in some columns, each with how many rows have it."""
        return frame.groupby(list(columns)).size().reset_index(name="rows").to_dict("records")

    return {
        # of all rows of all splits: what ties a model to the data it was trained on
        "fingerprint": digest([[name, facts[name]["fingerprint"]] for name in sorted(facts)]),
        "splits": facts,
        "licenses": sorted(frame["license"].unique()),
        "sources": rows_by("source", "license"),
        "teachers": rows_by("teacher", "judge", "rubric"),
        "reference_rows": int((frame["models"].str[-1] == REFERENCE).sum()),
    }


def _facts_of(rows: Sequence[Mapping[str, Any]], encoder: PromptEncoder | None) -> dict[str, Any]:
    """Return the number of some rows, their fingerprint and their lengths."""
    texts = "".join(json.dumps(row, sort_keys=True) for row in rows)
    lengths = sorted(filter(None, row_lengths(rows, encoder)))
    median, most = (lengths[len(lengths) // 2], lengths[-1]) if lengths else (None, None)
    return {
        "rows": len(rows),
        "fingerprint": hashlib.sha256(texts.encode()).hexdigest()[:12],
        "tokens": {"median": median, "most": most},
    }


def write_card(folder: Path, statistics: Mapping[str, Any]) -> None:
    """Write the data set's card and its statistics, from which alone the card is filled."""
    template = environment("automedeval.study.dataset").get_template("dataset_card.md.jinja")
    write_whole(folder / "README.md", template.render(**statistics).rstrip() + "\n")
    write_json(folder / "statistics.json", statistics)
