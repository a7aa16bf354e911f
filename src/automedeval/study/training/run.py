"""A run of training in its folder: reserved for one identity, resumed from its last whole checkpoint, finished once.

The folder has `training/record.json`, beside the Trainer's own losses: `identity` holds everything that determines the weights,
and `finished` is true once they are complete. Of a judge's checkpoint `history` lists every stage since the base model.
"""

import json
import os
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from automedeval.models.checkpoints import fingerprint, read_record
from automedeval.records import JsonObject, RecordError, digest
from automedeval.records.journal import write_json, write_whole
from automedeval.records.package_data import packaged

# File in a checkpoint folder after every process has written its part, with one line.
WHOLE = "whole"
# TRL's arguments that determine the weights, together with the rows and the start. A run is resumed only if all are unchanged.
_ARGUMENTS = packaged("study/training", "arguments")
DECISIVE = tuple(chain.from_iterable(_ARGUMENTS["decisive"].values()))
T = TypeVar("T")


def first_for_all(work: Callable[[], T]) -> T:
    """Return in every process what the first one makes of `work`, or raise its error there: none waits for it without end."""
    result: list[Any] = [None]
    if PartialState().is_main_process:
        try:
            result = [work()]
        except Exception as error:  # noqa: BLE001 - it is raised below
            result = [error]
    (made,) = broadcast_object_list(result)
    if isinstance(made, Exception):
        raise made
    return made


def decisive(training: Any) -> JsonObject:
    """Return the arguments that determine the weights; the trainer of an encoder has a few of them less than TRL's."""
    return {name: getattr(training, name) for name in DECISIVE if hasattr(training, name)}


def identity_of(training: Any, model: Any, peft: Any, rows: Any, start: Path) -> JsonObject:
    """Return what determines the weights of a run: TRL's arguments, the adapter, the rows, the start, and the launcher."""
    encoded = [rows["input_ids"][:], rows["completion_mask"][:]]
    return decisive(training) | {
        "dtype": model.dtype,
        "peft": peft and peft.to_dict(),
        "processes": PartialState().num_processes,
        "rows": digest(encoded),
        "start": fingerprint(start),
        "launcher": launcher_of(training),
    }


def launcher_of(training: Any) -> str | None:
    """Return what shares out the weights, as ZeRO-3; None where each process has all. Its checkpoints are for it alone."""
    if training.deepspeed_plugin:
        return f"ZeRO-{training.deepspeed_plugin.zero_stage}"
    return "FSDP" if os.environ.get("ACCELERATE_USE_FSDP") else None


class Run(TrainerCallback):
    """A run of training, in all of its processes; `finished` says whether it has finished in its folder already.

    The `identity` of `record` holds everything that determines the weights. In its file sets are sorted lists, and what JSON
    has no word for is its text. RecordError if the folder holds another run.
    """

    def __init__(self, output: Path, record: JsonObject):
        self.output = output
        text = json.dumps(
            record, default=lambda value: sorted(value) if isinstance(value, set) else str(value)
        )
        self.record = json.loads(text)
        self.finished = first_for_all(self._reserve)
        if self.finished:
            PartialState().print(f"{output}: this run is finished already")

    def train(self, trainer: Any) -> None:
        """Train from the last whole checkpoint on, if there is one; checkpoints that a kill cut short are removed."""
        checkpoint = first_for_all(self._last_whole)
        if checkpoint:
            PartialState().print(f"resuming from {checkpoint}", flush=True)
        trainer.add_callback(self)
        trainer.train(resume_from_checkpoint=checkpoint)
        if PartialState().is_main_process:
            trainer.state.save_to_json(str(self.output / "training/trainer_state.json"))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            write_whole(self.output / f"checkpoint-{state.global_step}" / WHOLE, "whole\n")

    def finish(self) -> None:
        """Write the record, which makes the run finished; remove what it could resume from."""
        for pickled in self.output.rglob("training_args.bin"):  # record.json holds the same
            pickled.unlink()
        self._write({**self.record, "finished": True})
        self._remove_checkpoints()

    def _last_whole(self) -> str | None:
        """Remove what a kill cut short; return the last whole checkpoint."""
        for folder in self.output.glob("checkpoint-*"):
            mark = folder / WHOLE
            # A full disk takes a mark without its content.
            if not mark.exists() or not mark.read_bytes().endswith(b"\n"):
                print(f"{folder.name}: incomplete, removed", flush=True)
                shutil.rmtree(folder)
        return get_last_checkpoint(str(self.output))

    def _reserve(self) -> bool:
        """Take the folder for this run, or go on in it; return whether the run has finished there."""
        before = read_record(self.output)
        if before is None:
            if any(self.output.glob("*")):
                raise RecordError(
                    f"{self.output}: holds files that are no training run; choose another --output_dir"
                )
            before = {"finished": False, "identity": self.record["identity"]}
        was = before["identity"]
        now = self.record["identity"]
        for name in sorted({*was, *now}):
            if was.get(name) != now.get(name):
                change = f"{name} was {was.get(name)!r:.60}, now {now.get(name)!r:.60}"
                raise RecordError(
                    f"{self.output}: holds another run: {change}; choose another --output_dir"
                )
        if before["finished"]:
            self._remove_checkpoints()  # left by a run that was killed after writing its record
        else:
            self._write({"finished": False, **self.record})
        return before["finished"]

    def _write(self, record: JsonObject) -> None:
        write_json(self.output / "training/record.json", record)

    def _remove_checkpoints(self) -> None:
        for folder in self.output.glob("checkpoint-*"):
            shutil.rmtree(folder)
