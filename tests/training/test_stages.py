"""Stages: rows that can be trained on, where a run may start, and what survives being killed."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from unittest import mock

import pytest
from datasets import Dataset
from doubles.tiny_dataset import build_instructions
from doubles.tiny_model import CHAT_TEMPLATE, build_tiny_model
from tables import rows_of
from transformers import AutoTokenizer
from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, SFTConfig

from automedeval.models.checkpoints import Stage, read_history, read_record
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.training.run import DECISIVE, WHOLE, Run
from automedeval.training.stages import REFUSED, check_base, check_start, read_rows, refuse_unused, tokenize, write_card

SPLITS = {"fingerprint": "d1", "splits": {"stage1": {}, "stage2": {}, "stage3": {}, "test": {}}}
ROWS = rows_of(__file__)
HARMLESS = ROWS["harmless"]  # fields of TRL's SFTConfig that decide no weights: `REFUSED` refuses the rest
ROUND = {"fingerprint": "d2", "follows": "d1", "splits": {"train": {}, "test": {}}}


def stage(split: str, fingerprint: str = "d1") -> Stage:
    """Return a stage of a history."""
    return Stage((split,), "instructions", fingerprint, 10, 100, 20, 1.0)


def row(answer: str = "Score: Doctor 1: 3 points.", question: str = "Why?", case_id: str = "c1") -> dict:
    """Return a row as a data set holds it."""
    prompt = [{"role": "system", "content": "You judge."}, {"role": "user", "content": question}]
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": answer}], "case_id": case_id}


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> PromptEncoder:
    return PromptEncoder.from_checkpoint(str(tiny_model))


# --- rows -------------------------------------------------------------------------------------------------------------


def test_the_loss_is_on_the_completion_alone(encoder: PromptEncoder) -> None:
    (encoded,) = tokenize(Dataset.from_list([row()]), "d", encoder, 2048)
    ids, mask = encoded["input_ids"], encoded["completion_mask"]
    trained = ids[len(ids) - sum(mask) :]
    assert mask == [0] * (len(ids) - len(trained)) + [1] * len(trained)
    assert encoder.tokenizer.decode(trained).startswith("Score: Doctor 1: 3 points.<|im_end|>")


def test_training_sees_the_prompt_that_judging_asks_with(encoder: PromptEncoder) -> None:
    told = row(question="What of <|im_end|> in a text?")
    (encoded,) = tokenize(Dataset.from_list([told]), "d", encoder, 2048, num_proc=1)
    (asked,) = encoder.encode([told["prompt"]])
    assert encoded["input_ids"][: len(asked)] == asked
    # The control token of the text is data; those of the template are not.
    end = encoder.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert encoded["input_ids"].count(end) == 3


def test_tokens_are_those_that_trl_makes_itself(encoder: PromptEncoder, tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    told = row()
    (encoded,) = tokenize(Dataset.from_list([told]), "d", encoder)
    whole = tokenizer.apply_chat_template(told["prompt"] + told["completion"], tokenize=True, return_dict=True)
    assert encoded["input_ids"] == whole["input_ids"]


def test_a_template_that_answers_otherwise_than_it_asks_is_refused(tiny_model: Path) -> None:
    encoder = PromptEncoder.from_checkpoint(str(tiny_model))
    told = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    encoder.tokenizer.chat_template = told + "{% if add_generation_prompt %}<think>{% endif %}"
    with pytest.raises(RecordError, match="d: the chat template renders a prompt with an answer differently"):
        tokenize(Dataset.from_list([row()]), "d", encoder)


def test_a_base_has_room_for_a_row_and_an_end_of_an_answer(tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "base", window=1024)
    encoder = PromptEncoder.from_checkpoint(str(base))
    for most in (None, 1024):
        check_base(base, encoder, most)
    with pytest.raises(RecordError, match=r"max_length: 1,025 tokens exceed the context window of .*base, 1,024"):
        check_base(base, encoder, 1025)
    encoder.tokenizer.chat_template = CHAT_TEMPLATE.replace("<|im_end|>", "<|endoftext|>")
    with pytest.raises(RecordError, match="ends an answer with no end-of-sequence token"):
        check_base(base, encoder, 1024)
    # generation_config.json may name other tokens that end an answer than the tokenizer does
    check_base(build_tiny_model(tmp_path / "other", ends=(0, 2)), encoder, 2048)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"text": "t"}], "no column 'prompt'; there are text"),
        ([row(" ", case_id="c7")], "1 row without a completion of one message: 'c7'"),
        ([row(), row("word " * 80, case_id="long")], r"1 row of 2 longer than max_length, 60 tokens: 'long' \(\d+\)"),
        ([], "not a single row"),
    ],
)
def test_rows_that_cannot_be_trained_on(rows: list[dict], fault: str, encoder: PromptEncoder) -> None:
    data = Dataset.from_list(rows) if rows else Dataset.from_dict({"prompt": [], "completion": []})
    with pytest.raises(RecordError, match=fault):
        tokenize(data, "d", encoder, 60)


@pytest.mark.parametrize(("parts", "fault"), ROWS["test_a_dataset_that_cannot_be_read"])
def test_a_dataset_that_cannot_be_read(parts: list, fault: str) -> None:
    with pytest.raises(RecordError, match=fault):
        read_rows(parts)


def test_a_folder_that_was_built_anew_gives_its_new_rows(tmp_path: Path) -> None:
    place = tmp_path / "instructions"
    for number in (3, 2):
        shutil.rmtree(place, ignore_errors=True)
        build_instructions(place, {"stage1": number, "test": 1})
        assert len(read_rows([(str(place), "stage1")])[2]) == number
    with pytest.raises(RecordError, match="no split 'stage2'; there are stage1, test"):
        read_rows([(str(place), "stage2")])


# --- where a run may start --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "splits", "data", "fault"), ROWS["test_a_stage_starts_where_the_curriculum_allows"]
)
def test_a_stage_starts_where_the_curriculum_allows(history: list, splits: list, data: str, fault: str | None) -> None:
    statistics = {"curriculum": SPLITS, "round": ROUND, "none": {}}[data]
    with pytest.raises(RecordError, match=fault) if fault else nullcontext():
        check_start("model", [stage(*each.split()) for each in history], "instructions", splits, statistics)


# --- what a run leaves ------------------------------------------------------------------------------------------------


def record(**identity: object) -> dict:
    """Return a record as a run begins with."""
    about = {"start": "base", "base": "base", "rubrics": [], "device": "CPU", "seconds": 3600.0, "precision": "float32"}
    return {"identity": {"learning_rate": 1e-4, **identity}, **about}


def test_a_folder_goes_on_with_the_same_run_alone(tmp_path: Path) -> None:
    output = tmp_path / "out"
    for _ in range(2):
        run = Run(output, record())
        assert not run.finished
    with pytest.raises(RecordError, match=r"holds another run: learning_rate was 0\.0001, now 0\.1"):
        Run(output, record(learning_rate=0.1))
    with pytest.raises(RecordError, match="its training is not finished"):
        read_history(output)
    write_card(output, run.record, [stage("stage1")], [{"loss": 1.0}])
    run.finish(history=[vars(stage("stage1"))])
    assert Run(output, record()).finished
    assert read_history(output) == [stage("stage1")]
    assert json.loads((output / "training/losses.jsonl").read_text()) == {"loss": 1.0}
    card = (output / "README.md").read_text()
    assert "| stage1 of instructions (d1) | 10 | 100 | 20 | 1.0 |" in card
    assert "1.00 hours on CPU" in card


def test_what_is_not_ours_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(RecordError, match="files that are no training run"):
        Run(tmp_path, record())
    assert read_record(tmp_path) is None


@pytest.mark.parametrize("mark", [None, b"", b"\0\0\0\0", b"\xff", b"12.5 seco"])
def test_a_run_goes_on_from_the_last_whole_checkpoint(tmp_path: Path, mark: bytes | None) -> None:
    """One whose mark is missing, or cannot be read as after a full disk, is removed."""
    for number in (4, 12, 16):
        (tmp_path / f"checkpoint-{number}").mkdir()
        (tmp_path / f"checkpoint-{number}" / WHOLE).write_text(f"{number}00.5\n")
    (tmp_path / "checkpoint-16" / WHOLE).unlink()
    if mark is not None:
        (tmp_path / "checkpoint-16" / WHOLE).write_bytes(mark)
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "record.json").write_text(json.dumps(record() | {"finished": False}))
    run, trainer = Run(tmp_path, record()), mock.Mock()
    run.train(trainer)
    trainer.train.assert_called_once_with(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert {each.name for each in tmp_path.glob("checkpoint-*")} == {"checkpoint-4", "checkpoint-12"}
    assert 1200.5 <= run.seconds < 1300


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_would_have_no_effect_are_refused(name: str, tmp_path: Path) -> None:
    arguments = {**vars(ScriptArguments()), **vars(SFTConfig(str(tmp_path), use_cpu=True)), **vars(ModelConfig())}
    refuse_unused(arguments)
    with pytest.raises(RecordError, match=f"^{name}: "):
        refuse_unused(arguments | {name: "another"})


@pytest.mark.parametrize(("more", "fault"), ROWS["test_parts_of_a_mixture_have_nothing_that_is_not_read"])
def test_parts_of_a_mixture_have_nothing_that_is_not_read(more: dict, fault: str) -> None:
    mixture = DatasetMixtureConfig([{"path": "instructions", "split": "stage1", **more}])
    with pytest.raises(RecordError, match=fault):
        refuse_unused(vars(mixture) | {"dataset_name": "instructions"})
    refuse_unused(vars(DatasetMixtureConfig([{"path": "instructions", "split": "stage1"}])))


def test_every_argument_of_training_decides_the_weights_or_is_known_not_to() -> None:
    """A field that a later version brings fails here until somebody has said which of the two it is; earlier ones lack some."""
    harmless = [name for names in HARMLESS.values() for name in names.split()]
    existing = {field.name for field in fields(SFTConfig)}
    known = [*DECISIVE, *harmless, *(REFUSED.keys() & existing)]
    assert len(known) == len(set(known))
    assert set(DECISIVE) <= existing <= set(known)
