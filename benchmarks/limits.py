"""The least time that the forward passes of a judge can take on this machine, from what the machine measures in the same run.

A pass is counted as it happens: its rows, its positions, and the keys that it attends to. It takes at least the time of its
matrix products with the weights, and of reading keys and values once. All else is free here: attention's own products,
normalisation, activations, masks, softmax, and the program between the passes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from transformers import PretrainedConfig

from automedeval.models.decoding import cache_dtype

SIZES = (1, 4, 16, 32, 64, 128, 512, 2048)  # rows of the products that are timed; between them the time is interpolated
BUFFER = 2**28  # bytes that are read to measure the bandwidth: more than any cache holds


@dataclass
class Passes:
    """The forward passes of a network: (rows, positions of a row, keys that a row attends to, rows of the output layer).

    All rows begin with the same `shared` tokens, whose keys and values a pass needs to read only once.
    """

    network: torch.nn.Module
    shared: int = 0
    found: list[tuple[int, int, int, int]] = field(default_factory=list)

    @contextmanager
    def counted(self) -> Iterator["Passes"]:
        """Count the passes that run inside the context."""

        def note(_: torch.nn.Module, __: tuple, given: dict) -> None:
            rows, width = given["input_ids"].shape
            keys = given["attention_mask"].shape[1] if given.get("attention_mask") is not None else width
            self.found.append((rows, width, keys, rows * (given.get("logits_to_keep") or width)))

        hook = self.network.register_forward_pre_hook(note, with_kwargs=True)
        try:
            yield self
        finally:
            hook.remove()

    @property
    def operations(self) -> float:
        """Return the floating-point operations of all passes: products with weights, and attention over every key."""
        head = self.network.get_output_embeddings().weight.numel()
        layers = sum(weight.numel() for weight in products(self.network))
        config = self.network.config.get_text_config()
        attention = 4 * config.num_hidden_layers * config.num_attention_heads * head_size(config)
        each = (
            2 * layers * rows * width + 2 * head * kept + attention * rows * width * keys
            for rows, width, keys, kept in self.found
        )
        return float(sum(each))

    @property
    def state_bytes(self) -> float:
        """Return the bytes of the keys and values that all passes have to read."""
        config = self.network.config.get_text_config()
        numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * head_size(config)
        own = sum(rows * max(keys - self.shared, 0) + min(keys, self.shared) for rows, _, keys, _ in self.found)
        return float(own * numbers * cache_dtype(self.network, self.network.device).itemsize)

    def least_seconds(self, machine: "Machine") -> float:
        """Return the least time of all passes on a machine that was measured with this network."""
        products = sum(machine.seconds(rows * width, kept) for rows, width, _, kept in self.found)
        return products + self.state_bytes / machine.bandwidth


class Machine:
    """What this machine reaches: seconds of a network's products by their rows, and bytes read per second."""

    @torch.inference_mode()
    def __init__(self, network: torch.nn.Module):
        weights, head = products(network), network.get_output_embeddings().weight
        self.layers = [(size, measured(weights, size)) for size in SIZES]
        self.head = [(size, measured([head], size)) for size in SIZES[:-2]]
        self.parameters = sum(weight.numel() for weight in weights)
        buffer = torch.ones(BUFFER // 4)
        self.bandwidth = BUFFER / fastest(buffer.sum)

    def seconds(self, rows: int, kept: int) -> float:
        """Return the seconds of the layers' products over so many rows, and of the output layer's over those kept."""
        return interpolated(self.layers, rows) + interpolated(self.head, kept)

    def speed(self, rows: int) -> float:
        """Return the operations per second of the layers' products over so many rows."""
        return 2 * self.parameters * rows / interpolated(self.layers, rows)


def head_size(config: PretrainedConfig) -> int:
    """Return the numbers of a key of one head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def products(network: torch.nn.Module) -> list[torch.Tensor]:
    """Return the weights of the linear layers, without the output layer."""
    head = network.get_output_embeddings()
    linear = (part for part in network.modules() if isinstance(part, torch.nn.Linear) and part is not head)
    return [part.weight for part in linear]


def measured(weights: list[torch.Tensor], rows: int) -> float:
    """Return the seconds of one product with each weight, over an input of so many rows."""
    inputs = {size: torch.randn(rows, size, dtype=weights[0].dtype) for size in {each.shape[1] for each in weights}}
    return fastest(lambda: [torch.nn.functional.linear(inputs[each.shape[1]], each) for each in weights])


def fastest(work: object, times: int = 3) -> float:
    """Return the seconds of the fastest of a few runs, after one that is not counted."""
    work()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def interpolated(points: list[tuple[int, float]], rows: int) -> float:
    """Return the seconds at so many rows: linear between the points, in proportion above the last."""
    if rows >= points[-1][0]:
        return points[-1][1] * rows / points[-1][0]
    for (low, first), (high, second) in pairwise(points):
        if rows <= high:
            return first + (second - first) * max(rows - low, 0) / (high - low)
    return points[-1][1]
