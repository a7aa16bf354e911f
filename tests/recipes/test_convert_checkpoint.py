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
from factories import change_json, read_json, write_json
from peft import LoraConfig, get_peft_model
from programs import ROOT, failed, run_recipe, succeeded, told
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from automedeval.records.journal import lock

Tensors = dict[str, torch.Tensor]


class Program:
    """Runs when an ordinary pickle of it is loaded."""

    def __init__(self, place: Path):
        self.place = place

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.place),)


def pickled(folder: Path, shards: int = 1, **how: bool) -> Tensors:
    """Replace a checkpoint's safetensors by pickles, with an index if there are several; return its tensors."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin", **how)
        return tensors
    places = {}
    for at in range(shards):
        file = f"pytorch_model-{at + 1:05}-of-{shards:05}.bin"
        part = {name: tensors[name] for name in list(tensors)[at::shards]}
        torch.save(part, folder / file, **how)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    write_json(folder / "pytorch_model.bin.index.json", index)
    return tensors


def written(folder: Path) -> Tensors:
    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    return tensors


def assert_same(first: Tensors, second: Tensors) -> None:
    torch.testing.assert_close(dict(first), dict(second), rtol=0, atol=0)


def convert(
    source: Path | str | list[Path], target: Path, **more: object
) -> subprocess.CompletedProcess:
    return run_recipe("convert_checkpoint", input=source, output=target, **more)


@pytest.fixture
def source(tmp_path):
    return build_tiny_model(tmp_path / "source")


@pytest.mark.parametrize(
    "how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "before torch 1.6"]
)
@pytest.mark.parametrize("shards", [1, 3])
def test_the_converted_checkpoint_is_the_same(source, tmp_path, shards, how):
    (source / "modeling_own.py").write_text("raise SystemExit('ran')")
    expected = AutoModelForCausalLM.from_pretrained(source).state_dict()
    tensors = pickled(source, shards, **how)
    out = tmp_path / "out"
    told(convert(source, out), f"{len(tensors)} tensors of {source}")
    assert_same(written(out), tensors)
    network = AutoModelForCausalLM.from_pretrained(out, use_safetensors=True)
    assert_same(network.state_dict(), expected)
    assert {path.suffix for path in out.iterdir()} <= {".json", ".jinja", ".safetensors"}
    assert (out / "tokenizer.json").exists()
    assert not list(tmp_path.glob(".*"))
    assert succeeded(convert(source, out)).stdout == f"{out} is there already\n"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_tied_weights_and_the_dtype_are_kept(tmp_path, dtype):
    given = tmp_path / "in"
    out = tmp_path / "out"
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=64, num_attention_heads=2, tie_word_embeddings=True, **shape)
    network = LlamaForCausalLM(config).to(dtype)
    network.save_pretrained(given)
    change_json(given / "config.json", architectures=["LLaMAForCausalLM"])  # as of 2023
    own = {"temperature": 0.9, "do_sample": False}  # transformers writes no such settings
    write_json(given / "generation_config.json", own)
    (given / "model.safetensors").unlink()
    # Embeddings and head share their memory.
    torch.save(network.state_dict(), given / "pytorch_model.bin")
    succeeded(convert(given, out))
    loaded = AutoModelForCausalLM.from_pretrained(out, use_safetensors=True, dtype="auto")
    assert_same(loaded.state_dict(), network.state_dict())
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert read_json(out / "generation_config.json") == own


def with_program(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    with open(folder / "pytorch_model.bin", "wb") as stream:
        pickle.dump(tensors | {"x": Program(folder / "ran")}, stream)


def with_tensors(change: Callable[[Tensors], object]) -> Callable[[Path], None]:
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
    code = {"AutoModelForCausalLM": "modeling_own.Own"}
    change_json(folder / "config.json", model_type="own", auto_map=code)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: None, "no pytorch_model*.bin; it has safetensors already"),
        (with_program, "source cannot be loaded: "),
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
def test_what_cannot_be_converted_is_told(source, tmp_path, change, message):
    change(source)
    failed(convert(source, tmp_path / "out"), message)
    assert not (tmp_path / "out").exists()
    assert not (source / "ran").exists(), "the program in the pickle has run"


@pytest.mark.slow
def test_a_folder_of_a_revision_on_the_hub_is_converted_with_anothers_tokenizer(source, tmp_path):
    tensors = pickled(source, 2)
    out = tmp_path / "out"
    (tmp_path / "repo").mkdir()
    weights = Path(shutil.move(source, tmp_path / "repo/weights"))
    other = build_tiny_model(tmp_path / "other")
    for file in weights.glob("tokenizer*"):
        file.unlink()
    with HubDouble() as hub:
        hub.add("model", "org/old", tmp_path / "repo", tag="v1")
        env = hub.environment(tmp_path / "home", token=None) | {"PYTHONPATH": str(ROOT / "src")}
        succeeded(convert("org/old@v1/weights", out, tokenizer=other, env=env))
    assert_same(written(out), tensors)
    vocabularies = [AutoTokenizer.from_pretrained(folder).vocab for folder in (out, other)]
    assert vocabularies[0] == vocabularies[1]


BLANK = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "")


@pytest.mark.parametrize(
    "config", [{"tokenizer_class": "LLaMATokenizer", **BLANK}, {}], ids=["blank tokens", "none"]
)
def test_a_tokenizer_of_2023_becomes_one_that_every_step_reads(source, tmp_path, config):
    pieces = pytest.importorskip("sentencepiece")
    pickled(source)
    for file in [*source.glob("tokenizer*"), *source.glob("*.jinja")]:
        file.unlink()
    text = ["Step 1: rest and drink.\nScore: Doctor 1: 3 points."] * 4
    options = {
        "model_type": "bpe",
        "vocab_size": 320,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "hard_vocab_limit": False,
        "minloglevel": 2,
    }
    pieces.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(source / "tokenizer"), **options
    )
    write_json(source / "tokenizer_config.json", config)
    write_json(source / "special_tokens_map.json", BLANK)
    succeeded(convert(source, tmp_path / "out"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    slow = pieces.SentencePieceProcessor(model_file=str(source / "tokenizer.model"))
    said = "Step 2: 38.5 °C, β-blocker.\nScore: Doctor 1: 4 points."
    assert tokenizer(said, add_special_tokens=False).input_ids == slow.encode(said)
    assert tokenizer.eos_token == "</s>"
    assert (tmp_path / "out/tokenizer.json").exists()


def test_an_encoders_vocabulary_and_merges_become_one_tokenizer_file(source, tmp_path):
    """As the paper's SimCSE encoder is published; an encoder is recognised by its weights and its tokenizer.json."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    pickled(source)
    for file in source.glob("tokenizer*"):
        file.unlink()
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    write_json(source / "vocab.json", model["vocab"])
    (source / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(f"{' '.join(pair)}\n" for pair in model["merges"])
    )
    write_json(source / "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"})
    succeeded(convert(source, tmp_path / "out"))
    assert (tmp_path / "out/tokenizer.json").exists()
    said = "Step 2: 38.5 °C.\nScore: Doctor 1: 4 points."
    made = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert made.decode(made(said, add_special_tokens=False).input_ids) == said


