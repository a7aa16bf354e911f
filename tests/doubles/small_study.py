"""The files of a small study for the physicians' page, and functions that answer its tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from factories import Json, case_of, verdict_of, write_yaml
from factories import write as write_lines

from automedeval.annotation.assignment import Assignment
from automedeval.annotation.forms import fields_of
from automedeval.annotation.store import Store
from automedeval.annotation.study import DECISION, PREFERENCE, RESPONSES, Study, read_study
from automedeval.annotation.validation import values_of
from automedeval.records.types import without_none

CRITERIA = ("relevancy", "knowledge_correctness", "fluency")
ASKED = ("knowledge", "attribution", "fluency")
PHYSICIANS = {"ann": "attending", "bob": "attending", "cleo": "chief"}


def write_study(
    folder: Path, number: int = 4, physicians: Mapping[str, str] = PHYSICIANS, **more: Any
) -> Path:
    """Write a study on `number` cases with the verdicts of two judges; keys that are None in `more` are left out."""
    cases = [case_of(at) for at in range(number)]
    verdicts = [
        verdict_of(case, (1 + at % 5, 3, 5), judge)
        for judge in "xy"
        for at, case in enumerate(cases)
    ]
    write_lines(folder / "cases.jsonl", cases)
    write_lines(folder / "verdicts.jsonl", verdicts)
    content = {"title": "A ward", "cases": str(folder / "cases.jsonl"), "verdicts": [str(folder)]}
    content |= {"rate": {"judges": ["x"]}, "database": str(folder / "ward.sqlite")}
    content |= {"annotators": [{"name": name, "role": role} for name, role in physicians.items()]}
    file = folder / "study.yaml"
    write_yaml(file, without_none(content | more))
    return file


def a_study(
    folder: Path, number: int = 4, physicians: Mapping[str, str] = PHYSICIANS, **more: Any
) -> Study:
    return read_study(write_study(folder, number, physicians, **more))


def filled(task: Assignment, score: int = 4) -> Json:
    if task.part == RESPONSES:
        slots = map(str, task.slots)
        return {"scores": {slot: dict.fromkeys(CRITERIA, score) for slot in slots}}
    if task.part == DECISION:
        return {"decision": "keep"}
    if task.part == PREFERENCE:
        return {"choices": dict.fromkeys(ASKED, "1")}
    return {"scores": dict.fromkeys(ASKED, score), "tags": [], "comment": ""}


def send(store: Store, task: Assignment, content: Json | None = None) -> Assignment:
    """Store an answer to the current part of a task; return the task afterwards."""
    content = filled(task) if content is None else content
    form = values_of(fields_of(store.study, task, task.part), content)
    return store.answer(task.annotator, task.id, task.part, form, task.version)


def finish(store: Store, task: Assignment) -> Assignment:
    while task.part is not None:
        task = send(store, task)
    return task


def finish_all(store: Store, *names: str) -> None:
    """Answer everything that there is to do for these people, one after the other."""
    for name in names:
        while (task := store.next(name)) is not None:
            finish(store, task)
