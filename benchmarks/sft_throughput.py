"""Measure how fast a stage is trained, against TRL's defaults and against a bare PyTorch loop, as ratios in one run.

    python benchmarks/sft_throughput.py
    python benchmarks/sft_throughput.py --device cuda --updates 5

Counted are tokens that are not padding, per second of forward, backward and update, on the same checkpoint and the same rows,
tokenized as `recipes/sft.py` does, in the same order, and with the activation checkpointing of `config`:

(a)  ours: SFTTrainer with the arguments of `config`, as `recipes/sft.py` has it;
(b)  TRL's defaults: SFTTrainer with an SFTConfig that says nothing else. Its batch of 8 becomes the largest divisor of (a)'s
     rows per update that is not above 8, its accumulation the rest; max_length is (a)'s, which cuts no row;
(c)  a bare loop: the batches, the precision and the optimizer of (a), and no trainer. The output layer reads only positions
     whose next token is trained on. It neither clips gradients nor logs.

Arms take turns, forth and back, after a run that is not counted, and start from the checkpoint each time. The first update of
a turn is not timed; the clock runs from its end to the end of the last, so that loading batches and a trainer's logging
count, and its start does not. A ratio is the median over the turns of the ratio within a turn. The peak of memory is the
process's resident set (Linux alone), or what torch allocated on a GPU.
"""

import argparse
import ctypes
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import torch
from rows import ROOT, Results, arguments
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import foreign_errors_at
from automedeval.records.command_line import run
from automedeval.study.dataset.folder import TEST, read_statistics
from automedeval.study.training.stages import read_rows, tokenize

OURS, DEFAULTS, BARE = "(a) ours", "(b) TRL's defaults", "(c) bare loop"
TARGETS = {DEFAULTS: 1.15, BARE: 0.85}  # what (a) is to reach of each
CLEAR = Path("/proc/self/clear_refs")
UNTRAINED = -100  # torch's label of a token that the loss ignores
Rows = list[dict[str, list[int]]]


class Meter(TrainerCallback):
    """Counts the tokens that every forward pass reads, and notes when updates are done."""

    def __init__(self, training: SFTConfig):
        self.device = training.device
        self.tokens: list[Any] = []  # of each pass, as tensors, which are read in the end
        self.ends: list[tuple[float, int]] = []  # when, and how many passes until then

    def before_forward(self, network: torch.nn.Module, _: tuple, given: dict[str, Any]) -> None:
        self.tokens.append(given["attention_mask"].sum())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.ends.append((time.perf_counter(), len(self.tokens)))

    def rate(self) -> float:
        """Return the tokens per second after the first update."""
        (start, first), *_, (end, last) = self.ends
        return sum(map(int, self.tokens[first:last])) / (end - start)


def parse(arguments: Sequence[str]) -> tuple[SFTConfig, str]:
    """Parse arguments as `recipes/sft.py` does; return those of training, and the checkpoint's folder."""
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    with foreign_errors_at("the arguments", ValueError, OSError):
        _, training, model = parser.parse_args_and_config(arguments)
    kinds = {
        "dtype": model.dtype,
        "attn_implementation": model.attn_implementation,
        "use_safetensors": True,
    }
    training.model_init_kwargs = {**(training.model_init_kwargs or {}), **kinds}
    return training, str(checkpoint_folder(model.model_name_or_path))


def train_with_trl(arguments: Sequence[str], tokenizer: Any, rows: Rows) -> Meter:
    """Train by SFTTrainer under these arguments."""
    training, start = parse(arguments)
    meter, data = Meter(training), datasets.Dataset.from_list(rows)
    trainer = SFTTrainer(
        start, training, train_dataset=data, processing_class=tokenizer, callbacks=[meter]
    )
    trainer.remove_callback(PrinterCallback)  # this program's table is all that it prints
    trainer.model.register_forward_pre_hook(meter.before_forward, with_kwargs=True)
    trainer.train()
    return meter


def train_bare(arguments: Sequence[str], tokenizer: Any, rows: Rows) -> Meter:
    """Train by the passes that these arguments mean, without a trainer."""
    training, start = parse(arguments)
    meter, device = Meter(training), training.device
    network = (
        AutoModelForCausalLM.from_pretrained(start, **training.model_init_kwargs).to(device).train()
    )
    if training.activation_checkpointing:
        network.activation_checkpointing_enable(training.activation_checkpointing_kwargs)
    optimizer = torch.optim.AdamW(
        network.parameters(), training.learning_rate, fused="fused" in training.optim
    )
    size, pad = training.per_device_train_batch_size, tokenizer.pad_token_id or 0
    update = size * training.gradient_accumulation_steps
    for done in range(0, training.max_steps * update, update):
        trained = sum(
            label != UNTRAINED for row in rows[done : done + update] for label in row["labels"][1:]
        )
        for at in range(done, done + update, size):
            batch = [
                {key: torch.tensor(row[key]) for key in ("input_ids", "labels")}
                for row in rows[at : at + size]
            ]
            lengths = torch.tensor([len(row["labels"]) for row in batch], device=device)
            ids = pad_sequence([row["input_ids"] for row in batch], True, pad).to(device)
            labels = pad_sequence([row["labels"] for row in batch], True, UNTRAINED).to(device)[
                :, 1:
            ]
            mask = torch.arange(ids.shape[1], device=device) < lengths[:, None]
            with torch.autocast(device.type, torch.bfloat16, enabled=bool(training.bf16)):
                hidden = network.base_model(
                    input_ids=ids, attention_mask=mask, use_cache=False
                ).last_hidden_state
                asked = labels != UNTRAINED
                logits = network.get_output_embeddings()(hidden[:, :-1][asked])
            (
                torch.nn.functional.cross_entropy(logits.float(), labels[asked], reduction="sum")
                / trained
            ).backward()
            meter.tokens.append(lengths.sum())
        optimizer.step()
        optimizer.zero_grad()
        meter.on_step_end()
    return meter


