"""One training run in one folder, which the same command resumes until its weights are complete.

`training/record.json` beside the weights describes the run; its `finished` is true once they are complete.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from safetensors import SafetensorError
from transformers import Trainer, TrainerCallback

from automedeval.models.checkpoints import read_record
from automedeval.records import RecordError
from automedeval.records.journal import write_json, write_whole

WHOLE = (
    "whole"  # file in a checkpoint folder after every process has written its part; the seconds of training until then
)
FULL_DISK = ("No space left", "File too large", "file write failed", "unexpected pos", "iostream error")


class TrainingRun(TrainerCallback):
    """Reserve a folder for a run, train from its last whole checkpoint, and record the end.

    Args:
        output: folder of the weights.
        record: what describes the run. Its `identity` holds everything that determines the weights, by name: a run is resumed
            only if all of it is unchanged.

    Attributes:
        finished: whether the same run has ended there already; nothing is left to do then.

    Raises:
        RecordError: the folder holds another run, or other files.
    """

    def __init__(self, output: Path, record: Mapping[str, Any]):
        self.output, self.record, self.state = output, _as_json(record), PartialState()
        self.before, self.started = 0.0, time.monotonic()
        self.state.wait_for_everyone()  # the folder is reserved only after all processes have checked the input
        if self.state.is_main_process:
            self._reserve()
        self.state.wait_for_everyone()
        self.finished = (read_record(output) or {}).get("finished", False)
        if self.finished:
            tell(f"{output}: this run is finished already")

    def _reserve(self) -> None:
        there, now = read_record(self.output), self.record["identity"]
        if there is None and self.output.exists() and any(self.output.iterdir()):
            raise RecordError(f"{self.output}: holds files that are no training run; choose another --output_dir")
        was = now if there is None else there["identity"]
        for name in sorted({*was, *now}):
            if (old := was.get(name)) != (new := now.get(name)):
                change = f"{name} was {_short(old)}, now {_short(new)}"
                raise RecordError(f"{self.output}: holds another run: {change}; choose another --output_dir")
        if there is not None and there["finished"]:
            self._remove_checkpoints()  # left by a run that was killed after writing its record
        else:
            self._write({"finished": False, **self.record})

    def train(self, trainer: Trainer) -> list[dict[str, float]]:
        """Train from the last whole checkpoint, if there is one, and return the log; incomplete checkpoints are removed."""
        checkpoint, self.before, broken = last_whole_checkpoint(self.output)
        self.state.wait_for_everyone()  # all processes have looked before the first removes anything
        if broken and self.state.is_main_process:
            tell(f"{', '.join(folder.name for folder in broken)}: incomplete, removed")
            for folder in broken:
                shutil.rmtree(folder)
        if checkpoint:
            tell(f"resuming from {checkpoint}")
        self.state.wait_for_everyone()
        trainer.add_callback(self)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        return trainer.state.log_history

    def finish(self, **results: Any) -> None:
        """Write the record with these results, which makes the run finished; remove its checkpoints for resuming."""
        if self.state.is_main_process:
            for place in (self.output, self.output / "adapter"):  # a pickle; the record holds the same
                (place / "training_args.bin").unlink(missing_ok=True)
            self._write({**self.record, "seconds": round(self.seconds, 1), **results, "finished": True})
            self._remove_checkpoints()
        self.state.wait_for_everyone()

    @property
    def seconds(self) -> float:
        """Return the seconds of training until now, those of earlier starts included."""
        return self.before + time.monotonic() - self.started

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started = time.monotonic()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.state.wait_for_everyone()
        if state.is_world_process_zero:
            mark_whole(Path(args.output_dir) / f"checkpoint-{state.global_step}", self.seconds)

    def _write(self, record: Mapping[str, Any]) -> None:
        (self.output / "training").mkdir(parents=True, exist_ok=True)
        write_json(self.output / "training" / "record.json", record, allow_nan=True)  # the loss of one that diverged

    def _remove_checkpoints(self) -> None:
        for folder in self.output.glob("checkpoint-*"):
            shutil.rmtree(folder)


def mark_whole(checkpoint: Path, seconds: float) -> None:
    """Mark a checkpoint as complete, with the seconds of training until then."""
    write_whole(checkpoint / WHOLE, f"{seconds:.1f}\n")


def last_whole_checkpoint(output: Path) -> tuple[Path | None, float, list[Path]]:
    """Return the latest complete checkpoint of an interrupted run, its seconds of training, and the incomplete checkpoints.

    A checkpoint whose file `whole` is missing or cannot be read, as after a full disk, is incomplete.
    """
    latest, seconds, broken = None, 0.0, []
    numbered = [(folder.name.rpartition("-")[2], folder) for folder in output.glob("checkpoint-*")]
    for _, folder in sorted((int(number), folder) for number, folder in numbered if number.isdigit()):
        try:
            seconds, latest = float((folder / WHOLE).read_text(encoding="utf-8")), folder
        except (FileNotFoundError, ValueError):
            broken.append(folder)
    return latest, seconds, broken


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Turn the libraries' errors for a full disk, a missing kernel or an ended process into a RecordError."""
    try:
        yield
    except ImportError as error:
        raise RecordError(" ".join(str(error).split())[:300]) from None
    except (RuntimeError, SafetensorError) as error:
        text = " ".join(str(error).split())
        if "closed by peer" in text or "reset by peer" in text:
            raise RecordError("another process of this run has ended; see its error line") from None
        if not any(sign in text for sign in FULL_DISK):
            raise
        raise RecordError(f"a checkpoint could not be written: {text[:200]}; earlier ones are complete") from None


def tell(line: str) -> None:
    """Print a line in the main process only."""
    if PartialState().is_main_process:
        print(line, flush=True)


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda other: sorted(other) if isinstance(other, set) else str(other)))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
