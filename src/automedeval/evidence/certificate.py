"""Where the certified threshold of a chat checker is kept, by the model and the wording; `calibration.checker` certifies it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from automedeval.models.model_paths import user_models
from automedeval.records import read_json

RISK = 0.05  # the allowed share of statements that nothing contradicts and that are called contradicted


def certificate_file(checker: Any) -> Path:
    """Return where the user's cache keeps the certificate of a chat checker; another model or wording has another file."""
    return user_models().parent / "checkers" / f"{replace(checker, threshold=None).fingerprint}.json"


def kept_threshold(checker: Any) -> float | None:
    """Return the certified threshold of a chat checker; None if it was not calibrated."""
    file = certificate_file(checker)
    return read_json(file)["threshold"] if file.is_file() else None
