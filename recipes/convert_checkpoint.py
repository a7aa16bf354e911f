"""Convert a checkpoint whose weights are pickles into safetensors, the only format that the other recipes read.

    python recipes/convert_checkpoint.py --input chaoyi-wu/MedLLaMA_13B --output models/MedLLaMA-13B
    python recipes/convert_checkpoint.py --input FOLDER --output models/NAME
    python recipes/convert_checkpoint.py --input BASE ADAPTER --output models/NAME
    python recipes/convert_checkpoint.py --input ORG/NAME/FOLDER --tokenizer ORG/OTHER --output models/NAME

A pickle can hold a program. Here transformers reads it by `torch.load(weights_only=True)`, which builds tensors and nothing
else. A checkpoint of an architecture that needs code of its own is refused, and no code is copied. Memory holds the model, the
disk both checkpoints. OUTPUT gets its name when it is complete. A tokenizer of any form becomes tokenizer.json; a tokenizer is
refused that cannot be loaded, or that does not give a causal model's texts back. With two inputs an adapter is merged into its
base model by peft, in float32; of an adapter of recipes/sft.py the base is known.
"""

import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

import transformers

from automedeval.models.checkpoints import FILES, base_of, checkpoint_folder, loading
from automedeval.models.tokenization import load_tokenizer
from automedeval.records import RecordError, option, read_json
from automedeval.records.command_line import parse, run
from automedeval.records.journal import lock, write_json

PICKLES = "pytorch_model*.bin"
# What a tokenizer must give back unchanged: answers with scores and with choices, and signs beside ASCII.
TEXTS = [f"Step 1.\nScore: Doctor 1: {score} points." for score in range(1, 6)]
TEXTS += ['{"rationale": "Step 1.", "choices": {"correctness": "A", "safety": "tie"}}']
TEXTS += ["38.5 °C, 5 µg, ≥ 2 × 10⁹/l, β-blocker, naïve, “yes” – no"]


@dataclass
class ConvertArguments:
    """Which checkpoint, and where to."""

    input: list[str] = option(
        "checkpoint with pytorch_model*.bin: a folder, or ORG/NAME or ORG/NAME@REVISION; or base and adapter"
    )
    output: str = option("folder for the converted checkpoint")
    tokenizer: str | None = option(
        "folder or Hub id with the tokenizer (default: the checkpoint's own)", None
    )


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
            raise RecordError(
                f"{output}: holds something else than a checkpoint; choose another --output"
            )
        else:
            scratch = output.with_name(f".{output.name}.unfinished")
            shutil.rmtree(scratch, ignore_errors=True)
            model, *adapter = args.input
            if not adapter and (folder := Path(model)) != base_of(folder):
                model, adapter = str(base_of(folder)), [model]
            done = merge(model, *adapter, scratch) if adapter else convert(model, scratch)
            settle_tokenizer(scratch, args.tokenizer)
            scratch.rename(output)
            print(f"{output}: {done}")
    Path(held.lock_file).unlink(missing_ok=True)  # whoever comes later finds the folder


