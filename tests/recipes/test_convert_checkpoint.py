"""Pickles to safetensors: the recipe by its documented command, beside what transformers loads from both."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doubles.hub import HubDouble
from doubles.tiny_bart import build_bert
from doubles.tiny_model import build_tiny_model
from peft import LoraConfig, get_peft_model
from programs import ROOT, error_line, run_recipe
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
    files = {name: f"pytorch_model-{at % shards + 1:05}-of-{shards:05}.bin" for at, name in enumerate(names)}
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin", **how)
        return tensors
    for file in set(files.values()):
        torch.save({name: tensors[name] for name in names if files[name] == file}, folder / file, **how)
    index = {"metadata": {}, "weight_map": files}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return tensors


def written(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name]) for name in first
    )


def convert(source: Path | str, target: Path) -> subprocess.CompletedProcess:
    return run_recipe("convert_checkpoint", "--input", source, "--output", target)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build_tiny_model(tmp_path / "source")


@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "before torch 1.6"])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_converted_checkpoint_is_the_same(source: Path, tmp_path: Path, shards: int, how: dict[str, bool]) -> None:
    (source / "modeling_own.py").write_text("raise SystemExit('ran')")
    expected = AutoModelForCausalLM.from_pretrained(source).state_dict()
    tensors = pickled(source, shards, **how)
    done = convert(source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert same(written(tmp_path / "out"), tensors)
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "out", use_safetensors=True)
    assert same(network.state_dict(), expected)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= names
    assert [name for name in names if name.endswith((".bin", ".py", ".part")) or "pytorch" in name] == []
    if shards == 3:
        index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
        assert index["weight_map"].keys() == tensors.keys()
        assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
        assert "pytorch_model-00003-of-00003.bin → model-00003-of-00003.safetensors: " in done.stdout
    assert f"{len(tensors)} tensors, " in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    again = convert(source, tmp_path / "out")
    assert (again.returncode, again.stdout) == (0, f"{tmp_path / 'out'} is there already\n")


def test_tied_weights_views_and_every_dtype_are_kept(tmp_path: Path) -> None:
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=64, tie_word_embeddings=True, **shape)
    network = LlamaForCausalLM(config).to(torch.bfloat16)
    network.save_pretrained(tmp_path / "in")
    tensors = dict(network.state_dict())  # embeddings and head share their memory
    tensors["extra.half"] = torch.tensor([float("nan"), float("-inf")], dtype=torch.float16)
    tensors["extra.number"] = torch.tensor(7)
    tensors["extra.turned"] = torch.arange(6).reshape(2, 3).T
    tensors["extra.part"] = torch.arange(100.0)[10:20]
    (tmp_path / "in" / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "in" / "pytorch_model.bin")
    done = convert(tmp_path / "in", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    converted = written(tmp_path / "out")
    assert converted.keys() == tensors.keys()
    assert all(converted[name].dtype == tensor.dtype for name, tensor in tensors.items())
    assert all(torch.equal(converted[name].nan_to_num(), tensor.nan_to_num()) for name, tensor in tensors.items())
    assert converted["extra.half"].isnan().tolist() == [True, False]
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", use_safetensors=True, dtype=torch.bfloat16)
    assert same(loaded.state_dict(), network.state_dict())
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_an_interrupted_conversion_goes_on(source: Path, tmp_path: Path) -> None:
    tensors = pickled(source, 3)
    shutil.copytree(source, tmp_path / "cut")
    last = tmp_path / "cut" / "pytorch_model-00003-of-00003.bin"
    last.write_bytes(last.read_bytes()[:1000])  # stops the run in its third shard
    assert "pytorch_model-00003-of-00003.bin: not a pickle of tensors alone" in error_line(
        convert(tmp_path / "cut", tmp_path / "out")
    )
    assert not (tmp_path / "out").exists()
    scratch = tmp_path / ".out.unfinished"
    first, second = (scratch / f"model-0000{n}-of-00003.safetensors" for n in (1, 2))
    kept = first.stat().st_mtime_ns
    second.write_bytes(second.read_bytes()[:-7])  # cut off
    (scratch / "model-00003-of-00003.safetensors.part").write_bytes(b"half")
    done = convert(source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.endswith("there already") for line in lines[:3]] == [True, False, False]
    assert (tmp_path / "out" / first.name).stat().st_mtime_ns == kept
    assert same(written(tmp_path / "out"), tensors)
    assert not scratch.exists()


def with_program(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    with open(folder / "pytorch_model.bin", "wb") as stream:
        pickle.dump(tensors | {"x": Program(folder / "ran")}, stream)


def with_other_content(content: object) -> Callable[[Path], None]:
    return lambda folder: torch.save(content, folder / "pytorch_model.bin")


def with_missing_shard(folder: Path) -> None:
    pickled(folder, 3)
    (folder / "pytorch_model-00002-of-00003.bin").unlink()


def with_path_in_index(folder: Path) -> None:
    index = {"weight_map": {"x": "../pytorch_model.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def with_name_not_stored(folder: Path) -> None:
    pickled(folder, 2)
    file = folder / "pytorch_model.bin.index.json"
    index = json.loads(file.read_text())
    index["weight_map"]["model.lost.weight"] = "pytorch_model-00001-of-00002.bin"
    file.write_text(json.dumps(index))


def with_name_twice(folder: Path) -> None:
    pickled(folder, 2)
    torch.save(
        torch.load(folder / "pytorch_model-00001-of-00002.bin")
        | torch.load(folder / "pytorch_model-00002-of-00002.bin"),
        folder / "pytorch_model-00002-of-00002.bin",
    )


def with_word_pieces(folder: Path) -> None:
    pickled(folder)
    build_bert(folder / "bert")  # its tokenizer puts blanks between signs
    shutil.copy(folder / "bert/tokenizer.json", folder / "tokenizer.json")


def with_broken_tokenizer(folder: Path) -> None:
    pickled(folder)
    (folder / "tokenizer.json").write_text("{")


def with_own_architecture(folder: Path) -> None:
    pickled(folder)
    config = json.loads((folder / "config.json").read_text())
    changes = {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: None,
            "no pytorch_model.bin and no pytorch_model.bin.index.json; its weights are safetensors already",
        ),
        (with_program, "pytorch_model.bin: not a pickle of tensors alone: "),
        (with_other_content([torch.zeros(2)]), "holds a list, not tensors by their names"),
        (with_other_content({"step": 3}), "'step' is a int, not a tensor"),
        (with_other_content({"x": torch.eye(2).to_sparse()}), "'x' is not a dense tensor"),
        (with_missing_shard, "names the shard 'pytorch_model-00002-of-00003.bin', which is not in the folder"),
        (with_path_in_index, "names the shard '../pytorch_model.bin', which is not in the folder"),
        (with_name_not_stored, "'model.lost.weight' is missing in the shards"),
        (with_word_pieces, "its tokenizer gives "),
        (with_broken_tokenizer, "no tokenizer: "),
        (with_name_twice, " is in model-00001-of-00002.safetensors too"),
        (
            with_own_architecture,
            "the model_type 'own' is not known to transformers, and code in a checkpoint is not run",
        ),
    ],
)
def test_what_cannot_be_converted_is_told(
    source: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    change(source)
    line = error_line(convert(source, tmp_path / "out"))
    assert message in line
    assert not (tmp_path / "out").exists()
    assert not (source / "ran").exists(), "the program in the pickle has run"


def test_memory_holds_one_shard(tmp_path: Path) -> None:
    size, shards = 48 * 2**20, 6
    build_tiny_model(tmp_path / "in")
    (tmp_path / "in" / "model.safetensors").unlink()
    files = {f"w{at}": f"pytorch_model-{at + 1:05}-of-{shards:05}.bin" for at in range(shards)}
    for name, file in files.items():
        torch.save({name: torch.randint(256, (size,), dtype=torch.uint8)}, tmp_path / "in" / file)
    (tmp_path / "in" / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    program = (
        "import resource, runpy, sys; import torch, transformers; from transformers import CONFIG_MAPPING;"
        "held = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "before = held(); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__');"
        "print((held() - before) * 1024)"
    )
    command = [sys.executable, "-c", program, "recipes/convert_checkpoint.py", "--input", tmp_path / "in", "--output"]
    done = subprocess.run([*map(str, command), str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 4 * size, "all shards together are six times as large as one"


def test_a_folder_of_a_revision_on_the_hub_is_converted_with_anothers_tokenizer(source: Path, tmp_path: Path) -> None:
    tensors = pickled(source, 2)
    (tmp_path / "repo").mkdir()
    shutil.move(source, tmp_path / "repo/weights")
    other = build_tiny_model(tmp_path / "other")
    for file in (tmp_path / "repo/weights").glob("tokenizer*"):
        file.unlink()
    with HubDouble() as hub:
        hub.add("model", "org/old", tmp_path / "repo", tag="v1")
        environment = hub.environment(tmp_path / "home", token=None) | {"PYTHONPATH": str(ROOT / "src")}
        names = ("--input", "org/old@v1/weights", "--tokenizer", other, "--output", tmp_path / "out")
        done = run_recipe("convert_checkpoint", *names, env=environment)
    assert done.returncode == 0, done.stderr
    assert same(written(tmp_path / "out"), tensors)
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "out").get_vocab() == AutoTokenizer.from_pretrained(other).get_vocab()
    )


BLANK = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "")


@pytest.mark.parametrize("config", [{"tokenizer_class": "LLaMATokenizer", **BLANK}, {}], ids=["blank tokens", "none"])
def test_a_tokenizer_of_2023_becomes_one_that_every_step_reads(source: Path, tmp_path: Path, config: dict) -> None:
    pieces = pytest.importorskip("sentencepiece")
    pickled(source)
    for file in [*source.glob("tokenizer*"), *source.glob("*.jinja")]:
        file.unlink()
    text = ["Step 1: rest and drink.\nScore: Doctor 1: 3 points."] * 4
    how = {"model_prefix": str(source / "tokenizer"), "model_type": "bpe", "vocab_size": 320, "byte_fallback": True}
    how |= {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "hard_vocab_limit": False}
    pieces.SentencePieceTrainer.train(sentence_iterator=iter(text), minloglevel=2, **how)
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    (source / "special_tokens_map.json").write_text(json.dumps(BLANK))
    done = convert(source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    slow = pieces.SentencePieceProcessor(model_file=str(source / "tokenizer.model"))
    said = "Step 2: 38.5 °C, β-blocker.\nScore: Doctor 1: 4 points."
    assert tokenizer(said, add_special_tokens=False).input_ids == slow.encode(said)
    assert tokenizer.eos_token == "</s>"
    assert (tmp_path / "out/tokenizer.json").exists()


def test_two_processes_do_not_convert_to_one_folder(source: Path, tmp_path: Path) -> None:
    pickled(source)
    held = lock(tmp_path / "out", "converting there")
    assert "another process is converting there" in error_line(convert(source, tmp_path / "out"))
    assert not (tmp_path / ".out.unfinished").exists()
    held.release()
    assert convert(source, tmp_path / "out").returncode == 0


def test_an_adapter_is_merged_into_its_base(tmp_path: Path) -> None:
    base, adapter = build_tiny_model(tmp_path / "base"), tmp_path / "adapter"
    settings = LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings).save_pretrained(adapter)
    parts, before = load_file(adapter / "adapter_model.safetensors"), load_file(base / "model.safetensors")
    torch.save(parts, adapter / "adapter_model.bin")  # as Baize is published
    (adapter / "adapter_model.safetensors").unlink()
    command = ["--input", base, adapter, "--output", tmp_path / "merged"]
    done = run_recipe("convert_checkpoint", *command)
    assert done.returncode == 0, done.stderr
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
    line = error_line(run_recipe("convert_checkpoint", "--input", base, base, "--output", tmp_path / "none"))
    assert "cannot be loaded" in line
    assert not (tmp_path / "none").exists()
