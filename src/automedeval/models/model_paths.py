"""Where models lie on this machine: in ./models, or in the user's cache, where `automedeval get-models` puts them."""

import os
from pathlib import Path

HERE = Path("models")


def user_models() -> Path:
    """Return the folder of the user's cache for models; it need not exist.

    It is `automedeval/models` in HF_HOME, where people point it at a large disk, else in XDG_CACHE_HOME, else in ~/.cache.
    """
    chosen = os.environ.get("HF_HOME") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(chosen).expanduser() / "automedeval" / "models"


def find_model(model: str) -> Path | None:
    """Return the folder of a checkpoint on this machine, None if there is none.

    Args:
        model: the folder, or NAME or models/NAME of one in ./models or in the user's cache.
    """
    folder = Path(model)
    if folder.is_dir() or folder.parent not in (Path(), HERE):
        return folder if folder.is_dir() else None
    places = (place / folder.name for place in (HERE, user_models()))
    return next((place for place in places if (place / "config.json").is_file()), None)
