"""Compute what each training run needs: memory by machine, disk, tokens and hours. Nothing of 13B is trained.

    python benchmarks/training_memory.py
    python benchmarks/training_memory.py --tokens 1200 --utilisation 0.3

Parameters are counted on models of the right shape that hold no data, with the settings of the YAMLs. Weights, gradients and
optimizer states are what DeepSpeed's own estimator gives under ZeRO-3 with the offload of the accelerate configuration.
Activations are counted layer by layer as by Korthikanti et al. (Reducing Activation Recomputation in Large Transformer Models,
2022), for LLaMA's layer: 12 vectors of its width and 4 of its inner width a token. Hours follow from a utilisation, which
one H200 reached. Printed is Markdown, the tables of docs/train.md.
"""

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).parents[1]
RUN = ROOT / "recipes/runs/automedeval-13b"
HOST_GPUS = 8
UPDATE = 128  # rows of an update
# what the config.json of LLaMA-13B says; the tokenizer's size included
LLAMA = {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
}
LLAMA |= {"vocab_size": 32000}
RUNS = {"13B": "sft", "13B, LoRA": "lora"}  # the YAMLs whose numbers count
MACHINES = {  # accelerate configuration, GPUs, GiB of each, hosts
    "13B": (
        ("zero3", 8, 80, 1), ("zero3", 4, 80, 1), ("zero3_offload", 8, 40, 1),
        ("zero3_multinode", 16, 80, 2),
    ),
    "13B, LoRA": (("single", 1, 40, 1),),
}  # fmt: skip
# Bytes that ZeRO-3 gathers at once, and those of its bucket of gradients: DeepSpeed's stage3_max_live_parameters and
# reduce_bucket_size, in bfloat16.
GATHERED = 2 * (10**9 + 5 * 10**8)
# Share of a GPU's memory: measured runs took up to 16 % more than calculated, for the update's copies and what the allocator
# cannot use.
USABLE = 0.8


