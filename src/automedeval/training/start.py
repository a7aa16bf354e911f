"""Start a run of training: the number formats of the device, DeepSpeed's locks, the checkpoint to resume from."""

import argparse
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from torch.utils.cpp_extension import get_default_build_root
from transformers.hf_argparser import string_to_bool

from automedeval.models.attention import attention_here
from automedeval.models.precision import bfloat16_missing
from automedeval.records.yaml_file import YamlFile
from automedeval.training.stages import last_whole_checkpoint

if TYPE_CHECKING:
    from trl import ModelConfig


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


def loading_options(model: "ModelConfig", loading: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return how TRL loads the model that is trained: safetensors alone, by an attention that this machine has."""
    attention = model.attn_implementation and attention_here(model.attn_implementation)
    return {**(loading or {}), "dtype": model.dtype, "attn_implementation": attention, "use_safetensors": True}


def tell_of_locks() -> None:
    """Print the lock files that DeepSpeed waits for without a word, and without end if a killed compilation has left them."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" and os.environ.get("LOCAL_RANK", "0") == "0":
        for lock in Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root()).rglob("lock"):
            print(
                f"{lock}: another process is compiling this extension; if none is, because it was killed, delete this file",
                flush=True,
            )


def whole_checkpoint(output: Path) -> tuple[Path | None, float]:
    """Return the checkpoint to resume from, if there is one, and its seconds; incomplete checkpoints are removed."""
    state = PartialState()
    checkpoint, seconds, broken = last_whole_checkpoint(output)
    state.wait_for_everyone()  # all processes have looked before the first removes anything
    if broken and state.is_main_process:
        tell(f"{', '.join(folder.name for folder in broken)}: incomplete, removed")
        for folder in broken:
            shutil.rmtree(folder)
    if checkpoint:
        tell(f"resuming from {checkpoint}")
    state.wait_for_everyone()
    return checkpoint, seconds


def tell(line: str) -> None:
    """Print a line in the main process only."""
    if PartialState().is_main_process:
        print(line, flush=True)
