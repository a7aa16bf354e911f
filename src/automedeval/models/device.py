"""The device that a model runs on where none is named, its kind, and its memory."""

import os

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


def kind_of(device: str | torch.device) -> str:
    """Return the kind of a device ("cpu", "cuda:0", "mps"): "cpu", "cuda" or "mps"."""
    return torch.device(device).type


def gpu_memory(device: str) -> tuple[int, int] | None:
    """Return the memory of a CUDA GPU in bytes, all and free; None for another device."""
    if kind_of(device) != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return total, free
