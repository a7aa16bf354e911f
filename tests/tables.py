"""Tables of tests/data/refusals.yaml: what is refused, or read, and what is said of it, a row for each test."""

from pathlib import Path
from typing import Any

import yaml

TABLES: dict[str, dict[str, list[Any]]] = yaml.safe_load(
    (Path(__file__).with_name("data") / "refusals.yaml").read_text(encoding="utf-8")
)


def rows(module: str, test: str) -> list[Any]:
    """Return the rows of a test's table; `module` is the `__name__` of its module."""
    return TABLES[module.rpartition(".")[2]][test.removeprefix("test_")]
