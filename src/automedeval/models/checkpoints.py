"""Checkpoints: where models lie on this machine, the folder of one, its fingerprint, and the record of its training."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from automedeval.records import JsonObject, RecordError, foreign_errors_at, read_json
from automedeval.records.hub_names import hub_name, note_commit

HERE = Path("models")  # where models lie beside the user's cache
DECISION = (
    "decision.json"  # how a checkpoint answers typed questions, see transformers' DecisionConfig
)
ADAPTER = "adapter_config.json"  # of peft, beside an adapter's weights
PLACE_OF_BASE = ("base_model_name_or_path", "revision")
# What is downloaded of a checkpoint beside its weights; the tokenizers of older ones are text files.
FILES = ("*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt", "rubric/*")


def user_models() -> Path:
    """Return the folder of the user's cache for models; it need not exist.

    It is `automedeval/models` in HF_HOME, where people point it at a large disk, else in XDG_CACHE_HOME, else in ~/.cache.
    """
    chosen = os.environ.get("HF_HOME") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(chosen).expanduser() / "automedeval/models"


def find_model(model: str) -> Path | None:
    """Return the folder of a checkpoint on this machine: itself, or NAME or models/NAME in ./models or in the user's cache."""
    folder = Path(model)
    if folder.is_dir():
        return folder
    if folder.parent not in (Path(), HERE):
        return None
    places = (place / folder.name for place in (HERE, user_models()))
    return next((place for place in places if (place / "config.json").is_file()), None)


@dataclass(frozen=True)
class Stage:
    """One finished training run on splits of a data set; of its `tokens`, counted once, `trained` are in the loss."""

    splits: tuple[str, ...]
    dataset: str
    fingerprint: str
    rows: int
    tokens: int
    trained: int
    epochs: float

    def __str__(self) -> str:
        return f"{'+'.join(self.splits)} of {self.dataset} ({self.fingerprint})"


def read_record(checkpoint: Path) -> JsonObject | None:
    """Return the record that training left beside a checkpoint; None if the checkpoint was not trained here."""
    file = checkpoint / "training/record.json"
    # The loss of a training that diverged is NaN.
    return read_json(file) if file.exists() else None


def read_history(checkpoint: Path) -> list[Stage]:
    """Return the stages that a checkpoint was trained in, the latest last; RecordError if its training is not finished."""
    record = read_record(checkpoint)
    if record is None:
        return []
    if not record["finished"]:
        raise RecordError(f"{checkpoint}: its training is not finished; run it to its end first")
    return [Stage(**stage | {"splits": tuple(stage["splits"])}) for stage in record["history"]]


def checkpoint_folder(model: str, weights: str = "*.safetensors") -> Path:
    """Return the folder of a checkpoint: as `find_model`, or the cached copy of ORG/NAME or ORG/NAME@REVISION from the Hub.

    `weights` is the pattern of the files of weights that are downloaded. RecordError if there is none.
    """
    if folder := find_model(model):
        if not (folder / "config.json").exists():
            raise RecordError(f"{model} is a folder without a config.json: not a checkpoint")
        return folder
    name, _ = hub_name(model)
    if name.count("/") > 1 or name.startswith((".", "/", "~", "models/")):
        raise RecordError(f"no checkpoint at {model} or in {user_models()}")
    # Other programs write "openai/" in front of a name.
    own = model[7:] if model[:7].casefold() in ("openai/", "openai:") else model
    # The Hub has next to no checkpoint without an owner, and endpoints name their models so.
    hint = "" if "/" in own else f"did you mean openai:{own}, a model at an endpoint? "
    return from_hub(model, hint, allow_patterns=[*FILES, weights])


def from_hub(name: str, hint: str = "", **options: Any) -> Path:
    """Return the cached copy of ORG/NAME or ORG/NAME@REVISION; RecordError, which begins with the hint, if there is none.

    `options` are those of `snapshot_download`.
    """
    from huggingface_hub import snapshot_download  # slow to import, and most folders are here

    repo, revision = hub_name(name)
    with foreign_errors_at(f"{hint}no folder {name!r}, and no download from the Hub"):
        folder = Path(snapshot_download(repo, revision=revision, **options))
    note_commit(name, folder.name)
    return folder


def loading(model: str) -> AbstractContextManager[None]:
    """Turn whatever a bad checkpoint makes transformers, torch and safetensors raise into a RecordError that names it."""
    return foreign_errors_at(f"{model} cannot be loaded")


def base_of(folder: Path) -> Path:
    """Return the folder of the weights that a checkpoint's adapter of peft changes; the checkpoint itself if it has none."""
    file = folder / ADAPTER
    if not file.is_file() or not (folder / "config.json").is_file():
        return folder
    config = read_json(file)
    base = config["base_model_name_or_path"]
    revision = config.get("revision")
    is_of_hub = revision and not Path(base).exists()
    return checkpoint_folder(f"{base}@{revision}" if is_of_hub else base)


def fingerprint(folder: Path, settings: Sequence = ()) -> str:
    """Return twelve hexadecimal digits over the `file_digests` of a checkpoint and over `settings`."""
    whole = hashlib.sha256()
    for name, content in file_digests(folder).items():
        whole.update(name.encode() + bytes.fromhex(content))
    whole.update(json.dumps(settings).encode())
    return whole.hexdigest()[:12]


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that a checkpoint's answers depend on, by name; this reads all of its weights.

    Of an adapter's base the names begin with "base/"; where that lies does not count.
    """
    read = (".safetensors", ".json", ".jinja", ".model")
    digests = {file.name: _sha256(file) for file in sorted(folder.iterdir()) if file.suffix in read}
    base = base_of(folder)
    if base != folder:
        settings = read_json(folder / ADAPTER)
        for name in PLACE_OF_BASE:
            settings.pop(name, None)
        digests[ADAPTER] = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        digests |= {f"base/{name}": content for name, content in file_digests(base).items()}
    return digests


def _sha256(file: Path) -> str:
    """Return the SHA-256 of a file, read once as long as it does not change: weights take a while."""
    state = file.stat()
    return _sha256_of(file.resolve(), state.st_mtime_ns, state.st_size)


@cache
def _sha256_of(file: Path, *_: int) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def weights_fingerprint(encoder: Path) -> str:
    """Return twelve hexadecimal digits over the weights and the vocabulary of an encoder; RecordError if it lacks either."""
    whole = hashlib.sha256()
    for file in (encoder / "model.safetensors", encoder / "tokenizer.json"):
        with foreign_errors_at(f"{file}: an encoder needs it", OSError):
            whole.update(bytes.fromhex(_sha256(file)))
    return whole.hexdigest()[:12]
