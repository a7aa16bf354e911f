"""One training run by its documented command, on a tiny model: what it leaves, how it goes on, what it refuses."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from doubles.tiny_dataset import build_instructions, changed, logged, losses
from doubles.tiny_model import CHAT_TEMPLATE, DATED, build_tiny_model
from factories import change_json, read_json
from programs import (
    ROOT,
    SAVE,
    failed,
    flags,
    module_fixture,
    on,
    run_recipe,
    stopped,
    succeeded,
    told,
)
from safetensors.torch import load_file
from tables import each_row, holds_all, rows_of
from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser

from automedeval import Case, Verdict, load_judge
from automedeval.models.checkpoints import base_of, file_digests, read_history, read_record
from automedeval.records import RecordError
from automedeval.study.training.start import parse_run

CONFIG = "recipes/runs/automedeval-135m/sft.yaml"
KINDS = (ScriptArguments, SFTConfig, ModelConfig)
NAMES = {field.name for kind in KINDS for field in fields(kind)}
ROWS = rows_of(__file__)
TEMPLATE = ROOT / "src/automedeval/models/templates/chat_template.jinja"
WEIGHTS = "model.safetensors"
ADAPTER = "adapter_model.safetensors"


@module_fixture
def instructions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "instructions"
    return build_instructions(folder, {"stage1": 8, "stage2": 4, "stage3": 4, "test": 2})


def options_of(data: Path, start: Path, output: Path, **more: object) -> dict[str, object]:
    paths = {"model_name_or_path": start, "dataset_name": data, "output_dir": output}
    return {"config": CONFIG} | paths | ROWS["four updates of four rows"] | more


@pytest.fixture
def sft(instructions):
    """Return what trains a start on the instructions, with more options, into an output."""

    def run(start: Path, output: Path, **more: object) -> subprocess.CompletedProcess:
        return run_recipe("sft", **options_of(instructions, start, output, **more))

    return run


@module_fixture
def stage1(tiny_model, instructions, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "stage1"
    done = run_recipe("sft", **options_of(instructions, tiny_model, output))
    return output, succeeded(done).stdout


def test_a_run_leaves_weights_card_and_record(stage1, tiny_model, instructions):
    output, printed = stage1
    record = read_record(output)
    holds_all(printed, ("stage1: 8 rows, ", "4 rows an update\n"))
    assert "small updates" not in printed
    files = {path.name for path in output.iterdir()}
    assert {WEIGHTS, "config.json", "tokenizer.json", "README.md", "training"} <= files
    assert not {Path(name).suffix for name in files} & {".bin", ".pt", ".pth"}
    assert not list(output.glob("checkpoint-*"))
    assert (record["finished"], record["rubrics"]) == (True, ["automedeval@1"])
    assert (record["identity"]["bf16"], record["arguments"]["learning_rate"]) == (False, 1e-4)
    assert record["identity"]["launcher"] is None
    assert record["versions"]["trl"]
    (stage,) = read_history(output)
    fingerprint = read_json(instructions / "statistics.json")["fingerprint"]
    assert (stage.splits, stage.fingerprint, stage.rows) == (("stage1",), fingerprint, 8)
    card = (output / "README.md").read_text()
    for said in (
        "on 1 × CPU",
        f" of {instructions} ({fingerprint}) | 8 | {stage.tokens:,} | {stage.trained:,} | 2 |",
    ):
        assert said in card
    assert len(losses(output)) == 4  # 8 rows, 2 epochs, 4 rows an update
    assert any(changed(tiny_model, output))


def judged(folder: Path, **options: Any) -> Verdict:
    judge = load_judge(str(folder), **options)
    (verdict,) = judge([Case.from_dict(ROWS["a case"])])
    return verdict


def scores_of(folder: Path) -> tuple[float, ...]:
    """Return the expected scores of a judge, in float32."""
    return judged(folder, rationale=False, chat={"dtype": "float32"}).expected_scores


def test_a_trained_checkpoint_judges(stage1):
    assert judged(stage1[0], chat={"max_new_tokens": 8}).valid


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [False, True], ids=["full weights", "LoRA"])
def test_trl_trains_the_same_from_the_same_yaml(adapter, tiny_model, instructions, tmp_path):
    """`accelerate launch recipes/sft.py` beside `trl sft`, over 20 updates; TRL's own reader, tokenizer and output layer."""
    more = ROWS["20 updates, with padding"] | (ROWS["an adapter with dropout"] if adapter else {})
    machine = ("--config_file", "accelerate_configs/single.yaml")
    own = {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    for name, program, *words in (
        ("ours", "accelerate", "launch", *machine, "recipes/sft.py"),
        ("theirs", "trl", "sft"),
    ):
        options = flags(**options_of(instructions, tiny_model, tmp_path / name, **more))
        command = [Path(sys.executable).parent / program, *words, *map(str, options)]
        subprocess.run(command, cwd=ROOT, env=os.environ | own, check=True, capture_output=True)
    state = read_json(tmp_path / "theirs/checkpoint-20/trainer_state.json")
    theirs = [line["loss"] for line in state["log_history"] if "loss" in line]
    assert len(theirs) == 20
    assert losses(tmp_path / "ours") == pytest.approx(theirs, abs=1e-4)
    file = ADAPTER if adapter else WEIGHTS
    ours = load_file(tmp_path / "ours" / file)
    for key, weight in load_file(tmp_path / "theirs" / file).items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-3, atol=1e-4)


