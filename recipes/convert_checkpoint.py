"""Convert a checkpoint whose weights are pickles into safetensors, the only format that the other recipes read.

    python recipes/convert_checkpoint.py --input chaoyi-wu/MedLLaMA_13B --output models/MedLLaMA-13B
    python recipes/convert_checkpoint.py --input FOLDER --output models/NAME
    python recipes/convert_checkpoint.py --input BASE ADAPTER --output models/NAME
    python recipes/convert_checkpoint.py --input ORG/NAME/FOLDER --tokenizer ORG/OTHER --output models/NAME

A pickle can hold a program. Here `torch.load(weights_only=True)` reads it, which builds tensors and nothing else, in a process
that does nothing but this. A checkpoint of an architecture that needs code of its own is refused, and no code is copied. Names,
shapes, dtypes and values stay as they are: every shard is read back after it was written, and compared bit by bit. Memory holds
one shard at a time; the disk has to hold both checkpoints. OUTPUT gets its name when it is complete; the same command
resumes an interrupted run. A tokenizer.model becomes tokenizer.json; a tokenizer is refused that cannot be loaded, or that
does not give a causal model's texts back. With two inputs an adapter is merged into its base model by peft, in the base's
dtype; memory then holds the whole model.
"""

import json
import os
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from automedeval.models.checkpoints import FILES, check_architecture, checkpoint_folder, loading
from automedeval.records import RecordError, option, read_json
from automedeval.records.command_line import parse, run
from automedeval.records.journal import lock, write_json
from automedeval.training.base_model import TEXTS, load_tokenizer, round_trip_faults

PICKLES, INDEX = "pytorch_model*.bin", "pytorch_model.bin.index.json"


@dataclass
class ConvertArguments:
    """Which checkpoint, and where to."""

    input: list[str] = option(
        "checkpoint with pytorch_model*.bin: a folder, or ORG/NAME or ORG/NAME@REVISION; or base and adapter"
    )
    output: str = option("folder for the converted checkpoint")
    tokenizer: str | None = option("folder or Hub id with the tokenizer (default: the checkpoint's own)", None)


def main() -> None:
    """Convert, unless another process is converting to the same folder."""
    (args,) = parse((ConvertArguments,), __doc__)
    output = Path(args.output)
    with lock(output, "converting there") as held:
        if len(args.input) > 2:
            raise RecordError("--input takes a checkpoint, or a base model and an adapter")
        if (output / "config.json").exists():
            print(f"{output} is there already")
        elif output.exists():
            raise RecordError(f"{output}: holds something else than a checkpoint; choose another --output")
        else:
            scratch = output.with_name(f".{output.name}.unfinished")
            done = (merge if len(args.input) == 2 else convert)(*args.input, scratch)
            settle_tokenizer(scratch, args.tokenizer)
            scratch.rename(output)
            print(f"{output}: {done}")
    Path(held.lock_file).unlink(missing_ok=True)  # whoever comes later finds the folder


def convert(model: str, scratch: Path) -> str:
    """Convert shard by shard, write the index, copy configuration and tokenizer; return what was done."""
    parts = re.fullmatch(r"(?!models/)(\w[\w.-]*/[^/]+)/(.+)", model)  # ORG/NAME/FOLDER
    inside = parts is not None and not Path(model).exists()
    source = checkpoint_folder(parts[1] if inside else model, weights=f"*{PICKLES}") / (parts[2] if inside else "")
    check_architecture(source)
    shards, listed = shards_of(source)
    count = len(shards)
    whole = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    names = whole if count > 1 else ["model.safetensors"]
    scratch.mkdir(parents=True, exist_ok=True)
    for left in [file for file in scratch.iterdir() if file.name not in names]:
        left.unlink()
    places, size = dict[str, str](), 0
    for shard, name in zip(shards, names, strict=True):
        tensors = read_pickle(shard)
        if twice := sorted(places.keys() & tensors):
            raise RecordError(f"{shard}: {twice[0]!r} is in {places[twice[0]]} too")
        there = same(scratch / name, tensors)
        if not there:
            write(tensors, scratch / name, shard)
        places |= dict.fromkeys(tensors, name)
        size += sum(tensor.nbytes for tensor in tensors.values())
        print(f"{shard.name} → {name}: {len(tensors):,} tensors{', there already' if there else ''}", flush=True)
        del tensors
    if count > 1:
        if wrong := sorted(listed ^ set(places)):
            problem = "missing in the shards" if wrong[0] in listed else "not listed"
            raise RecordError(f"{source / INDEX}: {wrong[0]!r} is {problem}")
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
        write_json(scratch / "model.safetensors.index.json", index)
    for pattern in (*FILES, "README.md", "LICENSE*"):
        for file in source.glob(pattern):
            if not file.name.endswith(".index.json"):
                shutil.copyfile(file, scratch / file.name)
    return f"{len(places):,} tensors, {size / 1e9:.2f} GB, equal to those of {model}"


