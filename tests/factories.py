"""Cases and verdicts that tests are made of, and the JSON Lines files that they stand in."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from automedeval.records import Case, Verdict, read_records

MODELS = ("ash", "birch", "cedar")
Json = dict[str, Any]  # an object of JSON


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def read_json(path: Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def verdicts_in(folder: Path) -> list[Verdict]:
    """Return the verdicts that a run has left; none where it wrote no file."""
    file = folder / "verdicts.jsonl"
    return list(read_records(file, Verdict)) if file.exists() else []


def write(path: Path, records: Iterable[Any]) -> Path:
    """Write a JSON Lines file of dicts, or of records with `to_dict`; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (record if isinstance(record, dict) else record.to_dict() for record in records)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def change_json(path: Path, **changes: Any) -> None:
    """Write an object of JSON again with some keys changed."""
    write_json(path, read_json(path) | changes)


def write_yaml(path: Path, content: Any) -> None:
    path.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")


def case_of(number: int, models: Sequence[str] = MODELS, **more: Any) -> Case:
    responses = [
        {"model": name, "text": f"Answer {number} of {name}: rest and drink."} for name in models
    ]
    record = {
        "id": f"case-{number}",
        "question": f"What helps with complaint {number}?",
        "responses": responses,
    }
    return Case.from_dict(record | {"reference": f"The right answer {number}."} | more)


def rationale_of(models: Sequence[str], order: Sequence[int], word: str = "fine") -> str:
    """Return a rationale in steps; the step on each doctor names its model."""
    steps = [f"Step {slot + 1}: {models[index]} is {word}." for slot, index in enumerate(order, 1)]
    return "\n".join(["Analyze:", "Step 1: a complaint.", *steps])


def verdict_of(
    case: Case, scores: Sequence[int | None] | None, judge: str = "judge", **more: Any
) -> Verdict:
    """Return a verdict with these scores, in the order of the responses; None is an invalid one."""
    models = more.pop("models", case.models)
    order = tuple(more.pop("order", range(len(models))))
    valid = scores is not None
    fields = {
        "models": tuple(models),
        "case_digest": case.digest,
        "settings": "s1",
        "valid": valid,
        "error": None if valid else "no score line",
        "raw": "What the judge wrote.",
    }
    fields |= {
        "scores": scores and tuple(scores),
        "rationale": rationale_of(models, order) if valid else None,
    }
    return Verdict(case.id, judge, "automedeval@1", order, **fields | more)
