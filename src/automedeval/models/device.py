"""The device that a model runs on where none is named, and what a kind of device changes in how it runs."""

import os
from dataclasses import dataclass

import torch


def best_device() -> str:
    """Return the device of this process: its CUDA GPU, else Apple's GPU ("mps"), else "cpu".

    Of several processes each takes the CUDA GPU of its own number; with ACCELERATE_USE_CPU=true all of them take the CPU.
    """
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true"):
        return "cpu"
    if torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@dataclass(frozen=True)
class Switches:
    """What a kind of device changes.

    Args:
        grouped_attention: attention that does not copy keys and values once per query head, see `network`.
        float32_cache: keys and values are kept in float32 under a bfloat16 model, see `decoding.cache_dtype`.
        quantization: whether weights in 4 or 8 bits can be loaded.
        forward_tokens: about how many prompt tokens one forward pass takes: a GPU should not wait for the host between two of
            them, and too many do not fit a CPU's caches.
    """

    grouped_attention: bool = False
    float32_cache: bool = False
    float64: bool = True
    quantization: bool = False
    forward_tokens: int = 2048


_SWITCHES = {
    "cpu": Switches(grouped_attention=True, float32_cache=True),
    "cuda": Switches(grouped_attention=True, quantization=True, forward_tokens=8192),
    "mps": Switches(float64=False),
}


def switches(device: str | torch.device) -> Switches:
    """Return what a device ("cpu", "cuda:0", "mps") changes."""
    return _SWITCHES.get(torch.device(device).type, Switches())


def gpu_memory(device: str) -> tuple[int, int] | None:
    """Return the memory of a CUDA GPU in bytes, all and free; None for another device."""
    if torch.device(device).type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return total, free
