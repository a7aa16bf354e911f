"""The folder of a data set: it appears at once, survives being killed, and its rows have one fingerprint."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from doubles.tiny_dataset import FACTS
from tables import holds_all, rows_of

from automedeval.records import RecordError
from automedeval.study.dataset.folder import (
    SCHEMA,
    new_dataset,
    write_card,
    write_splits,
)

ROWS = rows_of(__file__)

KILLED = """
import os, signal, sys
from pathlib import Path
from automedeval.study.dataset.folder import new_dataset

with new_dataset(Path(sys.argv[1])) as folder:
    (folder / "statistics.json").write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def build(place: Path, text: str) -> None:
    with new_dataset(place) as folder:
        (folder / "statistics.json").write_text(text)


def test_killed_the_former_folder_stays_and_the_next_build_is_whole(tmp_path):
    place = tmp_path / "instructions"
    build(place, "old")
    assert subprocess.run([sys.executable, "-c", KILLED, str(place)]).returncode == -signal.SIGKILL
    with suppress(RecordError), new_dataset(place):
        raise RecordError("no row is left")
    assert (place / "statistics.json").read_text() == "old"
    build(place, "newer")
    assert (place / "statistics.json").read_text() == "newer"
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".instructions.lock",
        "instructions",
    ]


def test_one_process_builds_at_a_time(tmp_path):
    with new_dataset(tmp_path / "data") as folder:
        with (
            pytest.raises(RecordError, match="another process is building there"),
            new_dataset(tmp_path / "data"),
        ):
            pass
        assert folder.exists()


def test_what_is_no_data_set_is_left_alone(tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    build(place, "into an empty folder")
    (place / "statistics.json").rename(place / "thesis.txt")
    with pytest.raises(RecordError, match="is not an instruction data set"), new_dataset(place):
        pass
    assert (place / "thesis.txt").exists()


def row_of(number: int, **more) -> dict:
    messages = [{"role": "user", "content": f"question {number}"}]
    of_all = dict.fromkeys(SCHEMA.names) | ROWS["row"]
    return of_all | {"prompt": messages, "completion": messages, "case_id": str(number)} | more


def faults_on_card(folder: Path, splits: dict, **more: object) -> tuple[dict, str]:
    """Return the facts of some rows, and the last section but one of the card that is written of them."""
    facts = write_splits(folder, splits)
    write_card(folder, FACTS | facts | {"folder": "tiny", "rubrics": {}} | more)
    _, _, rest = (folder / "README.md").read_text().partition("## Known faults\n")
    return facts, rest.partition("\n## ")[0]


def test_known_faults_are_told_from_the_facts(tmp_path):
    rows = [
        row_of(at, source="s", license="mit", quality="high" if at < 3 else None) for at in range(4)
    ]
    last = row_of(4, source="s", models=["a", "reference"])
    facts, told = faults_on_card(
        tmp_path, {"stage1": [*rows, last], "test": []}, unrated=7, tokenizer=None
    )
    assert facts.items() >= ROWS["of these rows"].items()
    holds_all(told, ROWS["known faults"])
    assert (list(facts["splits"]), (tmp_path / "test.parquet").exists()) == (["stage1"], False)
    _, clean = faults_on_card(tmp_path, {"stage1": rows[:3]}, unrated=0, tokenizer="x")
    assert clean.count("\n- ") == 1
