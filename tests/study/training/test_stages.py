"""Stages: rows and start of a run, and what survives being killed; YAMLs of runs and machines, with the paper's numbers."""

import os
import runpy
import shlex
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from datasets import Dataset
from doubles.tiny_dataset import build_instructions
from doubles.tiny_model import CHAT_TEMPLATE, build_tiny_model
from factories import Json, read_yaml, write_json
from jinja2 import TemplateError
from programs import ROOT, failed, module_fixture, run_recipe
from tables import each_row, rows_of
from torch.optim import SGD
from transformers import AutoTokenizer, get_scheduler
from trl import ModelConfig, SFTConfig

from automedeval.models.checkpoints import Stage, read_record
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.study.training.run import DECISIVE, WHOLE, Run
from automedeval.study.training.stages import (
    REFUSED,
    check_base,
    check_start,
    read_rows,
    refuse_unused,
    tokenize,
)
from automedeval.study.training.start import parse_run

ROWS = rows_of(__file__)
HARMLESS = ROWS[
    "harmless"
]  # fields of TRL's SFTConfig that decide no weights: `REFUSED` refuses the rest


def stage(split: str, fingerprint: str = "d1") -> Stage:
    """Return a stage of a history."""
    return Stage((split,), "instructions", fingerprint, 10, 100, 20, 1.0)


def row(answer: str = "Score: Doctor 1: 3 points.", question: str = "Why?"):
    """Return a row as a data set holds it."""
    prompt = [{"role": "system", "content": "You judge."}, {"role": "user", "content": question}]
    answered = {"role": "assistant", "content": answer}
    return {"prompt": prompt, "completion": [answered], "case_id": "c1"}


@module_fixture
def encoder(tiny_model) -> PromptEncoder:
    return PromptEncoder.from_checkpoint(str(tiny_model))


# --- rows -------------------------------------------------------------------------------------------------------------


def test_the_loss_is_on_the_completion_alone_behind_the_prompt_that_judging_asks_with(encoder):
    told = row(question="What of <|im_end|> in a text?")
    (encoded,) = tokenize(Dataset.from_list([told]), "d", encoder, 2048, num_proc=1)
    ids = encoded["input_ids"]
    (asked,) = encoder.encode([told["prompt"]])
    assert ids[: len(asked)] == asked
    answer = ids[len(asked) :]
    assert encoded["completion_mask"] == [0] * len(asked) + [1] * len(answer)
    assert encoder.tokenizer.decode(answer).startswith("Score: Doctor 1: 3 points.<|im_end|>")
    # The control token of the text is data; those of the template are not.
    assert ids.count(encoder.tokenizer.convert_tokens_to_ids("<|im_end|>")) == 3


def test_a_template_that_answers_otherwise_than_it_asks_is_refused(tiny_model):
    encoder = PromptEncoder.from_checkpoint(str(tiny_model))
    told = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    encoder.tokenizer.chat_template = told + "{% if add_generation_prompt %}<think>{% endif %}"
    with pytest.raises(
        RecordError, match="d: the chat template renders a prompt with an answer differently"
    ):
        tokenize(Dataset.from_list([row()]), "d", encoder)


def test_a_base_has_room_for_a_row_and_an_end_of_an_answer(tmp_path):
    base = build_tiny_model(tmp_path / "base", window=1024)
    encoder = PromptEncoder.from_checkpoint(str(base))
    for most in (None, 1024):
        check_base(base, encoder, most)
    with pytest.raises(
        RecordError, match=r"max_length: 1,025 tokens exceed the context window of .*base, 1,024"
    ):
        check_base(base, encoder, 1025)
    encoder.tokenizer.chat_template = CHAT_TEMPLATE.replace("<|im_end|>", "<|endoftext|>")
    with pytest.raises(RecordError, match="ends an answer with no end-of-sequence token"):
        check_base(base, encoder, 1024)
    # generation_config.json may name other tokens that end an answer than the tokenizer does
    check_base(build_tiny_model(tmp_path / "other", ends=(0, 2)), encoder, 2048)


@each_row("rows, fault")
def test_rows_that_cannot_be_trained_on(rows, fault, encoder):
    data = Dataset.from_list(rows) if rows else Dataset.from_dict({"prompt": [], "completion": []})
    with pytest.raises(RecordError, match=fault):
        tokenize(data, "d", encoder, 60)


@each_row("dataset, fault")
def test_a_dataset_that_cannot_be_read(dataset, fault):
    with pytest.raises(RecordError, match=fault):
        read_rows(dataset, "stage1")


