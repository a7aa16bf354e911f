"""Measure how fast a stage is trained, against TRL's defaults and against a bare PyTorch loop, as ratios in one run.

    python benchmarks/sft_throughput.py
    python benchmarks/sft_throughput.py --device cuda --rows_per_update 128 --updates 5 --peak_flops 989e12

Counted are tokens that are not padding, per second of forward, backward and update, on the same checkpoint and the same rows,
tokenized as `recipes/sft.py` does, in the same order, and with the activation checkpointing of `config`:

(a)  ours: SFTTrainer with the arguments of `config`, its output layer at trained positions alone as `recipes/sft.py` has it;
(b)  TRL's defaults: SFTTrainer with an SFTConfig that says nothing else. Its batch of 8 becomes the largest divisor of (a)'s
     rows per update that is not above 8, its accumulation the rest; max_length is (a)'s, which cuts no row;
(c)  a bare loop: the batches, the precision and the optimizer of (a), and no trainer. The output layer reads only positions
     whose next token is trained on. It neither clips gradients nor logs;
(d)  (a) with rows of like length in batches of up to 4; with several rows packed into one sequence, the rows per update as
     near as they come; and, for information only, with bfloat16 weights, which without a float32 master lose small updates.

Arms take turns, forth and back, after a run that is not counted, and start from the checkpoint each time. The first update of
a turn is not timed; the clock runs from its end to the end of the last, so that loading batches and a trainer's logging
count, and its start does not. A ratio is the median over the turns of the ratio within a turn. The peak of memory is the
process's resident set (Linux alone), or what torch allocated on a GPU. The exit status is 0 whether targets are met or not.
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
from rows import Results, add_json
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, pack_dataset

from automedeval.cli import installed_versions, run
from automedeval.dataset.folder import TEST, read_statistics
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.reports.text import format_table
from automedeval.training.completion_logits import read_trained_positions
from automedeval.training.stages import UNTRAINED, read_rows, tokenize

ROOT = Path(__file__).parents[1]
OURS, DEFAULTS, BARE = "(a) ours", "(b) TRL's defaults", "(c) bare loop"
BY_LENGTH, PACKED, HALF = "(d) ours, by length", "(d) ours, packed", "(d) ours, bf16 weights"
TARGETS = {DEFAULTS: 1.15, BARE: 0.85}  # what (a) is to reach of each
CLEAR = Path("/proc/self/clear_refs")
Rows = list[dict[str, list[int]]]


class Meter(TrainerCallback):
    """Counts what every forward pass reads, and notes when updates are done."""

    def __init__(self, training: SFTConfig):
        self.device = training.device
        self.passes: list[tuple[Any, Any, int]] = []  # rows, tokens, positions; tensors are read in the end
        self.ends: list[tuple[float, int]] = []  # when, and how many passes until then

    def before_forward(self, network: torch.nn.Module, _: tuple, given: dict[str, Any]) -> None:
        mask, places = given.get("attention_mask"), given.get("position_ids")
        if mask is not None:
            self.passes.append((len(mask), mask.sum(), mask.numel()))
        else:  # rows laid end to end, each beginning at position 0
            self.passes.append(((places == 0).sum(), places.numel(), places.numel()))

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.ends.append((time.perf_counter(), len(self.passes)))

    def reading(self) -> dict[str, float]:
        """Return what was measured after the first update; the rate is in tokens per second, rows are per update."""
        (start, first), *_, (end, last) = self.ends
        rows, tokens, positions = (sum(map(int, column)) for column in zip(*self.passes[first:last]))
        updates = len(self.ends) - 1
        return {"rate": tokens / (end - start), "rows": rows / updates, "padding": 1 - tokens / positions}


def parse(arguments: Sequence[str]) -> tuple[SFTConfig, str]:
    """Parse arguments as `recipes/sft.py` does; return those of training, and the checkpoint's folder."""
    try:
        _, training, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config(arguments)
    except (ValueError, OSError) as error:
        raise RecordError(" ".join(str(error).split())) from None
    if model.use_peft:
        raise RecordError("use_peft: adapters are not measured here")
    kinds = {"dtype": model.dtype, "attn_implementation": model.attn_implementation, "use_safetensors": True}
    training.model_init_kwargs = {**(training.model_init_kwargs or {}), **kinds}
    return training, str(checkpoint_folder(model.model_name_or_path))


