"""Mark the checkpoints of a run as they become complete, so that a killed run goes on from the last whole one."""

import time
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from automedeval.training.stages import mark_whole


class WholeCheckpoints(TrainerCallback):
    """Mark a checkpoint as complete when all processes have written their part, with the seconds of training until then.

    Args:
        before: seconds of training before this start.
    """

    def __init__(self, before: float):
        self.before, self.started = before, time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds of training until now."""
        return self.before + time.monotonic() - self.started

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started = time.monotonic()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero:
            mark_whole(folder, self.seconds)
