"""The device that a model runs on where none is named, its memory, and the number format that it computes fast and right.

Without instructions for bfloat16 torch computes it correctly, but several times more slowly than float32.
"""

import os

import torch

# By their names in `torch.cpu.get_capabilities`: x86 (AVX-512 BF16, AMX), 64-bit Arm.
_CPU_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
# Values of ONEDNN_MAX_CPU_ISA that keep torch's products from what is asked of here; `make test-avx2` sets it.
_HELD_BACK = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI")


def best_device() -> str:
    """Return the device of this process: its CUDA GPU, else Apple's GPU ("mps"), else "cpu".

    Of several processes each takes the CUDA GPU of its own number; with ACCELERATE_USE_CPU=true all of them take the CPU.
    """
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true"):
        return "cpu"
    if torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def cpu_has(feature: str) -> bool:
    """Return whether torch may use an instruction set extension, by its name in `torch.cpu.get_capabilities`."""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() not in _HELD_BACK
    return allowed and bool(torch.cpu.get_capabilities().get(feature))


def bfloat16_missing(device: str) -> str:
    """Return why bfloat16 should not be chosen on a device; "" if it computes it fast."""
    if device.startswith("cuda"):  # T4 and V100 emulate it
        has = torch.cuda.is_bf16_supported(including_emulation=False)
        return "" if has else "this GPU has no bfloat16 instructions"
    if device.startswith("mps"):  # emulated on the older ones, and missing before macOS 14
        return "bfloat16 is not used on MPS"
    return "" if any(map(cpu_has, _CPU_BFLOAT16)) else "this processor has no bfloat16 instructions"


def best_dtype(device: str, stored: torch.dtype | None = None) -> torch.dtype:
    """Return the format to compute in where nobody chose one: bfloat16 where the device computes it fast, else float32.

    On a GPU it is float16 for weights `stored` so: activations of other checkpoints may exceed its range.
    """
    if not bfloat16_missing(device):
        return torch.bfloat16
    return torch.float16 if device.startswith("cuda") and stored == torch.float16 else torch.float32


def described(dtype: torch.dtype, device: str) -> str:
    """Return a choice of `best_dtype` in words: the format, the device and, if it is not bfloat16, why."""
    why = bfloat16_missing(device)
    return f"{str(dtype).removeprefix('torch.')} on {device}" + (f" ({why})" if why else "")
