"""A user's own rubric beside its template."""

from pathlib import Path

from factories import write_yaml
from tables import rows_of

CONTENT = rows_of(__file__)


def own_rubric(folder: Path, text: str, **changes: object) -> Path:
    """Write a listwise rubric with a template of its own, with some keys changed; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.jinja").write_text(text, encoding="utf-8")
    file = folder / "own.yaml"
    write_yaml(file, CONTENT | changes)
    return file