def test_one_adapter_goes_through_the_stages_and_is_merged_once(sft, tiny_model, tmp_path):
    lora = ROWS["an adapter that learns fast"]
    first, second, merged = (tmp_path / name for name in ("stage1", "stage2", "merged"))
    succeeded(sft(tiny_model, first, **lora))
    stage2 = partial(sft, first, second, dataset_train_split="stage2", save_steps=1)
    failed(stage2(), "stage1 has an adapter, and training goes on from it: --use_peft")
    with stopped(SAVE, 1):
        stage2(**lora)
    told(stage2(**lora), "resuming from")
    assert all(changed(first, second, ADAPTER))
    assert not (second / WEIGHTS).exists()
    settings = second / "adapter_config.json"
    change_json(settings, revision="main")
    assert base_of(second) == tiny_model  # a revision is of a name on the Hub
    digests = file_digests(second)  # a judge is its base too
    assert digests["base/model.safetensors"] == file_digests(tiny_model)[WEIGHTS]
    assert read_record(second)["base"] == str(tiny_model)
    succeeded(run_recipe("convert_checkpoint", input=second, output=merged))
    assert [stage.splits for stage in read_history(merged)] == [("stage1",), ("stage2",)]
    scores = [scores_of(folder) for folder in (tiny_model, first, second, merged)]
    assert scores[2] == pytest.approx(scores[3], abs=1e-4)
    assert all(one != pytest.approx(other, abs=1e-3) for one, other in pairwise(scores[:3]))


def test_what_trl_offers_works(sft, tiny_model, tmp_path):
    """Parts of splits at once, the prompt trained on too, packing, processes that tokenize, the loss of the test split."""
    out = tmp_path / "out"
    splits = ("stage1[:50%]", "stage2[50%:]", "stage3")
    options = ROWS["what TRL offers"] | {"dataset_train_split": "+".join(splits)}
    succeeded(sft(tiny_model, out, **options))
    (stage,) = read_history(out)
    assert (stage.splits, stage.rows, stage.trained) == (splits, 10, stage.tokens)
    assert len(losses(out)) == 2  # ten rows of 730 tokens are five packs, and an update takes four
    (held_out,) = logged(out, "eval_loss")
    assert 6 < held_out < 8


def test_the_next_stage_starts_there_and_no_other_does(sft, stage1, tmp_path):
    output = tmp_path / "stage2"
    succeeded(sft(stage1[0], output, dataset_train_split="stage2"))
    assert [stage.splits for stage in read_history(output)] == [("stage1",), ("stage2",)]
    assert read_record(output)["base"] == read_record(stage1[0])["base"]
    skipped = sft(stage1[0], tmp_path / "s3", dataset_train_split="stage3")
    failed(skipped, "stage3 starts where stage2 of")
    assert not (tmp_path / "s3").exists()


