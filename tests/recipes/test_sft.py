"""One training run by its documented command, on a tiny model: what it leaves, how it goes on, what it refuses."""

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from doubles.tiny_dataset import build_instructions, losses
from doubles.tiny_model import CHAT_TEMPLATE, DATED, build_tiny_model
from programs import ROOT, SAVE, error_line, flags, on, run_recipe, stopped, succeeded
from safetensors.torch import load_file
from tables import rows_of
from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser

from automedeval.models.checkpoints import file_digests, read_history, read_record
from automedeval.training.start import parse_run, precision, without_bfloat16

CONFIG = "recipes/runs/automedeval-135m/stage1.yaml"
BATCHES = flags(
    per_device_train_batch_size=2, gradient_accumulation_steps=2
)  # there is padding within a batch
FAST = ("--bf16", "false", "--save_steps", "2", "--logging_steps", "1", "--num_train_epochs", "2")


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "instructions"
    return build_instructions(folder, {"stage1": 8, "stage2": 4, "stage3": 4, "test": 2})


def arguments(start: Path, data: Path, output: Path, *more: object) -> tuple[object, ...]:
    paths = ("--model_name_or_path", start, "--dataset_name", data, "--output_dir", output)
    return ("--config", CONFIG, *paths, *FAST, *more)


def train(*options: object) -> subprocess.CompletedProcess:
    return succeeded(run_recipe("sft", *options))


