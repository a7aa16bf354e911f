"""One training run by its documented command, on a tiny model: what it leaves, how it goes on, what it refuses."""

import importlib.util
import json
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from doubles.tiny_dataset import build_instructions, losses
from doubles.tiny_model import build_tiny_model
from programs import ROOT, SAVE, error_line, killed, run_recipe
from safetensors.torch import load_file
from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser

from automedeval.models.checkpoints import read_history, read_record
from automedeval.training import completion_logits
from automedeval.training.start import parse_run, precision, without_bfloat16

CONFIG = "recipes/runs/automedeval-135m/stage1.yaml"
BATCHES = ("--gradient_accumulation_steps", "2")  # two rows a batch, so that there is padding
FAST = ("--bf16", "false", "--save_steps", "2", "--logging_steps", "1", "--num_train_epochs", "2")


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of three stages."""
    folder = tmp_path_factory.mktemp("data") / "instructions"
    return build_instructions(folder, {"stage1": 8, "stage2": 4, "stage3": 4, "test": 2})


def arguments(start: Path, data: Path, output: Path, *more: object) -> tuple[object, ...]:
    """Return the arguments of a tiny run."""
    paths = ("--model_name_or_path", start, "--dataset_name", data, "--output_dir", output)
    return ("--config", CONFIG, *paths, *FAST, *more)


def train(*options: object) -> subprocess.CompletedProcess:
    """Run the recipe in this process; it has to end well."""
    done = run_recipe("sft", *options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def stage1(tiny_model: Path, instructions: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a finished first stage and what its run printed."""
    output = tmp_path_factory.mktemp("runs") / "stage1"
    return output, train(*arguments(tiny_model, instructions, output)).stdout


