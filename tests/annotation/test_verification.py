"""The verification of teachers' verdicts: a task about verdicts alone, whose export build_dataset.py reads as it is."""

from html import unescape
from pathlib import Path

import pytest
from doubles.dataset_study import Study as BuildStudy
from doubles.small_study import ASKED, filled, send, write_lines, write_study
from doubles.study_page import opened, physician
from factories import read, read_yaml
from programs import ROOT, run_recipe, succeeded

from automedeval.annotation.validation import Invalid

DOCTORS = ("attending-1", "attending-2", "attending-3", "chief-1", "chief-2")
PEOPLE = {name: name.partition("-")[0] for name in DOCTORS}
PAPER = ROOT / "recipes/runs/automedeval-13b"


def write_verification(folder: Path, built: BuildStudy) -> Path:
    cases = str(write_lines(folder / "asked.jsonl", built.cases))
    verdicts = str(write_lines(folder / "judged.jsonl", built.verdicts["strong"]))
    plan = {"raters": 5, "roles": ["attending", "chief"]}
    return write_study(folder, 1, PEOPLE, rate=None, verify=plan, cases=cases, verdicts=verdicts)


def test_five_people_verify_and_build_dataset_reads_their_export_unchanged(tmp_path):
    built = BuildStudy(tmp_path)
    file = write_verification(tmp_path, built)
    noes = {("case-3", "attending-2"): "knowledge", ("case-5", "chief-1"): "attribution"}
    noes |= {("case-5", "chief-2"): "fluency"}
    with opened(file) as store:
        for name in PEOPLE:
            assert store.progress(name).left == 24
            while task := store.next(name):
                no = noes.get((task.item.case_id, name))
                send(store, task, {"scores": {asked: int(asked != no) for asked in ASKED}})
    succeeded(run_recipe("annotate", "--study", file, "--export", tmp_path / "ratings"))
    lines = read(tmp_path / "ratings/verdict_ratings.jsonl")
    assert len(lines) == 24 * 5 * 3
    said_no = [line for line in lines if line["score"] == 0]
    assert {(line["case_id"], line["annotator"]): line["criterion"] for line in said_no} == noes
    assert {(line["annotator"], line["role"]) for line in lines} == set(PEOPLE.items())
    # The rule is the one of the paper's plan.
    rule = read_yaml(PAPER / "plan.yaml")["failed_criteria"]
    built.plan = built.plan | {"failed_criteria": rule}
    ratings = tmp_path / "ratings/verdict_ratings.jsonl"
    done = succeeded(built.build(verdict_ratings=ratings))
    for criterion in ASKED:
        assert f"{criterion}: 23 of 24 verdicts meet it (95.83 %" in done.stdout
    dropped = built.dropped()
    failed = [dropped[reason] for reason in dropped if any(name in reason for name in ASKED)]
    assert failed == [["case-5"]], "it fails two criteria"


def test_a_verdict_is_checked_in_its_own_words_and_slots(tmp_path):
    built = BuildStudy(tmp_path, 6)
    with opened(write_verification(tmp_path, built)) as store:
        someone = physician(store, "chief-1")
        assert someone.asked() == {f"scores-{asked}": ["0", "1"] for asked in ASKED}
        assert {"judge-strong", "ash", "birch"}.isdisjoint(unescape(someone.page).split())
        task = store.next("chief-1")
        assert task.parts == ("verdict:judge-strong",)
        case = built.cases[0]
        text = unescape(someone.page)
        assert built.verdicts["strong"][0].rationale in text
        first, second = (text.index(case.responses[index].text) for index in (1, 0))
        assert text.index("<h2>Doctor 1</h2>") < first < text.index("<h2>Doctor 2</h2>") < second


def test_several_judges_verdicts_are_parts_of_one_task(open_store):
    store = open_store(rate=None, verify={"roles": ["attending", "chief"]})
    task = store.next("ann")
    assert sorted(task.parts) == ["verdict:x", "verdict:y"]
    with pytest.raises(Invalid):
        send(store, task, {"scores": dict.fromkeys(ASKED, 2)})
    with pytest.raises(Invalid):
        send(store, task, {"scores": dict.fromkeys(ASKED[:2], 1)})
    send(store, send(store, task, filled(task, 1)), filled(task, 1))
    assert store.progress("ann").done == 1
