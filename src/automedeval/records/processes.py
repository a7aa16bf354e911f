"""Join the processes that share one run."""

import itertools
import json
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from automedeval.records.errors import RecordError
from automedeval.records.journal import ALONE, Processes


def join_processes() -> Processes:
    """Join the other processes of `accelerate launch` or `torchrun`; return `ALONE` if there are none.

    They meet in the launcher's key-value store alone. No process group is made: one of GPUs does not exist on a CPU, and a
    process that waited in one would keep its GPU busy. RecordError if several processes have no store where they meet.
    """
    if process_count() == 1:
        return ALONE
    from torch.distributed import rendezvous  # slow to import, and one process does without

    try:
        store, rank, count = next(rendezvous("env://"))
    except (ValueError, RuntimeError) as error:
        raise RecordError(
            f"several processes (WORLD_SIZE) cannot meet: {' '.join(str(error).split())}"
        ) from None
    store.set_timeout(timedelta(days=30))  # a process that has finished waits for the slowest
    waits = itertools.count()

    def wait() -> None:
        name = f"automedeval/wait/{next(waits)}"
        if store.add(name, 1) == count:
            store.set(f"{name}/all", "")
        store.get(f"{name}/all")

    def once(name: str, compute: Callable[[], Any]) -> Any:
        name = f"automedeval/once/{os.environ.get('GROUP_RANK', 0)}/{name}"
        if os.environ.get("LOCAL_RANK", "0") == "0":
            store.set(name, json.dumps(compute()))
        return json.loads(store.get(name))  # waits until it is there

    return Processes(rank, count, wait, once)


def process_count() -> int:
    """Return the number of processes that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", 1))


def print_notes(notes: Sequence[str], processes: Processes = ALONE) -> None:
    """Print the lines with which a process ends (`Chat.notes`); of several processes each says which one it is."""
    for note in notes:
        print(f"process {processes.rank}: {note}" if processes.count > 1 else note)