def batches(size: int, update: int) -> list[str]:
    """Return the arguments for so many rows per update, as many as divide them at once, at most `size`."""
    size = max(number for number in range(1, size + 1) if update % number == 0)
    return [
        "--per_device_train_batch_size",
        str(size),
        "--gradient_accumulation_steps",
        str(update // size),
    ]


def plan(
    options: argparse.Namespace, folder: str
) -> tuple[dict[str, Callable[..., Meter]], Any, Rows]:
    """Return what each arm trains by, the tokenizer, and enough rows for all updates of a turn."""
    common = [
        "--model_name_or_path",
        options.model,
        "--output_dir",
        folder,
        "--save_strategy",
        "no",
    ]
    common += [
        "--max_steps",
        str(1 + options.updates),
        "--report_to",
        "none",
        "--disable_tqdm",
        "true",
    ]
    common += ["--use_cpu", str(options.device == "cpu"), "--train_sampling_strategy", "sequential"]
    ours = ["--config", str(options.config), *common]
    given, _ = parse(ours)
    update = given.per_device_train_batch_size * given.gradient_accumulation_steps
    splits = [split for split in read_statistics(Path(options.dataset))["splits"] if split != TEST]
    encoder = PromptEncoder.from_checkpoint(options.model, given.chat_template_path)
    found, _ = read_rows(options.dataset, "+".join(splits))
    made = tokenize(found, options.dataset, encoder, given.max_length)
    pairs = zip(made["input_ids"], made["completion_mask"])
    rows = [
        {"input_ids": ids, "labels": [i if m else UNTRAINED for i, m in zip(ids, mask)]}
        for ids, mask in pairs
    ]
    random.Random(0).shuffle(rows)  # as training does, and then in order: all arms read the same
    rows *= -(-(1 + options.updates) * update // len(rows))
    ours += batches(given.per_device_train_batch_size, update)
    kept = [
        "--max_length",
        str(given.max_length),
        "--activation_checkpointing",
        str(given.activation_checkpointing),
    ]
    arms = {
        OURS: partial(train_with_trl, ours),
        DEFAULTS: partial(train_with_trl, [*common, *kept, *batches(8, update)]),
        BARE: partial(train_bare, ours),
    }
    return arms, encoder.tokenizer, rows


def peak(device: str) -> float:
    """Return the peak of memory in MB since this was last asked; no number where the system does not tell."""
    gc.collect()
    if device == "cuda":
        found = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return found / 1e6
    if not CLEAR.exists():
        return float("nan")
    found = int(CLEAR.with_name("status").read_text().partition("VmHWM:")[2].split()[0])
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier arms have freed is given back
    CLEAR.write_text("5")  # proc(5): the peak of the resident set becomes what it is now
    return found * 1024 / 1e6


def measure(options: argparse.Namespace, folder: str, results: Results) -> None:
    """Let the arms take turns, and add what they reach."""
    chosen, tokenizer, rows = plan(options, folder)
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    peaks: dict[str, list[float]] = {name: [] for name in chosen}
    chosen[BARE](tokenizer, rows)  # not counted: whoever comes first in a process is slower
    for turn in range(options.repeats):
        for name in list(chosen)[:: -1 if turn % 2 else 1]:
            peak(options.device)
            rates[name].append(chosen[name](tokenizer, rows).rate())
            peaks[name].append(peak(options.device))
    for name, rate in rates.items():
        results.add(f"{name}, peak memory", statistics.median(peaks[name]), "MB")
        if name != OURS:
            results.add(name, statistics.median(rate), "tokens/s")
            ratio = statistics.median(own / other for own, other in zip(rates[OURS], rate))
            results.add(
                OURS, statistics.median(rates[OURS]), "tokens/s", name, ratio, TARGETS[name]
            )
    results.note(f"{Path(options.model).name}; {options.updates} updates, {options.repeats} turns.")


def main() -> None:
    parser = arguments(__doc__)
    add = parser.add_argument
    config = ROOT / "recipes/runs/automedeval-135m/sft.yaml"
    add("--config", default=config, help="the run that is ours (%(default)s)")
    add(
        "--model",
        default=str(ROOT / "models/SmolLM2-135M-Instruct"),
        help="checkpoint folder (%(default)s)",
    )
    add(
        "--dataset",
        default=str(ROOT / "instructions/sample"),
        help="all its stages are read (%(default)s)",
    )
    add("--device", choices=("cpu", "cuda"), default="cpu", help="what trains (%(default)s)")
    add("--updates", type=int, default=1, help="updates timed in a turn (%(default)s)")
    add("--repeats", type=int, default=2, help="turns (%(default)s)")
    options = parser.parse_args()
    results = Results("Training speed", options.json)
    if min(options.updates, options.repeats) < 1:
        parser.error("--updates and --repeats are at least 1")
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        measure(options, folder, results)
    results.show()
    results.write()


if __name__ == "__main__":
    run(main)