def test_a_run_leaves_weights_card_and_record(stage1: tuple[Path, str], tiny_model: Path, instructions: Path) -> None:
    output, printed = stage1
    assert "stage1: 8 rows, " in printed
    assert "2 epochs = " in printed
    assert "4 rows an update" in printed
    files = {path.name for path in output.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md", "training"} <= files
    assert [name for name in files if name.startswith("checkpoint-") or name.endswith((".bin", ".pt", ".pth"))] == []
    record = read_record(output)
    assert record["finished"]
    assert record["versions"]["trl"]
    assert record["rubrics"] == ["automedeval@1"]
    assert record["arguments"]["learning_rate"] == 1e-4
    assert record["seconds"] > 0
    (stage,) = read_history(output)
    statistics = json.loads((instructions / "statistics.json").read_text())
    assert (stage.splits, stage.fingerprint, stage.rows) == (("stage1",), statistics["fingerprint"], 8)
    assert len(losses(output)) == 4  # 8 rows, 2 epochs, 4 rows an update
    before, after = load_file(tiny_model / "model.safetensors"), load_file(output / "model.safetensors")
    assert all(before[name].shape == after[name].shape for name in before)
    assert any((before[name] != after[name]).any() for name in before)


def test_a_trained_checkpoint_judges(stage1: tuple[Path, str], tmp_path: Path) -> None:
    from automedeval import Case, load_judge

    judge = load_judge(str(stage1[0]), chat={"max_new_tokens": 8})
    responses = [{"model": "a", "text": "Rest."}, {"model": "b", "text": "Run."}]
    (verdict,) = judge([Case.from_dict({"id": "1", "question": "A cold?", "responses": responses})])
    assert verdict.valid


def test_reading_trained_positions_alone_changes_no_loss(
    stage1: tuple[Path, str], tiny_model: Path, instructions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bool] = []
    monkeypatch.setattr(completion_logits, "read_trained_positions", lambda network, backbone: read.append(True))
    train(*arguments(tiny_model, instructions, tmp_path / "all", "--per_device_train_batch_size", 2), *BATCHES)
    assert read == [True]
    monkeypatch.undo()
    train(*arguments(tiny_model, instructions, tmp_path / "some", "--per_device_train_batch_size", 2), *BATCHES)
    assert losses(tmp_path / "some") == pytest.approx(losses(tmp_path / "all"), abs=2e-3)


def test_the_next_stage_starts_there_and_no_other_does(
    stage1: tuple[Path, str], instructions: Path, tmp_path: Path
) -> None:
    output = tmp_path / "stage2"
    train(*arguments(stage1[0], instructions, output, "--dataset_train_split", "stage2"))
    assert [stage.splits for stage in read_history(output)] == [("stage1",), ("stage2",)]
    assert read_record(output)["base"] == read_record(stage1[0])["base"]
    skipped = run_recipe("sft", *arguments(stage1[0], instructions, tmp_path / "s3", "--dataset_train_split", "stage3"))
    assert "stage3 starts where stage2 of" in error_line(skipped)
    assert not (tmp_path / "s3").exists()


def test_a_finished_run_is_not_repeated_and_not_written_over(
    stage1: tuple[Path, str], tiny_model: Path, instructions: Path
) -> None:
    before = (stage1[0] / "model.safetensors").stat().st_mtime_ns
    (stage1[0] / "checkpoint-1").mkdir()  # as a run leaves it that is killed once its record is written
    assert "is finished already" in train(*arguments(tiny_model, instructions, stage1[0])).stdout
    other = run_recipe("sft", *arguments(tiny_model, instructions, stage1[0], "--learning_rate", "0.5"))
    assert not (stage1[0] / "checkpoint-1").exists()
    assert "holds another run: learning_rate was 0.0001, now 0.5" in error_line(other)
    smoothed = run_recipe("sft", *arguments(tiny_model, instructions, stage1[0], "--label_smoothing_factor", "0.5"))
    assert "holds another run: label_smoothing_factor was 0.0, now 0.5" in error_line(smoothed)
    assert (stage1[0] / "model.safetensors").stat().st_mtime_ns == before


def test_the_same_rows_at_once_are_an_ablation(tiny_model: Path, instructions: Path, tmp_path: Path) -> None:
    config = tmp_path / "no_curriculum.yaml"
    parts = "".join(f"  - {{path: {instructions}, split: stage{number}}}\n" for number in (1, 2, 3))
    text = (ROOT / "recipes/runs/automedeval-135m/no_curriculum.yaml").read_text()
    head, _, rest = text.partition("datasets:\n")
    config.write_text(head + "datasets:\n" + parts + rest[rest.index("output_dir") :])
    paths = ("--model_name_or_path", tiny_model, "--output_dir", tmp_path / "out")
    train("--config", config, *paths, *FAST)
    (stage,) = read_history(tmp_path / "out")
    assert (stage.splits, stage.rows) == (("stage1", "stage2", "stage3"), 16)


@pytest.mark.slow
def test_an_adapter_is_merged_on_saving(tiny_model: Path, instructions: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    output = tmp_path / "lora"
    lora = ("--use_peft", "true", "--lora_r", "4", "--learning_rate", "0.05")
    train(*arguments(tiny_model, instructions, output, *lora))
    before, after = load_file(tiny_model / "model.safetensors"), load_file(output / "model.safetensors")
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    assert (output / "adapter/adapter_model.safetensors").exists()
    train(*arguments(output, instructions, tmp_path / "next", "--dataset_train_split", "stage2"))


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_to_the_same_losses(
    stage1: tuple[Path, str], tiny_model: Path, instructions: Path, tmp_path: Path
) -> None:
    output = tmp_path / "killed"
    options = list(map(str, arguments(tiny_model, instructions, output)))
    options[options.index("2", options.index("--save_steps"))] = "1"
    killed(SAVE, 2, "sft", *options)
    # As if it had been killed while it wrote the next one.
    broken = output / "checkpoint-9"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"half")
    assert not read_record(output)["finished"]
    done = run_recipe("sft", *options, launch=())
    assert done.returncode == 0, done.stderr
    assert "checkpoint-9: incomplete, removed" in done.stdout
    assert f"resuming from {output}/checkpoint-2" in done.stdout
    assert losses(output) == losses(stage1[0])


def limited(size: int) -> Any:
    """Return what keeps a process from writing files of more than so many bytes, as a full disk does."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.slow
def test_a_full_disk_is_one_line(tiny_model: Path, instructions: Path, tmp_path: Path) -> None:
    size = (tiny_model / "model.safetensors").stat().st_size
    cache = {**os.environ, "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    options = {"preexec_fn": limited(size // 2), "env": cache}
    done = run_recipe("sft", *arguments(tiny_model, instructions, tmp_path / "out"), **options)
    assert "a checkpoint could not be written" in error_line(done) or "File too large" in error_line(done)
    train(*arguments(tiny_model, instructions, tmp_path / "out"))


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (("--model_name_or_path", "models/nowhere"), "no checkpoint at models/nowhere"),
        (("--dataset_train_split", "test"), "the split 'test' is held out; no run trains on it"),
        (("--max_length", "40"), "8 rows of 8 longer than max_length, 40 tokens: 'case-0' ("),
        (("--trust_remote_code", "true"), "code in a checkpoint is not run"),
        (("--completion_only_loss", "false"), "a judge is not taught its prompts"),
        (("--attn_implementation", "flash_attention_3"), "FlashAttention3"),
    ],
)
def test_bad_input_is_one_line(
    tiny_model: Path, instructions: Path, tmp_path: Path, more: tuple[str, ...], fault: str
) -> None:
    output = tmp_path / "out"
    done = run_recipe("sft", *arguments(tiny_model, instructions, output, *more))
    assert fault in error_line(done)
    assert not (output / "model.safetensors").exists()


def test_a_base_without_a_chat_template_needs_one(instructions: Path, tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "base", chat_template=None)
    assert "has no chat template" in error_line(run_recipe("sft", *arguments(base, instructions, tmp_path / "out")))
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
    assert (tmp_path / "out/chat_template.jinja").read_text() == (tiny_model / "chat_template.jinja").read_text()


def test_without_flash_attn_a_run_says_so_and_uses_sdpa(tiny_model: Path, instructions: Path, tmp_path: Path) -> None:
    """Attention differs only by its kernel, so the paper's YAML trains on a machine without one."""
    if importlib.util.find_spec("flash_attn"):
        pytest.skip("flash-attn is installed")
    runs = {kind: tmp_path / kind for kind in ("flash_attention_2", "sdpa")}
    printed = {
        kind: train(*arguments(tiny_model, instructions, output, "--attn_implementation", kind)).stderr
        for kind, output in runs.items()
    }
    line = "flash-attn is not usable here, so attention is computed by sdpa (pip install --no-build-isolation "
    assert {kind: line in text for kind, text in printed.items()} == {"flash_attention_2": True, "sdpa": False}
    assert losses(runs["flash_attention_2"]) == losses(runs["sdpa"])
    record = read_record(runs["flash_attention_2"])
    assert record["identity"]["model_init_kwargs"]["attn_implementation"] == "sdpa"


# --- number formats ---------------------------------------------------------------------------------------------------


def parsed(monkeypatch: pytest.MonkeyPatch, *options: object) -> tuple[Any, Any, str]:
    """Return what the recipe parses: TRL's arguments of training and of the model, and the precision in words."""
    monkeypatch.setattr("sys.argv", ["recipes/sft.py", *map(str, options)])
    _, training, model = parse_run(TrlParser((ScriptArguments, SFTConfig, ModelConfig)))
    return training, model, precision(training, model.dtype)


def test_a_processor_without_bfloat16_trains_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx2": True})
    paper = ROOT / "recipes/runs/automedeval-13b/stage1.yaml"
    training, model, words = parsed(monkeypatch, "--config", paper, "--use_cpu", "true")
    assert (training.bf16, training.fp16, model.dtype, training.model_init_kwargs["dtype"]) == (
        False, False, "float32", "float32",
    )  # fmt: skip
    assert words == "computes in float32, weights in float32 (this processor has no bfloat16 instructions)"
    # What the command line says is kept.
    training, model, words = parsed(
        monkeypatch, "--config", paper, "--use_cpu", "--bf16", "true", "--dtype", "bfloat16"
    )
    assert (training.bf16, model.dtype) == (True, "bfloat16")
    assert words.startswith("computes in bfloat16, weights in bfloat16")
    # A processor with the instructions keeps the YAML's bfloat16.
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True})
    training, model, words = parsed(monkeypatch, "--config", paper, "--use_cpu", "true")
    assert (training.bf16, model.dtype) == (True, "bfloat16")
    assert words == "computes in bfloat16, weights in bfloat16"
    monkeypatch.setenv("AUTOMEDEVAL_BF16", "off")
    training, model, words = parsed(monkeypatch, "--config", paper, "--use_cpu", "true")
    assert (training.bf16, model.dtype) == (False, "float32")
    assert words.endswith("(AUTOMEDEVAL_BF16=off)")


