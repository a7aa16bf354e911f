"""The machine of a study: the processes in which accelerate launches its steps, on one host or on two."""

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from study.steps import Step, StudyError, read_yaml

LAUNCHED, ENDED = "launched", "ended"
PAUSE = 1.0  # seconds between two looks at what the first host launches


@dataclass(frozen=True)
class Machine:
    """What takes the place of the YAMLs' own launch, for every step that accelerate launches.

    Args:
        file: a configuration of accelerate; None: each YAML's own.
        processes: of all hosts together; None: those of the file.
    """

    file: str | None = None
    processes: int | None = None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the content of the file.

        StudyError if it is not of one host, or of two that can start without each other's keys.
        """
        settings = read_yaml(Path(self.file)) if self.file else {}
        if (hosts := settings.get("num_machines", 1)) not in (1, 2):
            raise StudyError(f"{self.file}: num_machines: a study runs on one host or on two, not on {hosts}")
        launcher = settings.get("deepspeed_config", {}).get("deepspeed_multinode_launcher", "standard")
        if hosts == 2 and not (settings.get("main_process_ip") and launcher == "standard"):
            raise StudyError(
                f"{self.file}: two hosts need main_process_ip, the address of the first, and "
                "deepspeed_multinode_launcher: standard"
            )
        return settings

    @property
    def hosts(self) -> int:
        """Return the number of hosts."""
        return int(self.settings.get("num_machines", 1))

    @cached_property
    def rank(self) -> int:
        """Return 0 on the first host, which has the address in the file, and 1 on the second."""
        if self.hosts == 1:
            return 0
        address = str(self.settings["main_process_ip"])
        try:
            socket.create_server((address, 0), family=socket.getaddrinfo(address, 0)[0][0]).close()
        except OSError:  # not an address of this host
            return 1
        return 0

    def adapt(self, step: Step) -> Step:
        """Return a step as it is launched here; training keeps its rows per update.

        StudyError if the processes cannot share these rows evenly, or the step's own file is of one process.
        """
        if not is_launched(step) or not (self.file or self.processes):
            return step
        file, before = self.file or _word(step, "--config_file"), _processes(step)
        start = ("accelerate", "launch", *(("--config_file", file) if file else ()))
        if self.hosts == 2:
            start += ("--machine_rank", str(self.rank))
        if self.processes:
            start += ("--num_processes", str(self.processes))
        launched = replace(step, start=start)
        count = _processes(launched)
        if file and count > 1 and read_yaml(Path(file)).get("distributed_type") == "NO":
            raise StudyError(f"{step.file}: {file} is of one process; --accelerate_config names one of {count}")
        if count % self.hosts:
            raise StudyError(f"{count} processes cannot be shared evenly by {self.hosts} hosts")
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
        needed = max(map(_processes, on_gpus), default=0) // self.hosts
        if not needed:
            return []
        program = [python, "-c", "import torch; print(torch.cuda.device_count())"]
        gpus = int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
        other = "for another machine see --num_processes and --accelerate_config"
        where = self.file or on_gpus[0].file
        return [f"{where}: {needed} processes on a host that has {gpus} GPUs; {other}"] if gpus < needed else []

    def announce(self, logs: Path, number: int | str, step: Step | None = None) -> None:
        """Tell the second host, if there is one, which step is launched, or that the study has ended."""
        if self.hosts == 2 and (step is None or is_launched(step)):
            logs.mkdir(parents=True, exist_ok=True)
            (logs / LAUNCHED).write_text(f"{number} {time.time_ns()}", encoding="utf-8", newline="\n")

    def launched(self, logs: Path) -> Iterator[int]:
        """Yield on the second host the number of each step when the first one launches it, until the study has ended there."""
        file, last = logs / LAUNCHED, ""
        if file.is_file() and file.read_text(encoding="utf-8").startswith(ENDED):  # an earlier study
            last = file.read_text(encoding="utf-8")
        while True:
            now = file.read_text(encoding="utf-8") if file.is_file() else last
            if now not in ("", last):
                if now.startswith(ENDED):
                    return
                yield int(now.split()[0])
            last = now
            time.sleep(PAUSE)


def is_launched(step: Step) -> bool:
    """Return whether accelerate launches a step."""
    return step.launch[0] == "accelerate"


def _word(step: Step, option: str) -> str | None:
    """Return the value of an option of the launch."""
    words = list(step.launch)
    return words[words.index(option) + 1] if option in words else None


def _processes(step: Step) -> int:
    """Return the processes in which a step is launched, of all hosts together."""
    file, count = _word(step, "--config_file"), _word(step, "--num_processes")
    count = count or (read_yaml(Path(file)).get("num_processes", 1) if file else 1)
    if not str(count).isdecimal() or int(count) < 1:
        raise StudyError(f"{file}: num_processes must be a whole number of at least 1, not {count!r}")
    return int(count)
