"""The machine of a study: the processes in which accelerate launches its steps."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from study.steps import Step, StudyError, read_yaml


@dataclass(frozen=True)
class Machine:
    """What takes the place of the YAMLs' own launch, for every step that accelerate launches.

    Args:
        file: a configuration of accelerate, of one host; None: each YAML's own.
        processes: None: those of the file.

    Raises:
        StudyError: the file cannot be read, or is of several hosts.
    """

    file: str | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        count = read_yaml(Path(self.file)).get("num_machines", 1) if self.file else 1
        if count != 1:
            raise StudyError(
                f"{self.file}: num_machines: a study runs on one host, not on {count}; its steps of training take several, "
                "see accelerate_configs/zero3_multinode.yaml"
            )

    def adapt(self, step: Step) -> Step:
        """Return a step as it is launched here; training keeps its rows per update.

        StudyError if the processes cannot share these rows evenly, or the step's own file is of one process.
        """
        if not is_launched(step) or not (self.file or self.processes):
            return step
        file, before = self.file or _word(step, "--config_file"), _processes(step)
        start = ("accelerate", "launch", *(("--config_file", file) if file else ()))
        if self.processes:
            start += ("--num_processes", str(self.processes))
        launched = replace(step, start=start)
        count = _processes(launched)
        if file and count > 1 and read_yaml(Path(file)).get("distributed_type") == "NO":
            raise StudyError(f"{step.file}: {file} is of one process; --accelerate_config names one of {count}")
        if step.recipe != "sft" or count == before:
            return launched
        rows = step.arguments["per_device_train_batch_size"] * before * step.arguments["gradient_accumulation_steps"]
        accumulation, rest = divmod(rows, step.arguments["per_device_train_batch_size"] * count)
        if rest:
            raise StudyError(f"{step.file}: {count} processes cannot share the {rows} rows of an update evenly")
        return launched.changed({"gradient_accumulation_steps": accumulation})

    def faults(self, steps: Sequence[Step], python: str) -> list[str]:
        """Return what is wrong where the steps take more GPUs than this host has; torch, slow to import, counts them apart."""
        files = [(step, _word(step, "--config_file")) for step in steps if is_launched(step)]
        on_gpus = [step for step, file in files if not (file and read_yaml(Path(file)).get("use_cpu"))]
        needed = max(map(_processes, on_gpus), default=0)
        if not needed:
            return []
        program = [python, "-c", "import torch; print(torch.cuda.device_count())"]
        gpus = int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
        other = "for another machine see --num_processes and --accelerate_config"
        where = self.file or on_gpus[0].file
        return [f"{where}: {needed} processes on a host that has {gpus} GPUs; {other}"] if gpus < needed else []


def is_launched(step: Step) -> bool:
    """Return whether accelerate launches a step."""
    return step.launch[0] == "accelerate"


def _word(step: Step, option: str) -> str | None:
    """Return the value of an option of the launch."""
    words = list(step.launch)
    return words[words.index(option) + 1] if option in words else None


def _processes(step: Step) -> int:
    """Return the processes in which a step is launched."""
    file, count = _word(step, "--config_file"), _word(step, "--num_processes")
    count = count or (read_yaml(Path(file)).get("num_processes", 1) if file else 1)
    if not str(count).isdecimal() or int(count) < 1:
        raise StudyError(f"{file}: num_processes must be a whole number of at least 1, not {count!r}")
    return int(count)