@dataclass(frozen=True)
class Run:
    """One training run: the model's shape, its parameters, those that are trained, of the largest layer, and its arguments."""

    name: str
    shape: dict[str, int]
    parameters: int
    trained: int
    largest_layer: int
    arguments: dict[str, Any]

    @property
    def adapter(self) -> bool:
        return self.trained < self.parameters

    @property
    def weight_bytes(self) -> int:
        """Bytes of one parameter of the weights that the run ends with."""
        return 2 if self.arguments["dtype"] == "bfloat16" else 4

    @property
    def activations(self) -> int:
        """Bytes of activations and their gradients at the peak, the beginning of the backward pass, with the logits of all
        tokens in the weights' type, and in float32 with their gradient. With checkpointing a layer keeps its input alone.
        """
        size, inner, layers = (
            self.shape[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers")
        )
        of_layer = self.weight_bytes * (12 * size + 4 * inner)
        if self.adapter:  # what dropout makes of the inputs of the seven matrices
            of_layer += 5 * (6 * size + inner)
        gradients, logits = (
            self.weight_bytes * (size + 3 * inner),
            (self.weight_bytes + 8) * self.shape["vocab_size"],
        )
        kept = layers * of_layer
        if self.arguments["activation_checkpointing"]:
            kept = layers * self.weight_bytes * size + of_layer
        tokens = self.arguments["per_device_train_batch_size"] * self.arguments["max_length"]
        return tokens * (kept + gradients + logits)

    def states(self, config: str, gpus: int, hosts: int) -> tuple[int, int]:
        """Return bytes of weights, gradients and optimizer states for each GPU and for each host; an adapter's without ZeRO."""
        if self.adapter:  # an adapter's gradients and its optimizer are in float32
            return self.weight_bytes * self.parameters + (4 + 4 + 8) * self.trained, 0
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # an estimate needs no device
        from deepspeed.runtime.zero.stage3 import (
            estimate_zero3_model_states_mem_needs,
        )  # slow to import

        machine = yaml.safe_load(
            (ROOT / "accelerate_configs" / f"{config}.yaml").read_text(encoding="utf-8")
        )
        devices = (
            machine["deepspeed_config"][f"offload_{what}_device"] for what in ("optimizer", "param")
        )
        offload = (device != "none" for device in devices)
        host, gpu, _ = estimate_zero3_model_states_mem_needs(
            self.parameters, self.largest_layer, gpus // hosts, hosts, *offload
        )
        return gpu, host

    @property
    def checkpoint(self) -> int:
        """Bytes of a checkpoint to go on from: Adam's two moments in float32, and weights; beside bfloat16 a float32 copy."""
        if self.adapter:
            return (4 + 8) * self.trained
        return (self.weight_bytes + 8 + (4 if self.weight_bytes == 2 else 0)) * self.parameters

    @property
    def weights(self) -> int:
        """Bytes of what the run ends with; beside an adapter the model with which it was merged."""
        return self.weight_bytes * self.parameters + (4 * self.trained if self.adapter else 0)

    def saves(self, rows: int, epochs: int) -> int:
        """Return how many checkpoints a training on so many rows writes, the last one included."""
        return math.ceil(rows * epochs / UPDATE / self.arguments["save_steps"])

    def disk(self, saves: int) -> int:
        """Bytes at the worst moment: the checkpoints that are kept, the one that is being written, the weights."""
        there = min(saves, self.arguments["save_total_limit"] + 1)
        return there * self.checkpoint + self.weights

    def operations(self, tokens: float) -> float:
        """Return floating-point operations: per parameter and token 2 forward, 4 backward, 2 for what is computed again.

        Frozen weights need no gradients of their own, which spares an adapter 2 of the 4.
        """
        again = 2 if self.arguments["activation_checkpointing"] else 0
        return (2 + (2 if self.adapter else 4) + again) * self.parameters * tokens


def count(name: str) -> Run:
    """Count the parameters of a run on a model without data."""
    arguments = yaml.safe_load((RUN / f"{RUNS[name]}.yaml").read_text(encoding="utf-8"))
    with torch.device("meta"):
        return run_of(name, LLAMA, arguments)[0]


def run_of(name: str, shape: dict[str, int], arguments: dict[str, Any]) -> tuple[Run, Any]:
    """Return a run of a model of this shape, and the model with its adapter, if the arguments ask for one."""
    model = LlamaForCausalLM(LlamaConfig(**shape, use_cache=False))
    parameters = trained = sum(parameter.numel() for parameter in model.parameters())
    largest = max(
        sum(parameter.numel() for parameter in part.parameters(recurse=False))
        for part in model.modules()
    )
    if arguments.get("use_peft"):
        from peft import LoraConfig, get_peft_model  # only adapters need it

        (target,) = arguments["lora_target_modules"]
        config = LoraConfig(
            task_type="CAUSAL_LM",
            r=arguments["lora_r"],
            target_modules=target,
            lora_dropout=arguments["lora_dropout"],
        )
        model = get_peft_model(model, config)
        trained = model.get_nb_trainable_parameters()[0]
    return Run(name, shape, parameters, trained, largest, arguments), model


def memory_row(run: Run, config: str, gpus: int, size: int, hosts: int) -> list[str]:
    """Return the row of a run on a machine in the table of memory: GiB of each GPU, and of each host."""
    states, host = run.states(config, gpus, hosts)
    gathered = 0 if run.adapter else GATHERED
    whole = states + gathered + run.activations
    fits = "yes" if whole <= USABLE * size * 2**30 else "no"
    parts = [gib(part) for part in (states, gathered, run.activations, whole)]
    return [
        run.name,
        f"`{config}.yaml`" + (" †" if config.startswith("zero3") else ""),
        f"{gpus} × {size}",
        *parts,
        fits,
        gib(host) if host else "–",
    ]


def cost_row(run: Run, tokens: float, speed: float, saves: int) -> list[str]:
    """Return the row of a run in the table of disk and time; GB, and hours at `speed` operations a second and GPU."""
    hours = run.operations(tokens) / speed / 3600
    disk = [f"{size / 1e9:,.1f}" for size in (run.checkpoint, run.weights, run.disk(saves))]
    shared = "–" if run.adapter else f"{hours / HOST_GPUS:.2f}"
    return [run.name, f"{tokens / 1e6:.1f} M", str(saves), *disk, f"{hours:.2f}", shared]


def table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    """Lay out a Markdown table."""
    lines = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables(
    rows: int = 8611,
    epochs: int = 5,
    tokens: int = 900,
    utilisation: float = 0.4,
    peak: float = 312.0,
) -> str:
    """Return both tables and what they assume, as Markdown.

    Args:
        rows: training rows of the three stages together, and of a round.
        epochs: how often each is read.
        tokens: of a mean row.
        utilisation: share of the peak that training reaches.
        peak: dense bfloat16 operations of one GPU, in 10¹² a second.
    """
    runs, all_tokens = [count(name) for name in RUNS], float(rows * epochs * tokens)
    memory = table(
        (
            "run",
            "machine",
            "GPUs, GiB",
            "states",
            "gathered",
            "activations",
            "in all",
            "fits",
            "host",
        ),
        [memory_row(run, *machine) for run in runs for machine in MACHINES[run.name]],
    )
    cost = table(
        (
            "run",
            "tokens",
            "saves",
            "checkpoint",
            "weights",
            "disk at most",
            "hours, 1 GPU",
            f"hours, {HOST_GPUS} GPUs",
        ),
        [
            cost_row(run, all_tokens, utilisation * peak * 1e12, run.saves(rows, epochs))
            for run in runs
        ],
    )
    whole, adapter = (f"{count / 1e6:,.1f} M" for count in (runs[0].parameters, runs[1].trained))
    return f"""GiB of each GPU for {whole} parameters ({adapter} trained with LoRA) and 2 rows of 2,048 tokens:
weights, gradients and optimizer states (DeepSpeed's estimator), weights gathered at once (its default),
activations with all logits. A run "fits" in {USABLE:.0%} of a GPU. "host": GiB of each host. †: not run yet.

{memory}

Saves and GB on disk of a round (a stage saves once), and hours, which the three stages take together too: {rows:,} rows ×
{epochs} epochs × {tokens:,} tokens a row (assumed), at {utilisation:.0%} of {peak:g} TFLOP/s a GPU (A100).

{cost}
"""


def gib(size: float) -> str:
    return f"{size / 2**30:,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=8611, help="training rows (default: %(default)s, the paper's)"
    )
    parser.add_argument(
        "--epochs", type=int, default=5, help="epochs (default: %(default)s, the paper's)"
    )
    parser.add_argument(
        "--tokens", type=int, default=900, help="tokens of a mean row (default: %(default)s)"
    )
    parser.add_argument(
        "--utilisation", type=float, default=0.4, help="share of the peak (default: %(default)s)"
    )
    parser.add_argument(
        "--peak", type=float, default=312.0, help="TFLOP/s of a GPU (default: %(default)s)"
    )
    args = parser.parse_args()
    print(tables(args.rows, args.epochs, args.tokens, args.utilisation, args.peak), end="")


if __name__ == "__main__":
    main()
