"""A small instruction data set in the format of recipes/build_dataset.py, for tests that train."""

from collections.abc import Mapping
from itertools import count, islice
from pathlib import Path

from factories import Json, read_json, write
from programs import ROOT
from safetensors.torch import load_file
from tables import rows_of

from automedeval.records import Case, Verdict
from automedeval.rubrics import read_rubric
from automedeval.study.dataset.folder import write_card, write_splits
from automedeval.study.dataset.instructions import instruction

# Of a data set's statistics, beside those of its rows.
FACTS: Json = rows_of(str(ROOT / "tests/dataset/test_folder.py"))["facts"]


def tiny_row(number: int, teacher: str = "strong") -> Json:
    responses = [
        {"model": name, "text": f"Answer {number} of {name}: rest and drink."}
        for name in ("a", "b")
    ]
    about = {"id": f"case-{number}", "question": f"What helps with cold {number}?"}
    case = Case.from_dict(about | {"responses": responses})
    why = f"Step 1: It is about cold {number}.\nStep 2: Doctor 1 is right.\nStep 3: Doctor 2 is vague."
    said = {"valid": True, "rationale": why, "scores": (1 + number % 5, 1 + (number + 2) % 5)}
    said |= {"teacher": teacher, "quality": "high"}
    verdict = Verdict(case.id, f"recording:{teacher}", "automedeval@1", (0, 1), **said)
    return instruction(case, verdict, read_rubric("automedeval"))


def build_instructions(folder: Path, sizes: Mapping[str, int]) -> Path:
    folder.mkdir(parents=True)
    numbers = count()  # they go on from split to split
    splits = {name: list(map(tiny_row, islice(numbers, size))) for name, size in sizes.items()}
    facts = write_splits(folder, splits) | FACTS | {"folder": folder.name}
    facts["rubrics"] = {"automedeval@1": read_rubric("automedeval").fingerprint}
    write_card(folder, facts)
    return folder


def training_of(folder: Path, model: Path, max_length: int) -> Path:
    """Write what a training's YAML says of rows; return its file."""
    return write(
        folder / "training.yaml", [{"model_name_or_path": str(model), "max_length": max_length}]
    )


def logged(output: Path, name: str) -> list[float]:
    """Return what a run's trainer logged under a name, update by update."""
    state = read_json(output / "training/trainer_state.json")
    return [line[name] for line in state["log_history"] if name in line]


def losses(output: Path) -> list[float]:
    return logged(output, "loss")


def changed(before: Path, after: Path, file: str = "model.safetensors") -> list[bool]:
    """Return of each tensor whether it is another one; both files have the same names and shapes."""
    old = load_file(before / file)
    new = load_file(after / file)
    assert {name: old[name].shape for name in old} == {name: new[name].shape for name in new}
    return [bool((old[name] != new[name]).any()) for name in old]
