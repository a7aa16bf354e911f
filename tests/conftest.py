"""What the tests share: running a recipe, a tiny checkpoint built on the spot, and the folder of human-rated data."""

import contextlib
import io
import os
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "src" / "automedeval" / "assets" / "sample"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def run_recipe(
    name: str, *arguments: object, launch: tuple[str, ...] | None = None, **options
) -> subprocess.CompletedProcess:
    """Run a recipe: in this process as `python recipes/NAME.py` would, or in one of its own with `launch` or options."""
    recipe, arguments = str(ROOT / "recipes" / f"{name}.py"), list(map(str, arguments))
    if launch is not None or options:
        command = [sys.executable, *(launch or ()), recipe, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, **options)
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch("sys.argv", [recipe, *arguments]):
        try:
            runpy.run_path(recipe, run_name="__main__")
        except SystemExit as stop:
            status = stop.code
            if isinstance(status, str):
                err.write(f"\n{status}\n")
                status = 1
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def error_line(done: subprocess.CompletedProcess) -> str:
    """Return the one line that a failed recipe prints besides its progress bars; no traceback."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(told) == 1, done.stderr
    return told[0]


def build_tiny_model(
    folder: Path, seed: int = 0, window: int = 4096, chat_template: str | None = CHAT_TEMPLATE
) -> Path:
    """Save a two-layer Llama with random weights and a byte-level tokenizer trained on the sample; return its folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train([str(SAMPLE / "train_cases.jsonl")], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():  # peaked enough that texts and values differ
        parameter.data.normal_(0.0, 0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny checkpoint."""
    return build_tiny_model(tmp_path_factory.mktemp("checkpoints") / "tiny-judge")


@pytest.fixture
def human_data() -> Path:
    """Return the folder of human-rated data; skip, and say so, where AUTOMEDEVAL_DATA does not name it."""
    folder = os.environ.get("AUTOMEDEVAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("AUTOMEDEVAL_DATA does not name the folder of human-rated data")
    return Path(folder)