def test_two_processes_do_not_convert_to_one_folder(source, tmp_path):
    pickled(source)
    held = lock(tmp_path / "out", "converting there")
    failed(convert(source, tmp_path / "out"), "another process is converting there")
    assert not (tmp_path / ".out.unfinished").exists()
    held.release()
    succeeded(convert(source, tmp_path / "out"))


def test_an_adapter_is_merged_into_its_base(tmp_path):
    base = build_tiny_model(tmp_path / "base")
    adapter = tmp_path / "adapter"
    settings = LoraConfig(
        r=2, lora_alpha=6, target_modules=["q_proj", "down_proj"], init_lora_weights=False
    )
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings).save_pretrained(adapter)
    parts = load_file(adapter / "adapter_model.safetensors")
    before = load_file(base / "model.safetensors")
    torch.save(parts, adapter / "adapter_model.bin")  # as Baize is published
    (adapter / "adapter_model.safetensors").unlink()
    merged = tmp_path / "merged"
    assert "Warning" not in succeeded(convert([base, adapter], merged, launch=())).stderr
    after = load_file(merged / "model.safetensors")
    assert after.keys() == before.keys()
    changed = {name for name, weight in before.items() if not torch.equal(after[name], weight)}
    assert 2 * len(changed) == len(parts)
    for name in changed:
        first, second = (
            parts[f"base_model.model.{name[:-7]}.lora_{which}.weight"] for which in "BA"
        )
        torch.testing.assert_close(after[name], before[name] + 6 / 2 * first @ second)
    told(convert([base, adapter], merged), "there already")
    failed(convert([base, base], tmp_path / "none"), "cannot be loaded")
    assert not (tmp_path / "none").exists()
