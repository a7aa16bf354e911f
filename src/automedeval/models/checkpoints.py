"""Checkpoints: where a model's files lie, and what tells one set of them from another."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.records import RecordError


@dataclass(frozen=True)
class Stage:
    """One finished run of a checkpoint's history: the splits of which data set it was trained on, and how much that was.

    `fingerprint` is the data set's. Tokens are those of the rows, once; `trained` of them carry the loss.
    """

    splits: tuple[str, ...]
    dataset: str
    fingerprint: str
    rows: int
    tokens: int
    trained: int
    epochs: float

    def __str__(self) -> str:
        return f"{'+'.join(self.splits)} of {self.dataset} ({self.fingerprint})"


def read_record(checkpoint: str | Path) -> dict[str, Any] | None:
    """Return what is known of how a checkpoint was trained here, None for one that was not."""
    file = Path(checkpoint) / "training" / "record.json"
    if not file.exists():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{file}: {error}") from None


def read_history(checkpoint: str | Path) -> list[Stage]:
    """Return the stages that a checkpoint went through, the latest last; none for a base model.

    Raises:
        RecordError: the training that is to leave its weights there has not finished.
    """
    record = read_record(checkpoint)
    if record is None:
        return []
    if not record["finished"]:
        raise RecordError(f"{checkpoint}: its own training is not finished; run that first")
    return [Stage(**{**stage, "splits": tuple(stage["splits"])}) for stage in record["history"]]


def checkpoint_folder(model: str) -> Path:
    """Return the folder of a checkpoint: a local one as it is, a Hub id from the Hub's cache or the Hub."""
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise RecordError(f"{model} is a folder without a config.json: not a checkpoint")
        return folder
    if model.count("/") > 1 or model.startswith((".", "/", "~")) or model.startswith("models/"):
        raise RecordError(f"no checkpoint at {model}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model"]))
    except Exception as error:  # noqa: BLE001  the client raises many kinds, all meaning that the model is not to be had
        raise RecordError(f"no folder {model!r}, and the Hub does not give it: {str(error).splitlines()[0]}") from None


def fingerprint(folder: Path, settings: list) -> str:
    """Return twelve hexadecimal digits over a checkpoint's weights, configuration and tokenizer, and over `settings`."""
    return fingerprints(folder, settings)[0]


def fingerprints(folder: Path, *settings: list) -> list[str]:
    """Return a fingerprint for each of several settings; the files, which may be large, are read once."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in (".safetensors", ".json", ".jinja", ".model"):
            digest.update(file.name.encode())
            with open(file, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    found = []
    for each in settings:
        own = digest.copy()
        own.update(json.dumps(each).encode())
        found.append(own.hexdigest()[:12])
    return found