def test_a_folder_that_was_built_anew_gives_its_new_rows(tmp_path):
    place = tmp_path / "instructions"
    for number in (3, 2):
        shutil.rmtree(place, ignore_errors=True)
        build_instructions(place, {"stage1": number, "test": 1})
        rows, _ = read_rows(str(place), "stage1")
        assert len(rows) == number
    assert read_rows(str(place), "stage1[:50%]")[0]["case_id"][:] == ["case-0"]
    assert read_rows(str(place), "stage1[50%:]+test")[0]["case_id"][:] == ["case-1", "case-2"]
    for split, fault in (("stage2", 'Unknown split "stage2"'), ("stage1[", "Unrecognized")):
        with pytest.raises(RecordError, match=f"instructions, .*: {fault}"):
            read_rows(str(place), split)


# --- where a run may start --------------------------------------------------------------------------------------------


@each_row("history, splits, data, fault")
def test_a_stage_starts_where_the_curriculum_allows(history, splits, data, fault):
    statistics = ROWS["statistics"][data]
    with pytest.raises(RecordError, match=fault) if fault else nullcontext():
        check_start(
            "model", [stage(*each.split()) for each in history], "instructions", splits, statistics
        )


# --- what a run leaves ------------------------------------------------------------------------------------------------


RECORD = {"identity": {"learning_rate": 1e-4}}


def test_what_is_not_ours_is_not_written_over(tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(RecordError, match="files that are no training run"):
        Run(tmp_path, RECORD)
    assert read_record(tmp_path) is None


@pytest.mark.parametrize("mark", [None, b"", b"\0\0\0\0", b"\xff", b"12.5 seco"])
def test_a_run_goes_on_from_the_last_whole_checkpoint(tmp_path, mark):
    """One whose mark is missing, or cannot be read as after a full disk, is removed."""
    for number, content in ((4, b"400.5\n"), (12, b"1200.5\n"), (16, mark)):
        place = tmp_path / f"checkpoint-{number}"
        place.mkdir()
        if content is not None:
            (place / WHOLE).write_bytes(content)
    (tmp_path / "training").mkdir()
    write_json(tmp_path / "training/record.json", RECORD | {"finished": False})
    run = Run(tmp_path, RECORD)
    trainer = mock.Mock()
    run.train(trainer)
    trainer.train.assert_called_once_with(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert not (tmp_path / "checkpoint-16").exists()
    assert (tmp_path / "checkpoint-4").exists()


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_would_have_no_effect_are_refused(name, tmp_path):
    arguments = vars(SFTConfig(str(tmp_path), use_cpu=True)) | vars(ModelConfig())
    refuse_unused(arguments)
    with pytest.raises(RecordError, match=f"^{name}: "):
        refuse_unused(arguments | {name: "another"})
    assert f"`{name}`" in (ROOT / "docs/train.md").read_text()


def test_every_argument_of_training_decides_the_weights_or_is_known_not_to():
    """A field that a later version brings fails here until somebody has said which of the two it is; earlier ones lack some."""
    harmless = [name for names in HARMLESS.values() for name in names.split()]
    existing = {field.name for field in fields(SFTConfig)}
    known = [*DECISIVE, *harmless, *(REFUSED.keys() & existing)]
    assert len(known) == len(set(known))
    assert set(DECISIVE) <= existing <= set(known)


FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "recipes").rglob("*.yaml"))
RUNS = [path for path in FILES if "recipes/sft.py" in (ROOT / path).open().readline()]
MACHINES = sorted(path.relative_to(ROOT) for path in (ROOT / "accelerate_configs").glob("*.yaml"))
ZERO3 = [path for path in MACHINES if path.stem.startswith("zero3")]
PAPER = Path("recipes/runs/automedeval-13b")


def read(path: Path) -> Json:
    """Return what a YAML file of the repository holds."""
    return read_yaml(ROOT / path)


def command(path: Path) -> dict[str, str]:
    """Return the flags of the command in a YAML's first line."""
    words = shlex.split((ROOT / path).open().readline().removeprefix("# "))
    assert words[:2] == ["accelerate", "launch"]
    assert "recipes/sft.py" in words
    return {word: words[at + 1] for at, word in enumerate(words) if word.startswith("--")}


def update_rows(flags: dict[str, str], run: Json) -> int:
    """Return how many rows one update of a command sees."""
    machine = read(Path(flags["--config_file"])) if "--config_file" in flags else {}
    processes = flags.get("--num_processes") or machine["num_processes"]
    accumulation = flags.get("--gradient_accumulation_steps") or run["gradient_accumulation_steps"]
    return int(processes) * run["per_device_train_batch_size"] * int(accumulation)