def test_a_config_that_is_no_mapping_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("- bf16: true\n")
    assert "must contain a YAML mapping" in error_line(run_recipe("sft", "--config", tmp_path / "run.yaml"))


def test_a_gpu_without_bfloat16_gets_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["sft.py", "--config", str(ROOT / "recipes/runs/automedeval-13b/stage1.yaml")])
    assert without_bfloat16() == []  # no GPU and no use_cpu: transformers refuses the run
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert without_bfloat16() == ["--bf16", "false", "--fp16", "true", "--dtype", "float32"]
    monkeypatch.setenv("AUTOMEDEVAL_BF16", "off")
    assert without_bfloat16() == ["--bf16", "false", "--dtype", "float32"]
    monkeypatch.delenv("AUTOMEDEVAL_BF16")
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: True)
    assert without_bfloat16() == []


def test_a_run_says_and_records_its_number_formats(
    tiny_model: Path, instructions: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("AUTOMEDEVAL_BF16", "off")
    options = arguments(tiny_model, instructions, tmp_path / "run", "--max_steps", "1")
    done = train(*(options[: options.index("--bf16")] + options[options.index("--bf16") + 2 :]))
    words = "computes in float32, weights in float32 (AUTOMEDEVAL_BF16=off)"
    assert f"precision: {words}\n" in done.stdout
    assert read_record(tmp_path / "run")["precision"] == words
    assert read_record(tmp_path / "run")["identity"]["bf16"] is False
    assert words in (tmp_path / "run/README.md").read_text()
