"""A user's own rubric beside its template."""

from pathlib import Path

import yaml


def own_rubric(folder: Path, text: str, **changes: object) -> Path:
    """Write a listwise rubric with a template of its own, with some keys changed; return its file."""
    content = {
        "id": "own",
        "version": 1,
        "mode": "listwise",
        "inputs": ["question", "responses"],
        "max_responses": 9,
    }
    content |= {"criteria": [{"name": "tact", "description": "Is it tactful?"}], "rationale": True}
    content |= {
        "scale": {"minimum": 1, "maximum": 5, "anchors": {5: "good"}},
        "output": {"grammar": "score_line"},
    }
    content |= {"template": "own.jinja"} | changes
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.jinja").write_text(text, encoding="utf-8")
    (folder / "own.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "own.yaml"