def train_with_trl(arguments: Sequence[str], tokenizer: Any, rows: Rows, as_recipe: bool = True) -> Meter:
    """Train by SFTTrainer under these arguments, fitted as `recipes/sft.py` does or left as TRL makes it."""
    training, start = parse(arguments)
    meter, data = Meter(training), datasets.Dataset.from_list(rows)
    trainer = SFTTrainer(start, training, train_dataset=data, processing_class=tokenizer, callbacks=[meter])
    trainer.remove_callback(PrinterCallback)  # this program's table is all that it prints
    trainer.model.register_forward_pre_hook(meter.before_forward, with_kwargs=True)
    if as_recipe and training.device.type == "cpu":
        read_trained_positions(trainer.model, trainer.model.base_model)
    trainer.train()
    return meter


def train_bare(arguments: Sequence[str], tokenizer: Any, rows: Rows) -> Meter:
    """Train by the passes that these arguments mean, without a trainer."""
    training, start = parse(arguments)
    meter, device = Meter(training), training.device
    network = AutoModelForCausalLM.from_pretrained(start, **training.model_init_kwargs).to(device).train()
    if training.gradient_checkpointing:
        network.gradient_checkpointing_enable(training.gradient_checkpointing_kwargs)
    optimizer = torch.optim.AdamW(network.parameters(), training.learning_rate, fused="fused" in training.optim)
    size, pad = training.per_device_train_batch_size, tokenizer.pad_token_id or 0
    update = size * training.gradient_accumulation_steps
    for done in range(0, training.max_steps * update, update):
        trained = sum(label != UNTRAINED for row in rows[done : done + update] for label in row["labels"][1:])
        for at in range(done, done + update, size):
            batch = [{key: torch.tensor(row[key]) for key in ("input_ids", "labels")} for row in rows[at : at + size]]
            lengths = torch.tensor([len(row["labels"]) for row in batch], device=device)
            ids = pad_sequence([row["input_ids"] for row in batch], True, pad).to(device)
            labels = pad_sequence([row["labels"] for row in batch], True, UNTRAINED).to(device)[:, 1:]
            mask = torch.arange(ids.shape[1], device=device) < lengths[:, None]
            with torch.autocast(device.type, torch.bfloat16, enabled=bool(training.bf16)):
                hidden = network.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
                asked = labels != UNTRAINED
                logits = network.get_output_embeddings()(hidden[:, :-1][asked])
            (torch.nn.functional.cross_entropy(logits.float(), labels[asked], reduction="sum") / trained).backward()
            meter.passes.append((len(batch), lengths.sum(), ids.numel()))
        optimizer.step()
        optimizer.zero_grad()
        meter.on_step_end()
    return meter


