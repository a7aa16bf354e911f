"""A run of training in its folder: reserved for one identity, resumed from its last whole checkpoint, finished once.

The folder has `training/record.json`: `identity` holds everything that determines the weights, and `finished` is true once they
are complete. Of a judge's checkpoint `history` lists every stage since the base model.
"""

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from automedeval.models.checkpoints import fingerprint, read_record
from automedeval.records import RecordError, digest
from automedeval.records.errors import reason
from automedeval.records.journal import write_json, write_whole
from automedeval.records.tables import packaged

# File in a checkpoint folder after every process has written its part, with the seconds of training until then.
WHOLE = "whole"
# TRL's arguments that determine the weights, together with the rows and the start. A run is resumed only if all are unchanged.
DECISIVE = tuple(
    name for names in packaged("study/training", "arguments")["decisive"].values() for name in names
)


def identity_of(training: Any, model: Any, peft: Any, rows: Any, start: Path) -> dict[str, Any]:
    """Return what determines the weights of a run: TRL's arguments, the adapter, the rows and the start."""
    identity = {name: getattr(training, name) for name in DECISIVE if hasattr(training, name)}
    identity |= {
        "dtype": model.dtype,
        "peft": peft and peft.to_dict(),
        "processes": PartialState().num_processes,
    }
    identity |= {name: True for name in ("load_in_8bit", "load_in_4bit") if getattr(model, name)}
    return identity | {"rows": digest(rows), "start": fingerprint(start, [])}


class Run(TrainerCallback):
    """A run of training, in all of its processes; `finished` says whether it has finished in its folder already.

    `identity` in its record holds everything that determines the weights. RecordError if the folder holds another run.
    """

    def __init__(self, output: Path, record: Mapping[str, Any]):
        as_text = json.dumps(
            record, default=lambda other: sorted(other) if isinstance(other, set) else str(other)
        )
        self.output = output
        self.record = json.loads(as_text)
        self._before = 0.0
        self._started = time.monotonic()
        self._goes = False  # whether training has begun
        state = PartialState()
        state.wait_for_everyone()  # the folder is reserved only after all processes have checked the input
        if state.is_main_process:
            self._reserve()
        state.wait_for_everyone()
        there = read_record(output)
        self.finished = there is not None and there["finished"]
        if self.finished:
            state.print(f"{output}: this run is finished already")

    @property
    def seconds(self) -> float:
        """Return the seconds of training until now, with those before an interruption."""
        return self._before + time.monotonic() - self._started

    def train(self, trainer: Any) -> None:
        """Train from the last whole checkpoint on, if there is one; checkpoints that a kill cut short are removed.

        RecordError if the trainer cannot go on from the checkpoint.
        """
        state = PartialState()
        seconds = {folder: _seconds(folder) for folder in self.output.glob("checkpoint-*")}
        state.wait_for_everyone()  # all processes have looked before the first removes anything
        if state.is_main_process and (
            broken := sorted(each for each, whole in seconds.items() if whole is None)
        ):
            print(f"{', '.join(folder.name for folder in broken)}: incomplete, removed", flush=True)
            for folder in broken:
                shutil.rmtree(folder)
        state.wait_for_everyone()
        if checkpoint := get_last_checkpoint(str(self.output)):
            state.print(f"resuming from {checkpoint}", flush=True)
            self._before = seconds[Path(checkpoint)] or 0.0
        trainer.add_callback(self)
        try:
            trainer.train(resume_from_checkpoint=checkpoint)
        except Exception as error:
            if checkpoint is None or self._goes:
                raise
            fault = f"{checkpoint} cannot be resumed: {reason(error)}"
            raise RecordError(f"{fault}; delete it to go on from the one before") from None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._started = time.monotonic()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._goes = True  # all of the checkpoint was read

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            write_whole(
                self.output / f"checkpoint-{state.global_step}" / WHOLE, f"{self.seconds:.1f}\n"
            )

    def finish(self, **more: Any) -> None:
        """Write the record, with more facts, which makes the run finished; remove what it could resume from."""
        for pickled in self.output.rglob("training_args.bin"):  # record.json holds the same
            pickled.unlink()
        self._write({**self.record, "finished": True, "seconds": round(self.seconds, 1), **more})
        self._remove_checkpoints()

    def _reserve(self) -> None:
        there, now = read_record(self.output), self.record["identity"]
        if there is None:
            if self.output.exists() and any(self.output.iterdir()):
                raise RecordError(
                    f"{self.output}: holds files that are no training run; choose another --output_dir"
                )
        else:
            was = there["identity"]
            if changed := sorted(name for name in {*was, *now} if was.get(name) != now.get(name)):
                old, new = (
                    json.dumps(identity.get(changed[0]), ensure_ascii=False)
                    for identity in (was, now)
                )
                change = f"{changed[0]} was {old:.60}, now {new:.60}"
                raise RecordError(
                    f"{self.output}: holds another run: {change}; choose another --output_dir"
                )
            if there["finished"]:
                self._remove_checkpoints()  # left by a run that was killed after writing its record
                return
        self._write({"finished": False, **self.record})

    def _write(self, record: Mapping[str, Any]) -> None:
        (self.output / "training").mkdir(parents=True, exist_ok=True)
        # NaN is the loss of a training that diverged.
        write_json(self.output / "training" / "record.json", record, allow_nan=True)

    def _remove_checkpoints(self) -> None:
        for folder in self.output.glob("checkpoint-*"):
            shutil.rmtree(folder)


def _seconds(checkpoint: Path) -> float | None:
    """Return the seconds of training until a checkpoint; None if it is incomplete, or its mark is, as after a full disk."""
    try:
        return float((checkpoint / WHOLE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
