"""Pickles to safetensors: the recipe by its documented command, beside what transformers loads from both."""

import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doubles.hub import HubDouble
from doubles.tiny_bart import build_bert
from doubles.tiny_model import build_tiny_model
from peft import LoraConfig, get_peft_model
from programs import ROOT, error_line, run_recipe, succeeded
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from automedeval.records.journal import lock


class Program:
    """Runs when an ordinary pickle of it is loaded."""

    def __init__(self, place: Path):
        self.place = place

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.place),)


def pickled(folder: Path, shards: int = 1, **how: bool) -> dict[str, torch.Tensor]:
    """Replace a checkpoint's safetensors by pickles, with an index if there are several; return its tensors."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    files = {
        name: f"pytorch_model-{at % shards + 1:05}-of-{shards:05}.bin"
        for at, name in enumerate(names)
    }
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin", **how)
        return tensors
    for file in set(files.values()):
        torch.save(
            {name: tensors[name] for name in names if files[name] == file}, folder / file, **how
        )
    index = {"metadata": {}, "weight_map": files}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return tensors


def written(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for file in folder.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    pairs = [(first[name], second.get(name)) for name in first]
    return first.keys() == second.keys() and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs
    )


def convert(source: Path | str, target: Path) -> subprocess.CompletedProcess:
    return run_recipe("convert_checkpoint", "--input", source, "--output", target)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build_tiny_model(tmp_path / "source")


@pytest.mark.parametrize(
    "how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "before torch 1.6"]
)
@pytest.mark.parametrize("shards", [1, 3])
def test_the_converted_checkpoint_is_the_same(
    source: Path, tmp_path: Path, shards: int, how: dict[str, bool]
) -> None:
    (source / "modeling_own.py").write_text("raise SystemExit('ran')")
    expected = AutoModelForCausalLM.from_pretrained(source).state_dict()
    tensors = pickled(source, shards, **how)
    done = succeeded(convert(source, tmp_path / "out"))
    assert same(written(tmp_path / "out"), tensors)
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "out", use_safetensors=True)
    assert same(network.state_dict(), expected)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= names
    assert [
        name for name in names if name.endswith((".bin", ".py", ".part")) or "pytorch" in name
    ] == []
    assert f"{len(tensors)} tensors of {source}" in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    again = convert(source, tmp_path / "out")
    assert (again.returncode, again.stdout) == (0, f"{tmp_path / 'out'} is there already\n")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_tied_weights_and_the_dtype_are_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    shape = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    network = LlamaForCausalLM(LlamaConfig(vocab_size=64, tie_word_embeddings=True, **shape)).to(
        dtype
    )
    network.save_pretrained(tmp_path / "in")
    config = json.loads((tmp_path / "in/config.json").read_text())
    (tmp_path / "in/config.json").write_text(
        json.dumps(config | {"architectures": ["LLaMAForCausalLM"]})
    )  # as of 2023
    own = {"temperature": 0.9, "do_sample": False}  # transformers writes no such settings
    (tmp_path / "in/generation_config.json").write_text(json.dumps(own))
    (tmp_path / "in" / "model.safetensors").unlink()
    torch.save(
        network.state_dict(), tmp_path / "in" / "pytorch_model.bin"
    )  # embeddings and head share their memory
    succeeded(convert(tmp_path / "in", tmp_path / "out"))
    loaded = AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", use_safetensors=True, dtype="auto"
    )
    assert same(loaded.state_dict(), network.state_dict())
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert json.loads((tmp_path / "out/generation_config.json").read_text()) == own


def with_program(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    with open(folder / "pytorch_model.bin", "wb") as stream:
        pickle.dump(tensors | {"x": Program(folder / "ran")}, stream)


def with_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """Return what pickles a checkpoint with other content."""
    return lambda folder: torch.save(change(pickled(folder)), folder / "pytorch_model.bin")


def with_missing_shard(folder: Path) -> None:
    pickled(folder, 3)
    (folder / "pytorch_model-00002-of-00003.bin").unlink()


def with_word_pieces(folder: Path) -> None:
    pickled(folder)
    build_bert(folder / "bert")  # its tokenizer puts blanks between signs
    shutil.copy(folder / "bert/tokenizer.json", folder / "tokenizer.json")


def with_own_architecture(folder: Path) -> None:
    pickled(folder)
    config = json.loads((folder / "config.json").read_text())
    changes = {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: None, "no pytorch_model*.bin; it has safetensors already"),
        (with_program, "source cannot be loaded: "),
        (with_tensors(lambda own: list(own.values())), "source cannot be loaded: "),
        (with_missing_shard, "source cannot be loaded: "),
        (
            with_tensors(lambda own: dict(list(own.items())[1:])),
            " is missing in the weights, or has another shape",
        ),
        (
            with_tensors(lambda own: own | {"model.norm.weight": torch.ones(3)}),
            "'model.norm.weight' is missing in the",
        ),
        (with_word_pieces, "its tokenizer gives "),
        (with_own_architecture, "model type `own` but Transformers does not recognize"),
    ],
)
def test_what_cannot_be_converted_is_told(source, tmp_path, change, message) -> None:
    change(source)
    line = error_line(convert(source, tmp_path / "out"))
    assert message in line
    assert not (tmp_path / "out").exists()
    assert not (source / "ran").exists(), "the program in the pickle has run"


def test_a_folder_of_a_revision_on_the_hub_is_converted_with_anothers_tokenizer(
    source: Path, tmp_path: Path
) -> None:
    tensors = pickled(source, 2)
    (tmp_path / "repo").mkdir()
    shutil.move(source, tmp_path / "repo/weights")
    other = build_tiny_model(tmp_path / "other")
    for file in (tmp_path / "repo/weights").glob("tokenizer*"):
        file.unlink()
    with HubDouble() as hub:
        hub.add("model", "org/old", tmp_path / "repo", tag="v1")
        environment = hub.environment(tmp_path / "home", token=None) | {
            "PYTHONPATH": str(ROOT / "src")
        }
        names = (
            "--input",
            "org/old@v1/weights",
            "--tokenizer",
            other,
            "--output",
            tmp_path / "out",
        )
        done = run_recipe("convert_checkpoint", *names, env=environment)
    assert done.returncode == 0, done.stderr
    assert same(written(tmp_path / "out"), tensors)
    ours, theirs = (
        AutoTokenizer.from_pretrained(folder).get_vocab() for folder in (tmp_path / "out", other)
    )
    assert ours == theirs


BLANK = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "")


@pytest.mark.parametrize(
    "config", [{"tokenizer_class": "LLaMATokenizer", **BLANK}, {}], ids=["blank tokens", "none"]
)
def test_a_tokenizer_of_2023_becomes_one_that_every_step_reads(
    source: Path, tmp_path: Path, config: dict
) -> None:
    pieces = pytest.importorskip("sentencepiece")
    pickled(source)
    for file in [*source.glob("tokenizer*"), *source.glob("*.jinja")]:
        file.unlink()
    text = ["Step 1: rest and drink.\nScore: Doctor 1: 3 points."] * 4
    how = {
        "model_prefix": str(source / "tokenizer"),
        "model_type": "bpe",
        "vocab_size": 320,
        "byte_fallback": True,
    }
    how |= {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "hard_vocab_limit": False,
    }
    pieces.SentencePieceTrainer.train(sentence_iterator=iter(text), minloglevel=2, **how)
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    (source / "special_tokens_map.json").write_text(json.dumps(BLANK))
    succeeded(convert(source, tmp_path / "out"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    slow = pieces.SentencePieceProcessor(model_file=str(source / "tokenizer.model"))
    said = "Step 2: 38.5 °C, β-blocker.\nScore: Doctor 1: 4 points."
    assert tokenizer(said, add_special_tokens=False).input_ids == slow.encode(said)
    assert tokenizer.eos_token == "</s>"
    assert (tmp_path / "out/tokenizer.json").exists()


def test_an_encoders_vocabulary_and_merges_become_one_tokenizer_file(
    source: Path, tmp_path: Path
) -> None:
    """As the paper's SimCSE encoder is published; an encoder is recognised by its weights and its tokenizer.json."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    pickled(source)
    for file in source.glob("tokenizer*"):
        file.unlink()
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    (source / "vocab.json").write_text(json.dumps(model["vocab"]))
    (source / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(f"{' '.join(pair)}\n" for pair in model["merges"])
    )
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    succeeded(convert(source, tmp_path / "out"))
    assert (tmp_path / "out/tokenizer.json").exists()
    said = "Step 2: 38.5 °C.\nScore: Doctor 1: 4 points."
    made = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert made.decode(made(said, add_special_tokens=False).input_ids) == said


