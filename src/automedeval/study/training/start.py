"""Start a run of TRL's: its arguments, what libraries raise, and the adapter that it goes on with."""

import atexit
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from transformers.utils import (
    is_flash_attn_2_available,
    is_flash_attn_3_available,
    is_flash_attn_4_available,
)

from automedeval.models.checkpoints import base_of
from automedeval.models.device import bfloat16_missing
from automedeval.records import RecordError, foreign_errors_at
from automedeval.records.extras import install
from automedeval.study.training.run import launcher_of
from automedeval.study.training.stages import refuse_unused


def parse_run(parser: Any) -> tuple[Any, ...]:
    """Return the arguments of YAML and command line by a TrlParser, with how the model is loaded among those of training.

    On a processor without instructions for bfloat16 a YAML's is float32; the command line's counts. RecordError for an unknown
    key, for what `refuse_unused` and `check_launcher` refuse, and without a model.
    """
    # Thousands from DeepSpeed's calls; and peft asks by an old name.
    noise = r"`(torch\.distributed|is_gradient_checkpointing`)"
    warnings.filterwarnings("ignore", noise, FutureWarning)
    given = ["--help" if word == "--help_all" else word for word in sys.argv[1:]]
    advice = "; docs/train.md has what is refused"
    with foreign_errors_at(
        "the arguments", ImportError, ValueError, TypeError, yaml.YAMLError, advice=advice
    ):
        groups = parser.parse_args_and_config(given)
        if groups[1].use_cpu and bfloat16_missing("cpu"):
            float32 = ["--bf16", "false", "--dtype", "float32"]
            groups = parser.parse_args_and_config([*float32, *given])
    script, training, model, *_ = groups
    refuse_unused(vars(script) | vars(training) | vars(model))
    if training.use_cpu:  # else DeepSpeed warns that it found no GPU, or takes one
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    check_launcher(training)
    if not model.model_name_or_path:
        raise RecordError("model_name_or_path is needed")
    training.model_init_kwargs = {
        **(training.model_init_kwargs or {}),
        "dtype": model.dtype,
        "attn_implementation": model.attn_implementation,
        "use_safetensors": True,
    }
    return groups


def check_launcher(training: Any) -> None:
    """Raise RecordError if accelerate's file leaves an argument without effect, or saves weights in parts, or none at all."""
    launcher = launcher_of(training)
    if launcher == "FSDP" and os.environ.get("FSDP_STATE_DICT_TYPE") != "FULL_STATE_DICT":
        raise RecordError("fsdp_state_dict_type must be FULL_STATE_DICT: else no weights are saved")
    if not training.deepspeed_plugin:
        return
    settings = training.deepspeed_plugin.deepspeed_config
    for block in ("optimizer", "scheduler"):
        if block in settings:
            raise RecordError(
                f"DeepSpeed's file names {block}, and a run's optim and lr_scheduler_type would have no effect; take that out"
            )
    zero = settings["zero_optimization"]
    host = zero.get("offload_optimizer", {}).get("device", "none")
    if host != "none" and training.optim not in ("adamw_torch", "adamw_torch_fused"):
        raise RecordError(f"optim: on {host} DeepSpeed's AdamW takes its place: adamw_torch")
    if launcher == "ZeRO-3" and not zero.get("stage3_gather_16bit_weights_on_model_save"):
        raise RecordError("zero3_save_16bit_model must be true: a stage starts from whole weights")


def check_attention(wanted: str | None) -> None:
    """Raise RecordError for attention that is not installed, of which transformers may load the code from the Hub."""
    installed = {
        "flash_attention_2": is_flash_attn_2_available,
        "flash_attention_3": is_flash_attn_3_available,
        "flash_attention_4": is_flash_attn_4_available,
    }
    name = (wanted or "").removeprefix("paged|")
    if "/" in name or (name in installed and not installed[name]()):
        raise RecordError(
            f"{name} is missing, and no code is loaded from the Hub: --attn_implementation sdpa, or "
            f"for flash_attention_2 {install('gpu')} --no-build-isolation"
        )


def end() -> None:
    """End a program of several processes on processors, else return.

    Threads of gloo can still hold Python objects, and abort a finished process while the interpreter ends
    (pytorch/pytorch#179291); so the process ends without that, behind what it registered to do at its end.
    """
    if PartialState().backend == "gloo":
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)


def network_of(start: Path, training: Any) -> Any:
    """Return what TRL trains: the path of weights, or with an adapter at `start` its base with the adapter to go on with.

    `training` is TRL's SFTConfig.
    """
    base = base_of(start)
    if base == start:
        return str(start)
    from peft import PeftModel  # only adapters need it
    from trl.trainer.utils import create_model_from_path

    network = create_model_from_path(
        str(base), **{**training.model_init_kwargs, "device_map": None}
    )
    return PeftModel.from_pretrained(network, start, is_trainable=True)


def device_name() -> str:
    """Return how many processes run on which GPU; without one, on which kind of device."""
    state = PartialState()
    kind = state.device.type
    name = torch.cuda.get_device_name() if kind == "cuda" else kind.upper()
    return f"{state.num_processes} × {name}"
