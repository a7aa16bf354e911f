"""The paper's human work at its size: who is asked about how many items, by the files of recipes/runs/automedeval-13b."""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from doubles.introspection_study import case_of, verdict_of
from doubles.small_study import write_lines
from factories import read_yaml, write_yaml
from programs import ROOT, module_fixture

from automedeval.annotation.study import read_study

PAPER = Path("recipes/runs/automedeval-13b")
CANDIDATES = ("ChatDoctor", "Baize-Healthcare", "MedAlpaca", "MedLlama2")
OURS = "introspection2"
GPT4 = "gpt-4-turbo-2024-04-09"
DOCTORS = ("attending-1", "attending-2", "attending-3", "chief-1", "chief-2")
MASTERS = ("master-1", "master-2", "master-3")


def settings(name: str) -> dict:
    return read_yaml(ROOT / PAPER / f"{name}.yaml")


@module_fixture
def place(tmp_path_factory) -> Path:
    """Write cases and verdicts in the paper's numbers, where the files of the study name them."""
    folder = tmp_path_factory.mktemp("paper")
    tests = [case_of(at, CANDIDATES) for at in range(1130)]
    trained = [case_of(at, CANDIDATES[:2]) for at in range(9874)]
    for name, cases in (("test", tests), ("wikidoc", trained)):
        write_lines(folder / "responses" / name / "cases.jsonl", cases)
    judged = [
        verdict_of(case, (1, 3, 5, 2), judge) for judge in (OURS, GPT4, "stage3") for case in tests
    ]
    judged[7] = verdict_of(tests[7], None, OURS)  # cannot be compared
    teacher = [verdict_of(case, (4, 2), "gpt-4", order=(1, 0)) for case in trained]
    for name, verdicts in (("wikidoc", judged), ("wikidoc-strong", teacher)):
        write_lines(folder / "verdicts" / name / "verdicts.jsonl", verdicts)
    return folder


@pytest.fixture
def opened(place, tmp_path, monkeypatch, open_stores):
    """Return what opens the store of a study of the paper, with a database of its own."""
    monkeypatch.chdir(place)
    shutil.copy(ROOT / PAPER / "teachers.yaml", tmp_path)  # it names GPT-4

    def make(name, **more):
        content = settings(name) | {"database": str(tmp_path / f"{name}.sqlite")} | more
        write_yaml(tmp_path / f"{name}.yaml", content)
        return open_stores(read_study(tmp_path / f"{name}.yaml"))

    return make


def asked_of(store) -> Counter:
    """Count the items by their kind, by how many answer each, and by the judges whose verdicts are shown."""
    return Counter((item.kind, item.needed, item.judges) for item in store.study.items)


def test_five_doctors_rate_1130_cases_and_three_master_candidates_compare_87(opened):
    store = opened("annotate")
    rated = {("rate", 5, (OURS,)): 1129, ("rate", 5, ()): 1}
    assert asked_of(store) == rated | {("prefer", 3, (OURS, GPT4)): 87}
    assert [store.progress(name).left for name in (*DOCTORS, *MASTERS)] == [1130] * 5 + [87] * 3
    first = {store.next(name).item for name in DOCTORS}
    assert len(first) == 1, "all begin with the same case"
    assert {store.next(name).item.kind for name in MASTERS} == {"prefer"}


def test_two_chiefs_verify_9874_verdicts(opened):
    store = opened("annotate_teacher")
    assert asked_of(store) == {("verify", 2, ("gpt-4",)): 9874}
    assert [store.progress(name).left for name in ("chief-1", "chief-2")] == [9874] * 2


def test_the_answers_to_calibrate_with_are_rated_without_verdicts(opened, place):
    store = opened("annotate_calibration", cases=str(place / "responses/test/cases.jsonl"))
    assert asked_of(store) == {("rate", 1, ()): 1130}


def test_the_draw_is_the_same_for_the_same_seed_whatever_the_order_of_the_file(
    opened, place, tmp_path
):
    def compared(**more):
        return [
            item.case_id for item in opened("annotate", **more).study.items if item.kind == "prefer"
        ]

    before = compared()
    assert len(set(before)) == 87
    assert "case-7" not in before, "it has one verdict alone"
    lines = (place / "responses/test/cases.jsonl").read_text().splitlines(keepends=True)
    random.Random(5).shuffle(lines)
    (tmp_path / "turned.jsonl").write_text("".join(lines))
    assert set(compared(cases=str(tmp_path / "turned.jsonl"))) == set(before)
    assert set(compared(seed=1)) != set(before)