@pytest.fixture(scope="module")
def stage1(
    tiny_model: Path, instructions: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    output = tmp_path_factory.mktemp("runs") / "stage1"
    return output, train(*arguments(tiny_model, instructions, output)).stdout


def test_a_run_leaves_weights_card_and_record(
    stage1: tuple[Path, str], tiny_model: Path, instructions: Path
) -> None:
    output, printed = stage1
    assert "stage1: 8 rows, " in printed
    assert "2 epochs = " in printed
    assert "4 rows an update" in printed
    files = {path.name for path in output.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md", "training"} <= files
    assert [
        name
        for name in files
        if name.startswith("checkpoint-") or name.endswith((".bin", ".pt", ".pth"))
    ] == []
    record = read_record(output)
    assert record["finished"]
    assert record["versions"]["trl"]
    assert record["rubrics"] == ["automedeval@1"]
    assert record["arguments"]["learning_rate"] == 1e-4
    assert record["seconds"] > 0
    assert record["identity"]["bf16"] is False
    words = record["precision"]
    assert words.startswith("computes in float32, weights in float32")
    assert f"precision: {words}\n" in printed
    assert words in (output / "README.md").read_text()
    (stage,) = read_history(output)
    statistics = json.loads((instructions / "statistics.json").read_text())
    assert (stage.splits, stage.fingerprint, stage.rows) == (
        ("stage1",),
        statistics["fingerprint"],
        8,
    )
    assert len(losses(output)) == 4  # 8 rows, 2 epochs, 4 rows an update
    before, after = (
        load_file(tiny_model / "model.safetensors"),
        load_file(output / "model.safetensors"),
    )
    assert all(before[name].shape == after[name].shape for name in before)
    assert any((before[name] != after[name]).any() for name in before)


def test_a_trained_checkpoint_judges(stage1: tuple[Path, str], tmp_path: Path) -> None:
    from automedeval import Case, load_judge

    judge = load_judge(str(stage1[0]), chat={"max_new_tokens": 8})
    responses = [{"model": "a", "text": "Rest."}, {"model": "b", "text": "Run."}]
    (verdict,) = judge([Case.from_dict({"id": "1", "question": "A cold?", "responses": responses})])
    assert verdict.valid


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [False, True], ids=["full weights", "LoRA"])
def test_trl_trains_the_same_from_the_same_yaml(
    adapter, tiny_model, instructions, tmp_path
) -> None:
    """`accelerate launch recipes/sft.py` beside `trl sft`, over 20 updates; TRL's own reader, tokenizer and output layer."""
    rank = ("--lora_r", 4, "--lora_dropout", 0.1, "--learning_rate", 0.01)
    more = (
        "--max_steps",
        20,
        "--save_steps",
        20,
        *BATCHES,
        *(("--use_peft", "true", *rank) if adapter else ()),
    )
    launch = (
        "accelerate",
        "launch",
        "--config_file",
        "accelerate_configs/single.yaml",
        "recipes/sft.py",
    )
    environment = {
        **os.environ,
        "HF_DATASETS_CACHE": str(tmp_path / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    for name, program in (("ours", launch), ("theirs", ("trl", "sft"))):
        options = arguments(tiny_model, instructions, tmp_path / name, *more)
        command = [str(Path(sys.executable).parent / program[0]), *program[1:], *map(str, options)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    state = json.loads((tmp_path / "theirs/checkpoint-20/trainer_state.json").read_text())
    theirs = [line["loss"] for line in state["log_history"] if "loss" in line]
    assert len(theirs) == 20
    assert losses(tmp_path / "ours") == pytest.approx(theirs, abs=1e-4)
    file = "adapter_model.safetensors" if adapter else "model.safetensors"
    ours = load_file(tmp_path / "ours" / file)
    for key, weight in load_file(tmp_path / "theirs" / file).items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-3, atol=1e-4)


def test_one_adapter_goes_through_the_stages_and_is_merged_once(
    tiny_model: Path, instructions: Path, tmp_path: Path
) -> None:
    lora = flags(use_peft="true", lora_r=4, lora_alpha=8, learning_rate=0.05)
    first, second, merged = (tmp_path / name for name in ("stage1", "stage2", "merged"))
    train(*arguments(tiny_model, instructions, first, *lora))
    stage2 = arguments(first, instructions, second, "--dataset_train_split", "stage2")
    assert "stage1 has an adapter, and training goes on from it: --use_peft" in error_line(
        run_recipe("sft", *stage2)
    )
    with stopped(SAVE, 1):
        run_recipe("sft", *stage2, *lora, "--save_steps", 1)
    assert "resuming from" in train(*stage2, *lora, "--save_steps", 1).stdout
    before, after = (load_file(stage / "adapter_model.safetensors") for stage in (first, second))
    assert before.keys() == after.keys()
    assert all((before[name] != after[name]).any() for name in before)
    assert not (second / "model.safetensors").exists()
    digests = file_digests(second)  # a judge is its base too
    assert digests["base/model.safetensors"] == file_digests(tiny_model)["model.safetensors"]
    assert read_record(second)["base"] == str(tiny_model)
    succeeded(run_recipe("convert_checkpoint", "--input", second, "--output", merged))
    assert [stage.splits for stage in read_history(merged)] == [("stage1",), ("stage2",)]
    scores = [scores_of(folder) for folder in (tiny_model, first, second, merged)]
    assert scores[2] == pytest.approx(scores[3], abs=1e-4)
    assert all(one != pytest.approx(other, abs=1e-3) for one, other in pairwise(scores[:3]))


def scores_of(folder: Path) -> list[float]:
    """Return the expected scores of a judge, in float32."""
    from automedeval import Case, load_judge

    judge = load_judge(str(folder), rationale=False, chat={"dtype": "float32"})
    responses = [{"model": "a", "text": "Rest."}, {"model": "b", "text": "Run."}]
    (verdict,) = judge([Case.from_dict({"id": "1", "question": "A cold?", "responses": responses})])
    return list(verdict.expected_scores)


def test_what_trl_offers_works(tiny_model: Path, instructions: Path, tmp_path: Path) -> None:
    """The prompt trained on too, packing, several processes that tokenize, the loss of the test split."""
    more = (
        "--completion_only_loss",
        "false",
        "--packing",
        "true",
        "--dataset_num_proc",
        2,
        "--eval_strategy",
        "epoch",
    )
    train(*arguments(tiny_model, instructions, tmp_path / "out", *more, "--num_train_epochs", 1))
    (stage,) = read_history(tmp_path / "out")
    assert stage.trained == stage.tokens
    lines = list(map(json.loads, (tmp_path / "out/training/losses.jsonl").read_text().splitlines()))
    assert len(lines) == 1  # eight rows of 730 tokens are three or four packs
    (held_out,) = read_record(tmp_path / "out")["evaluations"]
    assert 6 < held_out["eval_loss"] < 8


def test_the_next_stage_starts_there_and_no_other_does(stage1, instructions, tmp_path) -> None:
    output = tmp_path / "stage2"
    train(*arguments(stage1[0], instructions, output, "--dataset_train_split", "stage2"))
    assert [stage.splits for stage in read_history(output)] == [("stage1",), ("stage2",)]
    assert read_record(output)["base"] == read_record(stage1[0])["base"]
    skipped = run_recipe(
        "sft",
        *arguments(stage1[0], instructions, tmp_path / "s3", "--dataset_train_split", "stage3"),
    )
    assert "stage3 starts where stage2 of" in error_line(skipped)
    assert not (tmp_path / "s3").exists()


def test_a_finished_run_is_not_repeated_and_not_written_over(
    stage1, tiny_model, instructions
) -> None:
    before = (stage1[0] / "model.safetensors").stat().st_mtime_ns
    (
        stage1[0] / "checkpoint-1"
    ).mkdir()  # as a run leaves it that is killed once its record is written
    assert "is finished already" in train(*arguments(tiny_model, instructions, stage1[0])).stdout
    other = run_recipe(
        "sft", *arguments(tiny_model, instructions, stage1[0], "--learning_rate", "0.5")
    )
    assert not (stage1[0] / "checkpoint-1").exists()
    assert "holds another run: learning_rate was 0.0001, now 0.5" in error_line(other)
    assert (stage1[0] / "model.safetensors").stat().st_mtime_ns == before


def test_the_same_rows_at_once_are_an_ablation(
    tiny_model: Path, instructions: Path, tmp_path: Path
) -> None:
    config = "recipes/runs/automedeval-135m/no_curriculum.yaml"
    for name, rows, split in (
        ("all", 16, ()),
        ("half", 8, ("--dataset_train_split", "stage1[:50%]+stage2[50%:]+stage3[1:3]")),
    ):
        options = arguments(tiny_model, instructions, tmp_path / name, *split)[2:]
        train("--config", config, *options)
        (stage,) = read_history(tmp_path / name)
        assert ([part[:6] for part in stage.splits], stage.rows) == (
            ["stage1", "stage2", "stage3"],
            rows,
        )


def test_a_template_that_writes_the_date_gets_the_day_on_which_the_run_began(
    tiny_model: Path, instructions: Path, tmp_path: Path
) -> None:
    (template := tmp_path / "dated.jinja").write_text(DATED + CHAT_TEMPLATE)
    given = arguments(tiny_model, instructions, tmp_path / "out", "--chat_template_path", template)
    with on("2026-11-07"), stopped(SAVE):
        run_recipe("sft", *given)
    with on("2026-11-28"):
        assert "resuming from" in train(*given).stdout
    assert read_record(tmp_path / "out")["date"] == "2026-11-07"
    with on("2026-12-05"):
        assert "is finished already" in train(*given).stdout


def test_a_checkpoint_that_trl_cannot_resume_is_one_line(
    tiny_model: Path, instructions: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with stopped(SAVE, 2):
        run_recipe("sft", *arguments(tiny_model, instructions, output, "--save_steps", 1))
    for torn in ("rng_state.pth", "optimizer.pt"):
        (output / "checkpoint-2" / torn).write_bytes(b"half")
        done = run_recipe("sft", *arguments(tiny_model, instructions, output, "--save_steps", 1))
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert f"error: {output}/checkpoint-2 cannot be resumed: " in done.stderr
        assert "; delete it to go on from the one before" in done.stderr
    shutil.rmtree(output / "checkpoint-2")
    done = train(*arguments(tiny_model, instructions, output, "--save_steps", 1))
    assert f"resuming from {output}/checkpoint-1" in done.stdout


@pytest.mark.parametrize(("more", "fault"), rows_of(__file__)["test_bad_input_is_one_line"])
def test_bad_input_is_one_line(tiny_model, instructions, tmp_path, more, fault) -> None:
    output = tmp_path / "out"
    done = run_recipe("sft", *arguments(tiny_model, instructions, output, *more))
    assert fault in error_line(done)
    assert not (output / "model.safetensors").exists()


def test_a_base_without_a_chat_template_needs_one(instructions: Path, tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "base", chat_template=None)
    assert "has no chat template" in error_line(
        run_recipe("sft", *arguments(base, instructions, tmp_path / "out"))
    )
    template = ROOT / "src/automedeval/models/templates/chat_template.jinja"
    train(*arguments(base, instructions, tmp_path / "out", "--chat_template_path", template))
    assert (tmp_path / "out/chat_template.jinja").read_text() == template.read_text()


def test_a_base_keeps_its_own_chat_template_where_none_takes_that_of_the_yaml_back(
    tiny_model: Path, instructions: Path, tmp_path: Path
) -> None:
    template = ROOT / "src/automedeval/models/templates/chat_template.jinja"
    config = tmp_path / "run.yaml"
    config.write_text((ROOT / CONFIG).read_text() + f"chat_template_path: {template}\n")
    options = arguments(tiny_model, instructions, tmp_path / "out", "--chat_template_path", "none")
    train("--config", config, *options[2:])
    assert (tmp_path / "out/chat_template.jinja").read_text() == (
        tiny_model / "chat_template.jinja"
    ).read_text()


KEPT = ("--bf16", "true", "--dtype", "bfloat16")  # what the command line says
FORMATS = [
    ("avx2", (), False, "float32", " (this processor has no bfloat16 instructions)"),
    ("avx2", KEPT, True, "bfloat16", " (this processor has no bfloat16 instructions; LOST)"),
    ("avx512_bf16", (), True, "bfloat16", " (LOST)"),
]


@pytest.mark.parametrize(("feature", "more", "bf16", "dtype", "why"), FORMATS)
def test_a_processor_without_bfloat16_trains_in_float32(
    feature, more, bf16, dtype, why, monkeypatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {feature: True})
    paper = str(ROOT / "recipes/runs/automedeval-13b/stage1.yaml")
    monkeypatch.setattr("sys.argv", ["recipes/sft.py", "--config", paper, "--use_cpu", *more])
    _, training, model = parse_run(TrlParser((ScriptArguments, SFTConfig, ModelConfig)))
    assert (training.bf16, training.fp16) == (bf16, False)
    assert (model.dtype, training.model_init_kwargs["dtype"]) == (dtype, dtype)
    assert training.model_init_kwargs["attn_implementation"] == "flash_attention_2"
    why = why.replace("LOST", "loses small updates: --dtype float32")
    assert precision(training, model.dtype) == f"computes in {dtype}, weights in {dtype}{why}"
    if (
        dtype == "bfloat16"
    ):  # an adapter is in float32, and so are ZeRO's and FSDP's copies of the weights
        assert "loses" not in precision(training, model.dtype, adapter=True)
        monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
        assert "loses" not in precision(training, model.dtype)


def test_a_config_that_is_no_mapping_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("- bf16: true\n")
    assert "must contain a YAML mapping" in error_line(
        run_recipe("sft", "--config", tmp_path / "run.yaml")
    )


def test_without_use_cpu_no_number_format_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", dict)
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    assert (
        without_bfloat16(
            parser, ["--config", str(ROOT / "recipes/runs/automedeval-13b/stage1.yaml")]
        )
        == []
    )
