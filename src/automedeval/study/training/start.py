"""Start a run of TRL's: its arguments, the number formats of the device, what libraries raise."""

import atexit
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from safetensors import SafetensorError
from transformers.hf_argparser import string_to_bool
from transformers.utils import is_flash_attn_2_available

from automedeval.models.checkpoints import base_of
from automedeval.models.device import bfloat16_missing
from automedeval.records import AutoMedEvalError, RecordError, foreign_errors_at
from automedeval.records.errors import reason
from automedeval.records.extras import install
from automedeval.records.yaml_file import YamlFile
from automedeval.study.training.stages import refuse_unused

if TYPE_CHECKING:
    from transformers import TrainingArguments
    from trl import TrlParser

_FULL_DISK = (
    "No space left",
    "File too large",
    "file write failed",
    "unexpected pos",
    "iostream error",
)


def parse_run(parser: "TrlParser") -> tuple[Any, ...]:
    """Return TRL's arguments of YAML and command line, with how the model is loaded among those of training.

    RecordError for an unknown key, for arguments that `refuse_unused` names, and without a model or an output.
    """
    with foreign_errors_at("the arguments", ValueError, OSError, TypeError):
        groups = parser.parse_args_and_config(
            [*without_bfloat16(parser, sys.argv[1:]), *sys.argv[1:]]
        )
    refuse_unused({name: value for group in groups for name, value in vars(group).items()})
    _, training, model, *_ = groups
    if training.use_cpu:
        os.environ.setdefault(
            "DS_ACCELERATOR", "cpu"
        )  # else DeepSpeed warns that it found no GPU, or takes one
    if not model.model_name_or_path or not training.output_dir:
        raise RecordError("model_name_or_path and output_dir are needed")
    loading = {
        "dtype": model.dtype,
        "attn_implementation": model.attn_implementation,
        "use_safetensors": True,
    }
    training.model_init_kwargs = {**(training.model_init_kwargs or {}), **loading}
    if training.chat_template_path == "none":  # takes back the path that a YAML names
        training.chat_template_path = None
    return groups


def without_bfloat16(parser: "TrlParser", given: list[str]) -> list[str]:
    """Return the arguments that replace a YAML's bfloat16 by float32 on a processor without instructions for it.

    What the command line, `given`, says counts: it comes later. Without `use_cpu` nothing is replaced:
    transformers refuses such a run, which should not go on unnoticed on a CPU.
    """
    if "--config" in given[:-1]:
        written = YamlFile(given[given.index("--config") + 1]).read()
        if isinstance(written, dict):  # TRL says what is wrong with another file
            parser.set_defaults_with_config(**written)
    asked = parser.parse_known_args(given)[0]
    on_cpu = asked.use_cpu or string_to_bool(os.environ.get("ACCELERATE_USE_CPU", "false"))
    if not on_cpu or not bfloat16_missing("cpu"):
        return []
    return ["--bf16", "false", *(["--dtype", "float32"] if asked.dtype == "bfloat16" else [])]


def check_attention(wanted: str | None) -> None:
    """Raise RecordError if flash-attn is asked for and missing: transformers may load a kernel, which is code, from the Hub."""
    if wanted == "flash_attention_2" and not is_flash_attn_2_available():
        raise RecordError(
            f"flash-attn is missing ({install('gpu')} --no-build-isolation); or --attn_implementation sdpa"
        )


@contextmanager
def launched() -> Iterator[None]:
    """Run a program of TRL's, as its decorator, and turn the libraries' errors into one line."""
    warnings.filterwarnings(
        "ignore", r"`torch\.distributed", FutureWarning
    )  # thousands from DeepSpeed's calls
    warnings.filterwarnings(
        "ignore", "`is_gradient_checkpointing`", FutureWarning
    )  # peft asks by the old name
    try:
        yield
        if PartialState().backend == "gloo":
            # Threads of gloo can still hold Python objects, and abort a finished process while the interpreter ends
            # (pytorch/pytorch#179291); so the process ends without that, behind what it registered to do at its end.
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(0)
    except AutoMedEvalError:
        raise
    except (ImportError, ValueError) as error:  # a missing library, arguments that TRL refuses
        raise RecordError(reason(error)) from None
    except (RuntimeError, SafetensorError) as error:
        if not any(sign in str(error) for sign in _FULL_DISK):
            raise
        fault = f"a checkpoint could not be written: {reason(error)}"
        raise RecordError(f"{fault}; earlier checkpoints are complete") from None


def network_of(start: Path, quantization: Any, training: Any) -> Any:
    """Return what TRL trains: the path of weights, or with an adapter at `start` its base with the adapter to go on with.

    `training` is TRL's SFTConfig.
    """
    base = base_of(start)
    if base == start:
        return str(start)
    from peft import PeftModel  # only adapters need it
    from trl.trainer.utils import create_model_from_path

    loading = {**training.model_init_kwargs, "quantization_config": quantization}
    if training.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        loading["device_map"] = None  # as TRL has it
    network = create_model_from_path(str(base), **loading)
    return PeftModel.from_pretrained(network, start, is_trainable=True)


def device_name() -> str:
    """Return the name of the device, with the number of processes."""
    state = PartialState()
    names = {"cuda": torch.cuda.get_device_name, "mps": lambda: "Apple GPU"}
    name = names.get(state.device.type, lambda: f"CPU, {os.cpu_count()} cores")()
    return f"{state.num_processes} × {name}" if state.num_processes > 1 else name


def precision(training: "TrainingArguments", dtype: str, adapter: bool = False) -> str:
    """Return the number formats of the run in words; with the reason where the device has no bfloat16 instructions.

    AdamW at a learning rate of 2e-5 changes a bfloat16 weight of usual size by less than half of its last digit, which rounding
    takes back. An adapter is in float32; ZeRO and FSDP keep float32 copies of the weights.
    """
    computed = "bfloat16" if training.bf16 else "float16" if training.fp16 else dtype
    why = bfloat16_missing(training.device.type)
    copies = any(
        os.environ.get(f"ACCELERATE_USE_{name}") == "true" for name in ("DEEPSPEED", "FSDP")
    )
    lost = dtype == "bfloat16" and not (adapter or copies)
    reasons = [*filter(None, [why]), *["loses small updates: --dtype float32"] * lost]
    return f"computes in {computed}, weights in {dtype}" + (
        f" ({'; '.join(reasons)})" if reasons else ""
    )
