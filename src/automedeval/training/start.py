"""Start a run of TRL's: its arguments, the number formats of the device, DeepSpeed's locks."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from torch.utils.cpp_extension import get_default_build_root
from transformers.hf_argparser import string_to_bool

from automedeval.models.attention import attention_here
from automedeval.models.precision import bfloat16_missing
from automedeval.records import RecordError
from automedeval.records.yaml_file import YamlFile
from automedeval.training.stages import refuse_unused

if TYPE_CHECKING:
    from transformers import TrainingArguments
    from trl import TrlParser


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


def parse_run(parser: "TrlParser") -> tuple[Any, ...]:
    """Return TRL's arguments of YAML and command line, with how the model is loaded among those of training.

    RecordError for an unknown key, for arguments that `refuse_unused` names, and without a model or an output.
    """
    try:
        groups = parser.parse_args_and_config([*sys.argv[1:], *without_bfloat16()])
    except (ValueError, OSError) as error:
        raise RecordError(" ".join(str(error).split())) from None
    refuse_unused({name: value for group in groups for name, value in vars(group).items()})
    _, training, model, *_ = groups
    if not model.model_name_or_path or not training.output_dir:
        raise RecordError("model_name_or_path and output_dir are needed")
    attention = model.attn_implementation and attention_here(model.attn_implementation)
    loading = {"dtype": model.dtype, "attn_implementation": attention, "use_safetensors": True}
    training.model_init_kwargs = {**(training.model_init_kwargs or {}), **loading}
    return groups


def device_name() -> str:
    """Return the name of the device, with the number of processes."""
    state = PartialState()
    names = {"cuda": torch.cuda.get_device_name, "mps": lambda: "Apple GPU"}
    name = names.get(state.device.type, lambda: f"CPU, {os.cpu_count()} cores")()
    return f"{state.num_processes} × {name}" if state.num_processes > 1 else name


def precision(training: "TrainingArguments", dtype: str) -> str:
    """Return the number formats of the run in words; where the device has no bfloat16 instructions, with that reason."""
    computed = "bfloat16" if training.bf16 else "float16" if training.fp16 else dtype
    why = bfloat16_missing(training.device.type)
    text = f"computes in {computed}, weights in {dtype}"
    return f"{text} ({why})" if why else text
