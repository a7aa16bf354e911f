"""The tables of what is given and what is expected that tests share with nothing but their rows."""

from pathlib import Path
from typing import Any

import yaml


def table(name: str) -> Any:
    """Return the content of tests/data/NAME.yaml."""
    return yaml.safe_load((Path(__file__).parents[1] / "data" / f"{name}.yaml").read_text(encoding="utf-8"))