# --- training runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_run_parses_as_the_recipe_and_as_trl_do_it(run, monkeypatch):
    from trl.scripts.sft import make_parser

    given = ["--config", str(ROOT / run), "--use_cpu", "true"]  # without it bf16 asks for a GPU
    _, training, model, _ = make_parser().parse_args_and_config(
        args=given, fail_with_unknown_args=True
    )
    monkeypatch.setattr("sys.argv", ["recipes/sft.py", *given])
    _, ours, *_ = parse_run(make_parser())
    assert (ours.learning_rate, ours.output_dir) == (training.learning_rate, training.output_dir)
    assert model.model_name_or_path == read(run)["model_name_or_path"]
    assert training.max_length == 2048


def test_the_13b_runs_have_the_numbers_of_the_paper():
    runs = [run for run in RUNS if run.parent == PAPER]
    assert len(runs) == 2
    for run in runs:
        held = read(run)
        flags = command(run)
        assert update_rows(flags, held) == 128, run
        rate = 2e-4 if held.get("use_peft") else 2e-5
        assert held == held | ROWS["numbers of the paper"] | {"learning_rate": rate}
        assert Path(flags["--config_file"]).stem == ("single" if held.get("use_peft") else "zero3")


def test_the_chat_template_of_the_13b_runs_continues_its_own_prompt(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    template = read(PAPER / "sft.yaml")["chat_template_path"]
    tokenizer.chat_template = (ROOT / template).read_text(encoding="utf-8")
    shown = partial(tokenizer.apply_chat_template, tokenize=False)
    prompt, completion = (row("Step 1")[name] for name in ("prompt", "completion"))
    asked = shown(prompt, add_generation_prompt=True)
    assert all(message["content"] in asked for message in prompt)
    answered = shown(prompt + completion)
    assert answered == f"{asked}Step 1{tokenizer.eos_token}"
    longer = shown([*prompt, *completion, prompt[1], *completion])
    assert longer.startswith(answered)
    assert longer.count(f"Step 1{tokenizer.eos_token}") == 2
    with pytest.raises(TemplateError, match="there is tool"):
        shown([{"role": "tool", "content": "x"}])


# --- machines ---------------------------------------------------------------------------------------------------------


def deepspeed_settings() -> Json:
    """Return DeepSpeed's settings, as a process finds them."""
    from accelerate.utils import DeepSpeedPlugin

    return DeepSpeedPlugin().deepspeed_config


def launched(*given: str, found_by: Callable[[], Any] = deepspeed_settings) -> tuple[Json, Any]:
    """Return what `accelerate launch` starts processes with, and the settings that they find; start none."""
    import torch.distributed.run
    from accelerate.commands.launch import launch_command, launch_command_parser
    from transformers.integrations import unset_hf_deepspeed_config

    found: list[Any] = []

    def start(args):
        found.extend((vars(args), found_by()))

    try:
        with mock.patch.object(torch.distributed.run, "run", start):
            launch_command(launch_command_parser().parse_args([*given, "recipes/sft.py"]))
    finally:
        unset_hf_deepspeed_config()  # else later tests load their models in pieces
    return found[0], found[1]


def memory_program() -> Json:
    """Return the names of benchmarks/training_memory.py."""
    return runpy.run_path(str(ROOT / "benchmarks/training_memory.py"))


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_a_machine_holds_no_number_of_a_run(machine):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(ROOT / machine))
    assert config.num_processes >= 1
    flags = command(machine) if machine in ZERO3 else {}
    assert flags.get("--config_file", str(machine)) == str(machine)
    assert set(read(machine)) <= set(ROWS["keys of a machine"])
    if machine in ZERO3:
        assert set(config.deepspeed_config) <= set(ROWS["keys of DeepSpeed"])
        assert update_rows(flags, read(Path(flags["--config"]))) == (
            128 if "13b" in flags["--config"] else 8
        )