def batches(size: int, update: int) -> list[str]:
    """Return the arguments for so many rows per update, as many as divide them at once, at most `size`."""
    size = max(number for number in range(1, size + 1) if update % number == 0)
    return ["--per_device_train_batch_size", str(size), "--gradient_accumulation_steps", str(update // size)]


def plan(options: argparse.Namespace, folder: str) -> tuple[dict[str, Callable[..., Meter]], Any, Rows]:
    """Return what each arm trains by, the tokenizer, and enough rows for all updates of a turn."""
    common = ["--model_name_or_path", options.model, "--output_dir", folder, "--save_strategy", "no"]
    common += ["--max_steps", str(1 + options.updates), "--report_to", "none", "--disable_tqdm", "true"]
    common += ["--use_cpu", str(options.device == "cpu")]
    ours = ["--config", str(options.config), *common]
    given, _ = parse(ours)
    update = given.per_device_train_batch_size * given.gradient_accumulation_steps
    splits = [split for split in read_statistics(options.dataset)["splits"] if split != TEST]
    found = read_rows([(options.dataset, split) for split in splits])[2]
    encoder = PromptEncoder.from_checkpoint(options.model, given.chat_template_path)
    rows = tokenize(found, encoder, given.max_length, options.dataset)
    random.Random(0).shuffle(rows)  # as training does, and then in order: all arms read the same
    rows *= -(-(1 + options.updates) * update // len(rows))
    packed = pack_dataset(datasets.Dataset.from_list(rows), given.max_length, "bfd")
    packs = max(1, round(update * len(packed) / len(rows)))

    ours += batches(given.per_device_train_batch_size, update)
    in_order, by_length = (["--train_sampling_strategy", way] for way in ("sequential", "group_by_length"))
    kept = ["--max_length", str(given.max_length), "--gradient_checkpointing", str(given.gradient_checkpointing)]
    chosen = {
        OURS: partial(train_with_trl, [*ours, *in_order]),
        DEFAULTS: partial(train_with_trl, [*common, *in_order, *kept, *batches(8, update)], as_recipe=False),
        BARE: partial(train_bare, ours),
        BY_LENGTH: partial(train_with_trl, [*ours, *by_length, *batches(4, update)]),
        PACKED: partial(train_with_trl, [*ours, "--packing", "true", *batches(1, packs)]),
        HALF: partial(train_with_trl, [*ours, *in_order, "--dtype", "bfloat16", "--bf16", "false"]),
    }
    return chosen, encoder.tokenizer, rows


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
    """Let the arms take turns; print their table, the targets, and which way of making batches wins."""
    chosen, tokenizer, rows = plan(options, folder)
    readings: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    chosen[BARE](tokenizer, rows)  # not counted: whoever comes first in a process is slower
    for turn in range(options.repeats):
        for name in list(chosen)[:: -1 if turn % 2 else 1]:
            peak(options.device)
            reading = chosen[name](tokenizer, rows).reading()
            print(f"turn {turn + 1}, {name}: {reading['rate']:.0f} tokens/s", flush=True)
            readings[name].append(reading | {"peak": peak(options.device)})

    def median(name: str, key: str = "rate", of: str = "") -> float:
        others = readings[of] if of else [{key: 1.0}] * options.repeats
        return statistics.median(mine[key] / other[key] for mine, other in zip(readings[name], others))

    table = []
    for name in chosen:
        line = {"arm": name, "rows/update": median(name, "rows"), "padding": f"{median(name, 'padding'):.1%}"}
        line |= {"tokens/s": f"{median(name):.0f}", "× (b)": median(name, of=DEFAULTS), "× (c)": median(name, of=BARE)}
        line["peak MB"] = f"{median(name, 'peak'):.0f}"
        table.append(line)
        if name != OURS:
            results.add(name[4:], median(name), "tokens/s")
    print(format_table(table))
    for name, target in TARGETS.items():
        ratio = median(OURS, of=name)
        found = results.add("recipes/sft.py", median(OURS), "tokens/s", name[4:], ratio, target)
        print(f"(a)/{name[:3]} {ratio:.2f}, target {found['target']}, met: {'yes' if found['met'] else 'no'}")
    results.add("recipes/sft.py, peak memory", median(OURS, "peak"), "MB")
    results.add("bare loop, peak memory", median(BARE, "peak"), "MB")
    size = median(OURS, "rows")
    results.note(
        f"{Path(options.model).name}, {size:g} rows an update; {options.updates} updates, {options.repeats} turns."
    )
    ways = {name: median(name, of=OURS) for name in (OURS, BY_LENGTH, PACKED)}
    print(f"fastest batches here: {max(ways, key=ways.get)}; " + ", ".join(f"{n} {r:.2f}" for n, r in ways.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--config",
        default=ROOT / "recipes/runs/automedeval-135m/stage1.yaml",
        help="the run that is ours (%(default)s)",
    )
    add("--model", default=str(ROOT / "models/SmolLM2-135M-Instruct"), help="checkpoint folder (%(default)s)")
    add("--dataset", default=str(ROOT / "instructions/sample"), help="all its stages are read (%(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="what trains (%(default)s)")
    add("--updates", type=int, default=1, help="updates timed in a turn (%(default)s)")
    add("--repeats", type=int, default=2, help="turns (%(default)s)")
    add_json(parser)
    options = parser.parse_args()
    results = Results("Training speed", options.json)
    if min(options.updates, options.repeats) < 1:
        parser.error("--updates and --repeats are at least 1")
    datasets.disable_progress_bars()
    device = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(device, *(f"{name} {version}" for name, version in installed_versions("trl").items()), sep=", ")
    with tempfile.TemporaryDirectory() as folder:
        measure(options, folder, results)
    results.write()


if __name__ == "__main__":
    run(main)
