"""The device that a model runs on where none is named."""

import os

import torch


def best_device() -> str:
    """Return the device of this process: its CUDA GPU, else Apple's GPU ("mps"), else "cpu".

    Under `accelerate launch` each process takes the CUDA GPU of its own number; with `--cpu` all of them take the CPU.
    """
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true"):
        return "cpu"
    if torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return "mps" if torch.backends.mps.is_available() else "cpu"