@pytest.mark.parametrize("machine", ZERO3, ids=str)
def test_accelerate_takes_the_machine(machine, monkeypatch):
    """Weights in parts, saved whole; no optimizer and no schedule: those are the run's."""
    pytest.importorskip("deepspeed")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    rank = ("--machine_rank", "1", "--main_process_ip", "10.0.0.1")
    hosts = rank if "multinode" in machine.stem else ()
    started, deepspeed = launched("--config_file", str(ROOT / machine), *hosts)
    zero = deepspeed["zero_optimization"]
    assert (zero["stage"], zero["stage3_gather_16bit_weights_on_model_save"]) == (3, True)
    rest = "cpu" if "offload" in machine.stem else "none"
    assert zero["offload_optimizer"]["device"] == zero["offload_param"]["device"] == rest
    assert not {"optimizer", "scheduler"} & set(deepspeed)
    assert int(started["nproc_per_node"]) == (2 if machine.stem == "zero3_cpu" else 8)
    if hosts:
        assert started == started | ROWS["second of two hosts"]


def test_the_rates_of_a_run_are_those_of_warmup_decay():
    """Paper: "WarmupDecay", which is a schedule of DeepSpeed's; a run has the Trainer's linear one."""
    schedules = pytest.importorskip("deepspeed.runtime.lr_schedules")
    ours, theirs = (SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-5) for _ in range(2))
    linear = get_scheduler("linear", ours, num_warmup_steps=10, num_training_steps=100)
    decay = schedules.WarmupDecayLR(
        theirs, 100, warmup_max_lr=2e-5, warmup_num_steps=10, warmup_type="linear"
    )
    for _ in range(100):
        decay.step()
        assert linear.get_last_lr() == pytest.approx(decay.get_last_lr())
        ours.step()
        linear.step()


@each_row("settings, fault")
def test_a_file_of_deepspeed_may_not_take_what_the_run_says(settings, fault, tmp_path, monkeypatch):
    pytest.importorskip("deepspeed")
    # Later tests would load their models in pieces.
    monkeypatch.setattr("transformers.integrations.deepspeed._hf_deepspeed_config_weak_ref", None)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    file = tmp_path / "zero3.json"
    write_json(file, settings)
    small = ROOT / RUNS[0]
    failed(run_recipe("sft", config=small, optim="adafactor", deepspeed=file), fault)


def test_fsdp_that_would_save_no_weights_is_refused_at_once(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    failed(run_recipe("sft", config=ROOT / RUNS[0]), "must be FULL_STATE_DICT")


def test_accelerate_takes_fsdp2(monkeypatch):
    from accelerate.utils import FullyShardedDataParallelPlugin

    monkeypatch.setattr(os, "environ", dict(os.environ))
    file = Path("accelerate_configs/fsdp2.yaml")
    given = ("--config_file", str(ROOT / file))
    _, plugin = launched(*given, found_by=FullyShardedDataParallelPlugin)
    assert plugin.fsdp_version == 2
    assert plugin.activation_checkpointing
    assert plugin.cpu_ram_efficient_loading
    assert "FULL_STATE_DICT" in str(plugin.state_dict_type)
    flags = command(file)
    assert (flags["--config_file"], flags["--activation_checkpointing"]) == (str(file), "false")
    assert update_rows(flags, read(Path(flags["--config"]))) == 128


# --- what a run needs -------------------------------------------------------------------------------------------------


def test_the_document_shows_what_the_program_prints(tmp_path, monkeypatch):
    pytest.importorskip("deepspeed")
    pytest.importorskip("peft")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")

    program = memory_program()
    printed = program["tables"]()
    # LLaMA-13B by hand: 40 layers of four square and three wide matrices and two norms; embedding, head, and the last norm.
    layers = 40 * (4 * 5120**2 + 3 * 5120 * 13824 + 2 * 5120)
    assert program["count"]("13B").parameters == layers + 2 * 32000 * 5120 + 5120
    assert program["count"]("13B, LoRA").trained == 40 * 16 * (4 * 2 * 5120 + 3 * (5120 + 13824))
    document = (ROOT / "docs/train.md").read_text(encoding="utf-8")
    shown = document.partition("<!-- training_memory -->")[2].partition("<!--")[0]
    assert shown.strip() == printed.strip()


def test_activations_are_those_that_pytorch_counts():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    program = memory_program()
    arguments = program["count"]("13B").arguments | {"activation_checkpointing": False}
    shape = program["LLAMA"] | {"num_hidden_layers": 4}
    with FakeTensorMode():  # tensors of the true sizes, without memory
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        run, model = program["run_of"]("few layers", shape, arguments)
        torch.set_default_dtype(before)
        model.train()
        ids = torch.zeros(2, 2048, dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            model(input_ids=ids, labels=ids).loss.backward()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    counted = {getattr(kind, "value", kind): size for kind, size in peak.items()}
    assert run.activations == pytest.approx(counted["Activation"] + counted["Temp"], rel=0.03)
