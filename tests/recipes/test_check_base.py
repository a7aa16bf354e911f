"""What a base model needs, by the recipe: tiny checkpoints that lack one thing each, and one that lacks nothing."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doubles.tiny_bart import build_bert
from doubles.tiny_model import CHAT_TEMPLATE, build_tiny_model
from programs import ENCODER, JUDGE, ROOT, error_line, needs_encoder, needs_judge, run_recipe
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

PLAIN = ROOT / "src/automedeval/models/templates/chat_template.jinja"


def check(folder: Path, *more: object) -> tuple[list[str], str]:
    done = run_recipe("check_base", "--model", folder, *more)
    faults = [line.removeprefix("- ") for line in done.stdout.splitlines() if line.startswith("- ")]
    if not faults:
        assert done.returncode == 0, done.stderr
        return [], done.stdout.splitlines()[-1]
    return faults, error_line(done)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return build_tiny_model(tmp_path / "base")


def configured(**values: object) -> Callable[[Path], None]:
    """Return a change of config.json; a value None removes its key."""

    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text()) | values
        content = {key: value for key, value in content.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(content))

    return change


def templated(template: str | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "chat_template.jinja").unlink()
        if template:
            (folder / "chat_template.jinja").write_text(template)

    return change


def without_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def tokenized(change: Callable[[PreTrainedTokenizerFast], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        change(tokenizer)
        tokenizer.save_pretrained(folder)

    return apply


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def sharded(folder: Path) -> None:
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="50KB")
    (folder / "model.safetensors").unlink(missing_ok=True)


def without_a_shard(folder: Path) -> None:
    sharded(folder)
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def cut_off(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def with_a_tokenizer_that_loses_signs(folder: Path) -> None:
    template = CHAT_TEMPLATE.replace("<|im_end|>", "[SEP]")
    build_bert(folder / "other")  # its word pieces put blanks between signs, and know few of them
    names = {"eos_token": "[SEP]", "unk_token": "[UNK]", "chat_template": template}
    PreTrainedTokenizerFast(tokenizer_file=f"{folder}/other/tokenizer.json", **names).save_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (configured(model_type="own", auto_map={"AutoConfig": "own.Own"}), "'own' is not known to transformers"),
        (configured(model_type="t5"), "its architecture 't5' is no causal language model"),
        (pickled, r"no weights in safetensors; recipes/convert_checkpoint\.py makes them of pytorch_model"),
        (without_a_shard, r"its weights cannot be loaded: .*model-00002-of-\d+\.safetensors"),
        (without_a_weight, r"1 of its weights are missing, model\.layers\.1\.mlp\.up_proj\.weight for one"),
        (configured(intermediate_size=128), "6 of its weights have another shape than config.json says, model"),
        (cut_off, "its weights cannot be loaded: "),
        (configured(max_position_embeddings=1024), "its context window has 1,024 tokens, and the longest row 2,048"),
        (without_tokenizer, "no tokenizer: "),
        (tokenized(lambda own: own.add_special_tokens({"pad_token": "[PAD]"})), r"its token '\[PAD\]' has no row in "),
        (tokenized(lambda own: setattr(own, "eos_token", None)), "its tokenizer has no end-of-sequence token"),
        (with_a_tokenizer_that_loses_signs, "its tokenizer gives '.*Doctor 1: 1 points.' back as "),
        (templated(None), "no chat template; name a Jinja file with --chat_template_path"),
        (templated("{{ messages[0].nothing.at_all }}"), "the chat template cannot be rendered: "),
        (templated(CHAT_TEMPLATE.replace("<|im_end|>", "")), "ends an answer with no end-of-sequence token"),
        (templated(CHAT_TEMPLATE + "{{ messages | length }}"), "with an answer differently from one without"),
    ],
)
def test_each_thing_that_is_missing_is_one_line(base: Path, change: Callable[[Path], None], fault: str) -> None:
    change(base)
    faults, line = check(base)
    assert len(faults) == 1, faults
    assert re.search(fault, faults[0]), faults
    assert line == f"error: {base}: 1 of what a base needs is missing or wrong: {faults[0]}"


def test_a_base_that_lacks_nothing(base: Path) -> None:
    whole = f"{base}: has all that a base needs"
    assert check(base) == ([], whole)
    sharded(base)
    assert check(base) == ([], whole)
    tokenized(lambda own: setattr(own, "pad_token", None))(base)
    assert check(base) == ([], whole)
    templated(None)(base)
    assert check(base, "--chat_template_path", PLAIN) == ([], whole)
    said = ["its context window has 4,096 tokens, and the longest row 5,000"]
    assert check(base, "--chat_template_path", PLAIN, "--max_length", 5000)[0] == said


def test_several_faults_are_told_at_once(base: Path) -> None:
    configured(max_position_embeddings=128)(base)
    templated(None)(base)
    pickled(base)
    faults, line = check(base)
    assert [fault.split()[:2] for fault in faults] == [["no", "weights"], ["its", "context"], ["no", "chat"]]
    assert "3 of what a base needs is missing" in line


@needs_encoder
@needs_judge
def test_the_demo_models_are_what_they_are() -> None:
    assert check(JUDGE)[0] == []
    assert "its context window has 512 tokens, and the longest row 2,048" in check(ENCODER)[0]
