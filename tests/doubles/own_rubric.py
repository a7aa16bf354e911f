"""A user's own rubric beside its template."""

from pathlib import Path

import yaml
from tables import rows_of

CONTENT = rows_of(__file__)


def own_rubric(folder: Path, text: str, **changes: object) -> Path:
    """Write a listwise rubric with a template of its own, with some keys changed; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.jinja").write_text(text, encoding="utf-8")
    file = folder / "own.yaml"
    file.write_text(yaml.safe_dump(CONTENT | changes), encoding="utf-8")
    return file
