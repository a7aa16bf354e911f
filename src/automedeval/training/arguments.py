"""Parse the arguments of a training recipe: TRL's, of which those that would be ignored are errors, fitted to this machine."""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch.utils.cpp_extension import get_default_build_root
from transformers import TrainingArguments
from transformers.hf_argparser import string_to_bool
from trl import ModelConfig, TrlParser, get_peft_config

from automedeval.models.attention import attention_here
from automedeval.models.checkpoints import fingerprint
from automedeval.models.precision import bfloat16_missing
from automedeval.records import RecordError, digest
from automedeval.records.yaml_file import YamlFile

# Arguments of a trainer that have no effect here, or a dangerous one. Only their defaults are accepted, so that no setting is
# ignored.
UNUSED = {
    "trust_remote_code": (False, "code in a checkpoint is not run"),
    "push_to_hub": (False, "training does not publish; use recipes/publish.py"),
    "eval_strategy": ("no", "a finished stage is evaluated with automedeval judge, not by its loss"),
    "resume_from_checkpoint": (None, "the same command resumes from the last complete checkpoint"),
    "save_only_model": (False, "an interrupted run reaches the same weights only with the optimizer's state"),
    "ignore_data_skip": (False, "a resumed run would train again on the rows that it has seen"),
    "dataset_streaming": (False, "all rows are read, because their lengths are checked before training starts"),
    "dataset_config": (None, "a data set is a folder, or a Hub id with a single configuration"),
    "model_revision": ("main", "write it behind the name: model_name_or_path: ORG/NAME@REVISION"),
}
# TRL's arguments that determine the weights, together with the rows and the start; not speed, device or logging. A run is
# resumed only if all of them are unchanged.
DECISIVE = (
    # the updates
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "num_train_epochs", "max_steps", "optim",
    "optim_args", "optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    # the batches
    "per_device_train_batch_size", "gradient_accumulation_steps", "auto_find_batch_size", "dataloader_drop_last",
    "dataloader_in_order", "train_sampling_strategy", "length_column_name", "seed", "data_seed", "shuffle_dataset",
    "max_length", "truncation_mode", "packing", "packing_strategy", "padding_free", "pad_to_multiple_of", "dataset_kwargs",
    "eos_token", "pad_token", "accelerator_config",
    # the loss
    "loss_type", "label_smoothing_factor", "neftune_noise_alpha", "router_aux_loss_coef", "completion_only_loss",
    "assistant_only_loss", "average_tokens_across_devices",
    # number formats and parallelism: a DeepSpeed file may name another optimizer
    "bf16", "fp16", "tf32", "model_init_kwargs", "deepspeed", "fsdp", "fsdp_config", "parallelism_config",
)  # fmt: skip


def parse_training(*classes: Any) -> tuple[Any, ...]:
    """Parse YAML and command line into TRL's classes of arguments, ModelConfig and a trainer's among them.

    RecordError for an unknown key, an argument that would be ignored or would run foreign code, or one that is missing.
    """
    try:
        groups = TrlParser(classes).parse_args_and_config([*sys.argv[1:], *without_bfloat16()])
    except (ValueError, OSError) as error:
        raise RecordError(" ".join(str(error).split())) from None
    for group in groups:
        refuse_unused(vars(group))
    (model,) = (group for group in groups if isinstance(group, ModelConfig))
    (training,) = (group for group in groups if isinstance(group, TrainingArguments))
    if not model.model_name_or_path or not training.output_dir:
        raise RecordError("model_name_or_path and output_dir are needed")
    if getattr(training, "chat_template_path", None) == "none":  # takes back the path that a YAML names
        training.chat_template_path = None
    attention = model.attn_implementation and attention_here(model.attn_implementation)
    loading = {"dtype": model.dtype, "attn_implementation": attention, "use_safetensors": True}
    training.model_init_kwargs = {**(training.model_init_kwargs or {}), **loading}
    return groups


def refuse_unused(arguments: Mapping[str, Any]) -> None:
    """Raise RecordError if an argument of a trainer is set that has no effect here, or a dangerous one."""
    for name, (default, why) in UNUSED.items():
        if arguments.get(name, default) != default:
            raise RecordError(f"{name}: {why}")


def identity_of(
    training: TrainingArguments, model: ModelConfig, rows: Any, start: Path, names: Iterable[str] = DECISIVE
) -> dict[str, Any]:
    """Return what determines the weights, by name: arguments of the trainer, rows, start, adapter and processes."""
    peft = get_peft_config(model)
    identity = {name: getattr(training, name) for name in names if hasattr(training, name)}
    identity |= {"dtype": model.dtype, "peft": peft and peft.to_dict(), "processes": PartialState().num_processes}
    identity |= {name: True for name in ("load_in_8bit", "load_in_4bit") if getattr(model, name)}
    return identity | {"rows": digest(rows), "start": fingerprint(start, [])}


def describe_machine(training: TrainingArguments, dtype: str) -> dict[str, str]:
    """Return the device with the number of processes, and the number formats of the run, in words."""
    state = PartialState()
    names = {"cuda": torch.cuda.get_device_name, "mps": lambda: "Apple GPU"}
    device = names.get(state.device.type, lambda: f"CPU, {os.cpu_count()} cores")()
    computed = "bfloat16" if training.bf16 else "float16" if training.fp16 else dtype
    why = bfloat16_missing(training.device.type)
    return {
        "device": f"{state.num_processes} × {device}" if state.num_processes > 1 else device,
        "precision": f"computes in {computed}, weights in {dtype}" + (f" ({why})" if why else ""),
    }


def without_bfloat16() -> list[str]:
    """Return the arguments that replace a YAML's bfloat16 on a device without instructions for it.

    A processor computes in float32. A GPU gets autocast to float16, with weights in float32 because the scaled gradients of
    float16 weights are not supported. An argument on the command line is kept. Without a GPU and without `use_cpu` nothing is
    replaced: transformers refuses such a run, which should not go on unnoticed on a CPU.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("config", "dtype"):
        parser.add_argument(f"--{name}")
    for name in ("use_cpu", "bf16", "fp16"):
        parser.add_argument(f"--{name}", type=string_to_bool, nargs="?", const=True)
    options = {name: value for name, value in vars(parser.parse_known_args()[0]).items() if value is not None}
    written = YamlFile(options["config"]).read() if "config" in options else {}
    asked = {**written, **options} if isinstance(written, dict) else options  # TRL says what is wrong with another file
    on_cpu = asked.get("use_cpu") or string_to_bool(os.environ.get("ACCELERATE_USE_CPU", "false"))
    if not (on_cpu or torch.cuda.is_available()) or not bfloat16_missing("cpu" if on_cpu else "cuda"):
        return []
    more = []
    if "bf16" not in options:
        more += ["--bf16", "false"]
        half = not on_cpu and asked.get("bf16", True) and not os.environ.get("AUTOMEDEVAL_BF16")
        more += ["--fp16", "true"] if half and "fp16" not in options else []
    if asked.get("dtype") == "bfloat16" and "dtype" not in options:
        more += ["--dtype", "float32"]
    return more


def tell_of_locks() -> None:
    """Print the lock files that DeepSpeed waits for without a word, and without end if a killed compilation has left them."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" and os.environ.get("LOCAL_RANK", "0") == "0":
        for lock in Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root()).rglob("lock"):
            print(
                f"{lock}: another process is compiling this extension; if none is, because it was killed, delete this file",
                flush=True,
            )