def test_two_processes_do_not_convert_to_one_folder(source: Path, tmp_path: Path) -> None:
    pickled(source)
    held = lock(tmp_path / "out", "converting there")
    assert "another process is converting there" in error_line(convert(source, tmp_path / "out"))
    assert not (tmp_path / ".out.unfinished").exists()
    held.release()
    assert convert(source, tmp_path / "out").returncode == 0


def test_an_adapter_is_merged_into_its_base(tmp_path: Path) -> None:
    base, adapter = build_tiny_model(tmp_path / "base"), tmp_path / "adapter"
    settings = LoraConfig(
        r=2, lora_alpha=6, target_modules=["q_proj", "down_proj"], init_lora_weights=False
    )
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings).save_pretrained(adapter)
    parts, before = (
        load_file(adapter / "adapter_model.safetensors"),
        load_file(base / "model.safetensors"),
    )
    torch.save(parts, adapter / "adapter_model.bin")  # as Baize is published
    (adapter / "adapter_model.safetensors").unlink()
    command = ["--input", base, adapter, "--output", tmp_path / "merged"]
    assert "Warning" not in succeeded(run_recipe("convert_checkpoint", *command, launch=())).stderr
    after = load_file(tmp_path / "merged/model.safetensors")
    assert after.keys() == before.keys()
    changed = 0
    for name, weight in before.items():
        part = f"base_model.model.{name.removesuffix('.weight')}.lora_"
        if f"{part}A.weight" in parts:
            weight = weight + 6 / 2 * parts[f"{part}B.weight"] @ parts[f"{part}A.weight"]
            changed += 1
        torch.testing.assert_close(after[name], weight)
    assert 2 * changed == len(parts)
    assert "there already" in run_recipe("convert_checkpoint", *command).stdout
    line = error_line(
        run_recipe("convert_checkpoint", "--input", base, base, "--output", tmp_path / "none")
    )
    assert "cannot be loaded" in line
    assert not (tmp_path / "none").exists()