def convert(model: str, scratch: Path) -> str:
    """Load the pickles and save them as safetensors, with configuration and tokenizer; return what was done."""
    parts = re.fullmatch(r"(?!models/)(\w[\w.-]*/[^/]+)/(.+)", model)  # ORG/NAME/FOLDER
    name, inside = parts.groups() if parts and not Path(model).exists() else (model, "")
    source = checkpoint_folder(name, weights=f"*{PICKLES}") / inside
    if not any(source.glob(PICKLES)):
        converted = any(source.glob("*.safetensors"))
        raise RecordError(
            f"{source}: no {PICKLES}; {'it has safetensors already' if converted else 'there are no weights'}"
        )
    architecture = (read_json(source / "config.json").get("architectures") or [""])[0]
    # of 2023 some are written LLaMA…, which is no class of today's
    other = "AutoModelForCausalLM" if architecture.endswith("ForCausalLM") else "AutoModel"
    network = getattr(transformers, architecture or other, None) or getattr(transformers, other)
    with loading(str(source)):
        transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
        options = {
            "dtype": "auto",
            "use_safetensors": False,
            "weights_only": True,
            "ignore_mismatched_sizes": True,
        }
        loaded, about = network.from_pretrained(source, output_loading_info=True, **options)
    if lost := sorted({*about["missing_keys"], *(name for name, *_ in about["mismatched_keys"])}):
        raise RecordError(f"{source}: {lost[0]!r} is missing in the weights, or has another shape")
    if loaded.can_generate():
        loaded.generation_config = (
            transformers.GenerationConfig()
        )  # the checkpoint's own is copied, valid or not
    loaded.save_pretrained(scratch)
    for pattern in (*FILES, "README.md", "LICENSE*"):
        for file in source.glob(pattern):
            if not file.name.endswith(".index.json"):
                shutil.copyfile(file, scratch / file.name)
    more = (
        f"; {len(about['unexpected_keys']):,} more have no place in {network.__name__}"
        if about["unexpected_keys"]
        else ""
    )
    return f"{len(loaded.state_dict()):,} tensors of {model}{more}"


def settle_tokenizer(folder: Path, other: str | None) -> None:
    """Write tokenizer.json, of the tokenizer in a folder or of another checkpoint's.

    RecordError if it cannot be loaded, or if it is a causal model's and changes texts.
    """
    if other is None and not any(folder.glob("tokenizer*")) and not any(folder.glob("vocab*")):
        return  # as the checkpoint had none
    config, old = read_json(folder / "config.json"), folder / "tokenizer.model"
    missing = not (folder / "tokenizer.json").exists()
    alone = old.exists() and missing
    for file in (folder / "tokenizer_config.json", folder / "special_tokens_map.json"):
        content = read_json(file) if file.exists() else {}
        content = {
            key: value for key, value in content.items() if value != ""
        }  # blank tokens end in a RecursionError
        if alone and config["model_type"] == "llama" and file.name == "tokenizer_config.json":
            content["tokenizer_class"] = (
                "LlamaTokenizer"  # the name of 2023 is that of no class, or missing
            )
        if content or file.exists():
            write_json(file, content)
    tokenizer = load_tokenizer(checkpoint_folder(other, weights="none") if other else folder)
    if alone and not other:
        from sentencepiece import SentencePieceProcessor

        own = SentencePieceProcessor(model_file=str(old))
        if any(
            own.encode(text) != tokenizer(text, add_special_tokens=False).input_ids
            for text in TEXTS
        ):
            raise RecordError(
                f"{old}: transformers makes other tokens of a text than sentencepiece"
            )
    if other or missing:
        tokenizer.save_pretrained(folder)
    architectures = config.get("architectures") or [""]
    for text in TEXTS if architectures[0].endswith("ForCausalLM") else ():
        back = tokenizer.decode(
            tokenizer(text, add_special_tokens=False).input_ids, clean_up_tokenization_spaces=False
        )
        if back.strip() != text.strip():
            raise RecordError(f"{other or folder}: its tokenizer gives {text!r} back as {back!r}")


def merge(base: str, adapter: str, scratch: Path) -> str:
    """Merge an adapter of peft into its base model; return what was done.

    RecordError if there is no such base or adapter, or the adapter does not fit the base.
    """
    from peft import PeftModel

    folder = checkpoint_folder(base)
    warnings.filterwarnings(
        "ignore", "`is_gradient_checkpointing`", FutureWarning
    )  # peft asks by the old name
    with loading(f"{adapter} on {base}"):
        options = {"dtype": "float32", "use_safetensors": True, "trust_remote_code": False}
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
        PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(scratch)
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(scratch)
        if (trained := Path(adapter) / "training").is_dir():
            shutil.copytree(trained, scratch / "training")
    return f"{base} with {adapter} merged into it"


if __name__ == "__main__":
    run(main)
