"""What may go out to the Hub, and what may not: each refusal is one line that names the file."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from doubles.publishable import packed, set_column, trained
from doubles.tiny_dataset import build_instructions
from factories import write
from programs import failed, run_recipe
from tables import each_row, rows_of

from automedeval.records import RecordError
from automedeval.study.publishing.checks import DATASET, MODEL, SECRETS, check_card

ROWS = rows_of(__file__)

KEYS = {
    kind: "".join(piece * count for piece, count in pieces.items())
    for kind, pieces in ROWS["keys"].items()
}
CARD_OF_A_MODEL = """---
license: apache-2.0
language: [en]
base_model: some-org/base
pipeline_tag: text-generation
library_name: transformers
tags: [medical]
---
# A judge
"""


@pytest.fixture
def dataset(tmp_path) -> Path:
    return build_instructions(tmp_path / "tiny", {"stage1": 2, "test": 1})


@pytest.fixture
def checkpoint(tiny_model, tmp_path) -> Path:
    return trained(tiny_model, tmp_path / "judge")


def test_a_folder_goes_out_without_what_is_hidden_or_to_go_on_from(dataset):
    for name in ROWS["left out"]:
        (dataset / name).parent.mkdir(parents=True, exist_ok=True)
        (dataset / name).write_text("x")
    # a link that stays inside is a file like others
    (dataset / "also.txt").symlink_to(dataset / "deep/notes.txt")
    sizes = packed(dataset, DATASET)
    assert sizes == {name: (dataset / name).stat().st_size for name in ROWS["sent"]}


@each_row("kind, name, content, message")
def test_what_does_not_belong_stays(kind, name, content, message, dataset, checkpoint):
    folder, card = (dataset, None) if kind == DATASET else (checkpoint, CARD_OF_A_MODEL)
    packed(folder, kind, card)
    if content is None:
        (folder / "old").mkdir()
        (folder / name).rename(folder / "old" / name)
    elif content.startswith("->"):
        (folder / name).symlink_to(content[2:])
    else:
        (folder / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(RecordError, match=message):
        packed(folder, kind, card)


@pytest.mark.parametrize(("what", "key"), KEYS.items())
def test_a_key_is_found_however_json_writes_what_stands_around_it_and_not_shown(dataset, what, key):
    assert KEYS.keys() == SECRETS.keys()
    (dataset / "notes").write_text(f'\n"value": "{key}"\n')
    with pytest.raises(RecordError, match=f"notes: looks like {what} in line 2; [a-z ]*$"):
        packed(dataset, DATASET)
    (dataset / "notes").unlink()
    # at the start of a line, after a tab, in quotes, and as JSON in a text
    forms = ("%s", "\t%s", "“%s”", '{"key": "%s"}')
    texts = ["My notes:\n" + form % key.replace(": ", '": "') for form in forms]
    for text in texts:
        write(dataset / "rows.jsonl", [{"inner": json.dumps([text])}])
        with pytest.raises(RecordError, match=rf"rows\.jsonl:1: looks like {what}"):
            packed(dataset, DATASET)
    (dataset / "rows.jsonl").unlink()
    set_column(dataset / "stage1.parquet", "source", [None, texts[-1]])
    with pytest.raises(RecordError, match=rf"stage1\.parquet:2: looks like {what}"):
        packed(dataset, DATASET)


def test_a_key_in_the_filled_card_is_found(checkpoint):
    with pytest.raises(RecordError, match=r"README\.md: looks like a Hub token in line 10"):
        packed(checkpoint, MODEL, CARD_OF_A_MODEL + KEYS["a Hub token"])


@each_row("text")
def test_what_is_no_key_goes_out(dataset, text):
    (dataset / "notes.md").write_text(text)
    assert "notes.md" in packed(dataset, DATASET)


@each_row("name, text, named")
def test_annotators_go_out_under_pseudonyms_alone(dataset, name, text, named):
    (dataset / name).write_text(text)
    if named:
        with pytest.raises(RecordError, match=f"{name}.*: names annotators"):
            packed(dataset, DATASET)
    assert name in packed(dataset, DATASET, pseudonyms=named)


@each_row("column, value, named")
def test_annotators_in_a_column_are_found(dataset, column, value, named):
    set_column(dataset / "test.parquet", column, [value])
    if named:
        with pytest.raises(RecordError, match=r"test\.parquet:1: names annotators"):
            packed(dataset, DATASET)
    packed(dataset, DATASET, pseudonyms=named)


@pytest.mark.parametrize("licence", [*ROWS["closed"], *ROWS["open"]])
def test_rows_that_may_not_be_passed_on_stay_private(dataset, licence):
    closed = licence in ROWS["closed"]
    set_column(dataset / "stage1.parquet", "license", [licence] * 2)
    set_column(dataset / "test.parquet", "license", [licence])
    packed(dataset, DATASET)
    said = f"does not allow redistribution: 3 under {licence or 'not stated'!r}; remove them"
    with pytest.raises(RecordError, match=re.escape(said)) if closed else nullcontext():
        packed(dataset, DATASET, public=True)


def test_licences_of_rows_beside_the_data_set_count(dataset):
    (dataset / "rows.jsonl").write_text('{"license": "proprietary"}\n{"license": " "}\n')
    # three of them in its tables
    with pytest.raises(RecordError, match="4 under 'not stated', 1 under 'proprietary'"):
        packed(dataset, DATASET, public=True)
    (dataset / "rows.jsonl").write_text('{"license": ')
    with pytest.raises(RecordError, match=r"rows\.jsonl:1: not JSON"):
        packed(dataset, DATASET)


@each_row("old, new, message")
def test_a_card_is_filled_in(old, new, message):
    assert old in CARD_OF_A_MODEL
    with pytest.raises(RecordError, match=message):
        check_card(CARD_OF_A_MODEL.replace(old, new, 1), MODEL, "card")


@each_row("arguments, message")
def test_a_command_that_cannot_be_meant(dataset, arguments, message):
    words = [word.format(dataset) for word in arguments]
    failed(run_recipe("publish", *words, "--dry_run"), message)
