"""Compute what each training run needs: parameters, memory by GPUs, disk, tokens and hours. Nothing is trained.

    python benchmarks/training_memory.py
    python benchmarks/training_memory.py --tokens 1200 --utilisation 0.3

Parameters are counted on models of the right shape that hold no data, adapters with the settings of their YAML. Memory is
what DeepSpeed's own estimator gives for weights, gradients and optimizer states under ZeRO-3; activations are not in it.
Hours follow from a utilisation that is assumed, not measured. Printed is Markdown, the tables of
docs/train.md.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

RECIPES = Path(__file__).parents[1] / "recipes" / "runs"
GPUS = (1, 2, 4, 8)
LLAMA = {  # what the config.json of LLaMA-13B says; the tokenizer's size included
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "vocab_size": 32000,
}
RUNS = {"13B": "automedeval-13b/stage1.yaml", "13B, LoRA": "automedeval-13b/lora.yaml"}  # the YAMLs whose numbers count
OFFLOADS = {"nothing": (False, False), "optimizer": (True, False), "optimizer and parameters": (True, True)}


@dataclass(frozen=True)
class Run:
    """One training run: its parameters, those that are trained, those of the largest layer, and the arguments of its YAML."""

    name: str
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
    def checkpoint(self) -> int:
        """Bytes of a checkpoint to go on from: Adam's two moments in float32, and weights; beside bfloat16 a float32 copy."""
        if self.adapter:
            return (4 + 8) * self.trained
        return (self.weight_bytes + 8 + (4 if self.weight_bytes == 2 else 0)) * self.parameters

    @property
    def weights(self) -> int:
        """Bytes of what the run ends with; beside an adapter the model with which it was merged."""
        return self.weight_bytes * self.parameters + (4 * self.trained if self.adapter else 0)

    @property
    def disk(self) -> int:
        """Bytes at the worst moment: the checkpoints that are kept, the one that is being written, the weights."""
        return (self.arguments["save_total_limit"] + 1) * self.checkpoint + self.weights

    def operations(self, tokens: float) -> float:
        """Return floating-point operations: per parameter and token 2 forward, 4 backward, 2 for what is computed again.

        Frozen weights need no gradients of their own, which spares an adapter 2 of the 4.
        """
        again = 2 if self.arguments["gradient_checkpointing"] else 0
        return (2 + (2 if self.adapter else 4) + again) * self.parameters * tokens


def count(name: str) -> Run:
    """Count the parameters of a run on a model without data."""
    arguments = yaml.safe_load((RECIPES / RUNS[name]).read_text(encoding="utf-8"))
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**LLAMA))
        parameters = trained = sum(each.numel() for each in model.parameters())
        largest = max(sum(each.numel() for each in part.parameters(recurse=False)) for part in model.modules())
        if arguments.get("use_peft"):
            from peft import LoraConfig, get_peft_model  # only adapters need it

            (target,) = arguments["lora_target_modules"]
            config = LoraConfig(task_type="CAUSAL_LM", r=arguments["lora_r"], target_modules=target)
            trained = get_peft_model(model, config).get_nb_trainable_parameters()[0]
    return Run(name, parameters, trained, largest, arguments)


def memory_rows(run: Run) -> list[list[str]]:
    """Return the rows of a run in the table of memory; GiB of weights, gradients and optimizer states."""
    if run.adapter:  # one GPU without ZeRO; an adapter's gradients and its optimizer are in float32
        memory = run.weight_bytes * run.parameters + (4 + 4 + 8) * run.trained
        return [[run.name, millions(run.parameters), millions(run.trained), "–", gib(memory), *["–"] * 4]]
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # an estimate needs no device
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs  # slow to import

    rows = []
    for name, (optimizer, parameters) in OFFLOADS.items():
        needs = [
            estimate_zero3_model_states_mem_needs(
                run.parameters, run.largest_layer, gpus, cpu_offload=optimizer, cpu_offload_params=parameters
            )
            for gpus in GPUS
        ]
        per_gpu, host = [gib(gpu) for _, gpu, _ in needs], gib(needs[-1][0])
        rows.append([run.name, millions(run.parameters), millions(run.trained), name, *per_gpu, host])
    return rows


def cost_row(run: Run, tokens: float, speed: float) -> list[str]:
    """Return the row of a run in the table of disk and time; GB, and hours at `speed` operations a second and GPU."""
    hours = run.operations(tokens) / speed / 3600
    disk = [gb(size) for size in (run.checkpoint, run.weights, run.disk)]
    return [run.name, f"{tokens / 1e6:.1f} M", *disk, f"{hours:.2f}", "–" if run.adapter else f"{hours / GPUS[-1]:.2f}"]


def tables(rows: int = 8611, epochs: int = 5, tokens: int = 900, utilisation: float = 0.4, peak: float = 312.0) -> str:
    """Return both tables and what they assume, as Markdown.

    Args:
        rows: training rows of the three stages together, and of a round.
        epochs: how often each is read.
        tokens: of a mean row.
        utilisation: share of the peak that training reaches.
        peak: dense bfloat16 operations of one GPU, in 10¹² a second.
    """
    runs, all_tokens = [count(name) for name in RUNS], float(rows * epochs * tokens)
    heads = [f"{gpus} GPU{'s' if gpus > 1 else ''}" for gpus in GPUS]
    memory = markdown(
        ["run", "parameters", "trained", "offloaded", *heads, f"host, {GPUS[-1]} GPUs"],
        [row for run in runs for row in memory_rows(run)],
    )
    cost = markdown(
        ["run", "tokens", "checkpoint", "weights", "disk at most", "hours, 1 GPU", f"hours, {GPUS[-1]} GPUs"],
        [cost_row(run, all_tokens, utilisation * peak * 1e12) for run in runs],
    )
    return f"""GiB for each GPU, and for the host of {GPUS[-1]}, of weights, gradients and optimizer states: under ZeRO-3 by
DeepSpeed's own estimator; LoRA on one GPU without ZeRO, 2 bytes a frozen parameter and 16 a trained one.
**Activations come on top**: they grow with the tokens of a batch.

{memory}

GB on disk, and hours for the three stages together, which are also those of one round of introspection: {rows:,} rows ×
{epochs} epochs × {tokens:,} tokens a row, at {utilisation:.0%} of {peak:g} TFLOP/s a GPU (an A100 has 312 in bfloat16).
The row's length and the utilisation are assumed, not measured. Operations: 6 a parameter and token, 8 where activations
are computed twice; for LoRA 2 less, as frozen weights need no gradients.

{cost}
"""


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Lay out a table; all columns but the first are numbers, to the right."""
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def millions(parameters: int) -> str:
    return f"{parameters / 1e6:,.1f} M"


def gib(size: float) -> str:
    return f"{size / 2**30:,.1f}"


def gb(size: float) -> str:
    return f"{size / 1e9:,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8611, help="training rows (default: %(default)s, the paper's)")
    parser.add_argument("--epochs", type=int, default=5, help="epochs (default: %(default)s, the paper's)")
    parser.add_argument("--tokens", type=int, default=900, help="tokens of a mean row (default: %(default)s)")
    parser.add_argument("--utilisation", type=float, default=0.4, help="share of the peak (default: %(default)s)")
    parser.add_argument("--peak", type=float, default=312.0, help="TFLOP/s of a GPU (default: %(default)s)")
    args = parser.parse_args()
    print(tables(args.rows, args.epochs, args.tokens, args.utilisation, args.peak), end="")


if __name__ == "__main__":
    main()