def test_a_finished_run_is_not_repeated_and_not_written_over(sft, stage1, tiny_model):
    output, _ = stage1
    before = (output / WEIGHTS).stat().st_mtime_ns
    # As a run leaves it that is killed once its record is written.
    (output / "checkpoint-1").mkdir()
    told(sft(tiny_model, output), "is finished already")
    assert not (output / "checkpoint-1").exists()
    other = sft(tiny_model, output, learning_rate=0.5)
    failed(other, "holds another run: learning_rate was 0.0001, now 0.5")
    small = sft(tiny_model, output, dtype="bfloat16")
    assert "weights in bfloat16 lose small updates: --dtype float32" in small.stdout
    failed(small, "holds another run: dtype was 'float32', now 'bfloat16'")
    assert (output / WEIGHTS).stat().st_mtime_ns == before


def test_a_template_that_writes_the_date_gets_the_day_on_which_the_run_began(
    sft, tiny_model, tmp_path
):
    template = tmp_path / "dated.jinja"
    template.write_text(DATED + CHAT_TEMPLATE)
    run = partial(sft, tiny_model, tmp_path / "out", chat_template_path=template)
    with on("2026-11-07"), stopped(SAVE):
        run()
    with on("2026-11-28"):
        told(run(), "resuming from")
    assert read_record(tmp_path / "out")["date"] == "2026-11-07"
    with on("2026-12-05"):
        told(run(), "is finished already")


@each_row("more, fault")
def test_bad_input_is_one_line(sft, tiny_model, tmp_path, more, fault):
    failed(sft(tiny_model, tmp_path / "out", **more), fault)
    assert not (tmp_path / "out" / WEIGHTS).exists()


@mock.patch("trl.SFTTrainer.training_step", side_effect=ValueError("a late fault"))
def test_an_error_of_training_keeps_its_traceback(step, sft, tiny_model, tmp_path):
    with pytest.raises(ValueError, match="a late fault"):
        sft(tiny_model, tmp_path / "out")


def test_help_needs_no_library_and_shows_what_matters_first():
    # Without site-packages.
    command = [sys.executable, "-S", "recipes/sft.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    shown = told(done, "python recipes/sft.py --config recipes/runs/")
    named = re.findall(r"(?m)^  --(\w+)", shown)
    assert set(named) - NAMES == {"config"}


def test_help_all_explains_every_argument():
    told(run_recipe("sft", "--help_all"), *[f"--{name}" for name in NAMES])


@each_row("given, seen")
def test_a_process_alone_takes_one_gpu_and_tells_nobody(given, seen, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(given))
    failed(run_recipe("sft", config="nowhere.yaml"), "nowhere.yaml")
    assert os.environ.items() >= seen.items()


def test_a_base_without_a_chat_template_needs_one(sft, tmp_path):
    base = build_tiny_model(tmp_path / "base", chat_template=None)
    out = tmp_path / "out"
    failed(sft(base, out), "has no chat template")
    succeeded(sft(base, out, chat_template_path=TEMPLATE))
    assert (out / "chat_template.jinja").read_text() == TEMPLATE.read_text()


PAPER = str(ROOT / "recipes/runs/automedeval-13b/sft.yaml")


@each_row("feature, more, bf16, dtype")
def test_a_processor_without_bfloat16_trains_in_float32(feature, more, bf16, dtype, monkeypatch):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {feature: True})
    monkeypatch.setattr("sys.argv", ["recipes/sft.py", "--config", PAPER, "--use_cpu", *more])
    _, training, model = parse_run(TrlParser(KINDS))
    loaded = training.model_init_kwargs
    assert (training.bf16, training.fp16, model.dtype, loaded["dtype"]) == (
        bf16,
        False,
        dtype,
        dtype,
    )
    assert loaded["attn_implementation"] == "flash_attention_2"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU may have bfloat16")
def test_without_use_cpu_no_number_format_is_replaced(monkeypatch):
    monkeypatch.setattr("torch.cpu.get_capabilities", dict)
    monkeypatch.setattr("sys.argv", ["recipes/sft.py", "--config", PAPER])
    with pytest.raises(RecordError, match="You need to assign use_cpu"):
        parse_run(TrlParser(KINDS))