def settle_tokenizer(folder: Path, other: str | None) -> None:
    """Write tokenizer.json, of the tokenizer in a folder or of another checkpoint's.

    RecordError if it cannot be loaded, or if it is a causal model's and changes texts.
    """
    if other is None and not any(folder.glob("tokenizer*")):
        return  # as the checkpoint had none
    config, old = read_json(folder / "config.json", others=True), folder / "tokenizer.model"
    alone = old.exists() and not (folder / "tokenizer.json").exists()
    for file in (folder / "tokenizer_config.json", folder / "special_tokens_map.json"):
        content = read_json(file, others=True) if file.exists() else {}
        content = {key: value for key, value in content.items() if value != ""}  # blank tokens end in a RecursionError
        if alone and config["model_type"] == "llama" and file.name == "tokenizer_config.json":
            content["tokenizer_class"] = "LlamaTokenizer"  # the name of 2023 is that of no class, or missing
        if content or file.exists():
            write_json(file, content)
    tokenizer = load_tokenizer(checkpoint_folder(other, weights="none") if other else folder)
    if alone and not other:
        from sentencepiece import SentencePieceProcessor

        own = SentencePieceProcessor(model_file=str(old))
        if any(own.encode(text) != tokenizer(text, add_special_tokens=False).input_ids for text in TEXTS):
            raise RecordError(f"{old}: transformers makes other tokens of a text than sentencepiece")
    if other or alone:
        tokenizer.save_pretrained(folder)
    architectures = config.get("architectures") or [""]
    if architectures[0].endswith("ForCausalLM") and (faults := round_trip_faults(tokenizer)):
        raise RecordError(f"{other or folder}: {faults[0]}")


def merge(base: str, adapter: str, scratch: Path) -> str:
    """Merge an adapter of peft into its base model; return what was done.

    RecordError if there is no such base or adapter, or the adapter does not fit the base.
    """
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = checkpoint_folder(base)
    check_architecture(folder)
    with loading(f"{adapter} on {base}"):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", use_safetensors=True)
        PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(scratch)
        AutoTokenizer.from_pretrained(folder).save_pretrained(scratch)
    return f"{base} with {adapter} merged into it"


def shards_of(source: Path) -> tuple[list[Path], set[str]]:
    """Return the pickles of a checkpoint, and the names of the tensors that its index lists."""
    index = source / INDEX
    if not index.exists():
        if not (source / "pytorch_model.bin").exists():
            converted = any(source.glob("*.safetensors"))
            problem = "its weights are safetensors already" if converted else "there are no weights"
            raise RecordError(f"{source}: no pytorch_model.bin and no {INDEX}; {problem}")
        return [source / "pytorch_model.bin"], set()
    try:
        weights = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(weights.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{index}: no index of shards ({error})") from None
    for name in names:
        if name != Path(name).name or not (source / name).exists():
            raise RecordError(f"{index}: names the shard {name!r}, which is not in the folder")
    return [source / name for name in names], set(weights)


def read_pickle(shard: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a shard, mapped from the disk where its format allows that.

    RecordError for a file that cannot be read, that holds more than tensors by name, or a tensor that is not dense.
    """
    try:
        mapped = zipfile.is_zipfile(shard)  # not those that torch before 1.6 wrote
        tensors = torch.load(shard, map_location="cpu", weights_only=True, mmap=mapped)
    except (UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise RecordError(f"{shard}: not a pickle of tensors alone: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(tensors, dict) or not tensors:
        raise RecordError(f"{shard}: holds a {type(tensors).__name__}, not tensors by their names")
    for name, value in tensors.items():
        if not isinstance(name, str) or type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise RecordError(f"{shard}: {name!r} is a {type(value).__name__}, not a tensor")
        if value.layout != torch.strided or value.is_quantized:
            raise RecordError(f"{shard}: {name!r} is not a dense tensor, which safetensors cannot hold")
    return {name: value.detach() for name, value in tensors.items()}


def write(tensors: dict[str, torch.Tensor], file: Path, shard: Path) -> None:
    """Write the tensors of a shard, read them back, and give the file its name."""
    seen: set[int] = set()
    apart = {}  # the format refuses tensors that share their memory, as tied weights do
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone(memory_format=torch.contiguous_format) if memory in seen else tensor.contiguous()
        seen.add(memory)
    part = file.with_name(f"{file.name}.part")
    try:
        save_file(apart, part, metadata={"format": "pt"})
    except SafetensorError as error:
        raise RecordError(f"{part}: cannot be written: {' '.join(str(error).split())[:200]}") from None
    if not same(part, tensors):
        raise RecordError(f"{part}: differs from {shard} after writing; the disk may be faulty")
    os.replace(part, file)


def same(file: Path, tensors: dict[str, torch.Tensor]) -> bool:
    """Return whether a safetensors file holds exactly these tensors, bit by bit."""
    try:
        with safe_open(file, "pt") as written:
            return set(written.keys()) == set(tensors) and all(
                equal(written.get_tensor(name), tensor) for name, tensor in tensors.items()
            )
    except (OSError, SafetensorError):  # not there, or cut off
        return False


def equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors have the same dtype, shape and bits; NaN is equal to the same NaN."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (first, second)))


if __name__ == "__main__":
    run(main)
