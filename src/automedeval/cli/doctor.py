"""Show what this machine has for the commands: hardware, models, libraries, the judge that is used; and what to do next.

    automedeval doctor

Reads and writes nothing but this text, which a report of a fault should contain.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, metadata, version

import psutil

import automedeval
from automedeval.judges.judge import UNTRAINED, VARIABLE, default_judge
from automedeval.models.arguments import EncoderArguments
from automedeval.models.model_paths import HERE, user_models
from automedeval.records import RecordError
from automedeval.records.command_line import parse
from automedeval.records.extras import missing_of

DEVELOPERS = ("dev", "gpu")  # extras that few users need
GIB = 2**30
# Least GiB of memory of the GPUs, else of the machine → the judge that fits; docs/judge.md has what was measured.
FITTING = {
    100: "a model of 70B and more behind a serving engine: --judge openai:MODEL --base_url URL",
    70: "--judge Qwen/Qwen2.5-32B-Instruct",
    19: "--judge Qwen/Qwen2.5-7B-Instruct",
    11: "--judge Qwen/Qwen2.5-Coder-1.5B-Instruct",
    0: "the small judge: no --judge",
}


def main() -> None:
    """Print one screen."""
    parse((), __doc__)
    encoder = EncoderArguments()
    print("\n".join([*machine(), "", "models:", *models(), "", "extras:", *extras(), "", *judge(encoder)]))


def machine() -> list[str]:
    """Return lines on the versions and the hardware."""
    import torch  # slow to import

    from automedeval.models.device import best_device
    from automedeval.models.precision import best_dtype, described

    device = best_device()
    process = psutil.Process()
    cores = (
        len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count()
    )  # macOS tells no affinity
    memory = psutil.virtual_memory()
    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    lines = [
        f"automedeval {automedeval.__version__}, {where}",
        f"torch {torch.__version__}, transformers {version('transformers')}",
        f"models compute in {described(best_dtype(device), device)}",
        f"{cores} cores, {memory.total / GIB:.1f} GiB of memory, {memory.available / GIB:.1f} GiB free",
    ]
    room = min(memory.total / GIB, 12)  # without a GPU a larger model takes hours
    if device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info()
        together = total * torch.cuda.device_count() / GIB  # a checkpoint is loaded on one of them, a server uses all
        room = together if together >= max(FITTING) else total / GIB
        lines.append(f"{torch.cuda.get_device_name()}: {total / GIB:.1f} GiB of memory, {free / GIB:.1f} GiB free")
    return [*lines, f"a judge that fits: {fitting(room)}"]


def fitting(room: float) -> str:
    """Return the judge for so many GiB of memory."""
    return next(judge for least, judge in FITTING.items() if room >= least)


def models() -> list[str]:
    """Return a line for each place that is searched for models."""
    lines = []
    for place in (HERE, user_models()):
        names = sorted(file.parent.name for file in place.glob("*/config.json"))
        lines.append(f"  {place}: {', '.join(names) or 'none'}")
    return lines


def extras() -> list[str]:
    """Return a line for each extra of the package: whether its libraries are there, or what is missing."""
    try:
        names = metadata("automedeval").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return ["  not known: the package is not installed"]
    lines = []
    for name in names:
        if name not in DEVELOPERS:
            missing = [f"{each.name}{each.specifier}" for each in missing_of(name)]
            lines.append(f"  {name:<10}{'lacks ' + ', '.join(missing) if missing else 'installed'}")
    return lines


def judge(encoder: EncoderArguments) -> list[str]:
    """Return lines on the small judge, on the judge where none is named, and on what to do next."""
    missing = [] if encoder.is_there() else ["automedeval get-models"]
    lines = [f"packaged small judge: {'needs ' + missing[0] if missing else 'ready'}"]
    try:
        chosen = default_judge(encoder)
    except RecordError:
        chosen = None
    if chosen is None:
        lines.append("judge without --judge: none")
    else:
        why = f" (from {VARIABLE})" if os.environ.get(VARIABLE) else ""
        why = f" ({UNTRAINED})" if not why and chosen.startswith("likelihood:") else why
        lines.append(f"judge without --judge: {chosen}{why}")
    return [*lines, "", f"next: {' && '.join([*missing, 'automedeval judge sample'])}"]
