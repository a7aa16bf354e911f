"""Join the processes that share one run."""

import os
from collections.abc import Sequence
from datetime import timedelta

from automedeval.records.errors import foreign_errors_at
from automedeval.records.journal import ALONE, Processes


def join_processes() -> Processes:
    """Join the other processes of `accelerate launch` or `torchrun`; return `ALONE` if there are none.

    They wait for each other by gloo, also beside GPUs, which a process that waits leaves alone; for the slowest one a month.
    RecordError if several processes have no place to meet.
    """
    if process_count() == 1:
        return ALONE
    from accelerate import PartialState  # slow to import, and one process does without

    with foreign_errors_at("several processes (WORLD_SIZE) cannot meet", ValueError, RuntimeError):
        state = PartialState(cpu=True, timeout=timedelta(days=30))
    return Processes(state.process_index, state.num_processes, state.wait_for_everyone)


def process_count() -> int:
    """Return the number of processes that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", 1))


def is_first() -> bool:
    """Return whether this process speaks for all that the launcher started."""
    return process_count() == 1 or os.environ.get("RANK", "0") == "0"


def print_notes(notes: Sequence[str], processes: Processes = ALONE) -> None:
    """Print the lines with which a process ends (`Chat.notes`); of several processes each says which one it is."""
    for note in notes:
        print(f"process {processes.rank}: {note}" if processes.count > 1 else note)
