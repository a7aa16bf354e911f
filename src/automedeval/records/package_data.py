"""Read the tables that stand beside the source as data: lists of words and names, layouts, patterns."""

from importlib import resources
from typing import Any

import yaml

# Ten times as fast, where PyYAML was built with it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def packaged(room: str, name: str) -> Any:
    """Return the content of templates/NAME.yaml of a room."""
    file = resources.files("automedeval") / room / "templates" / f"{name}.yaml"
    return yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
