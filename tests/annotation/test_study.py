"""A study's file: what it asks whom, in which order; and one readable line for everything that can be wrong with it."""

import pytest
import yaml
from doubles.introspection_study import MODELS, case_of, verdict_of
from doubles.small_study import PHYSICIANS, a_study, write_lines, write_study
from factories import read_yaml
from programs import ROOT
from tables import refused, rows_of

from automedeval.annotation.study import KindPlan, read_study


def cases_in_order(study) -> list[str]:
    return [item.case_id for item in study.items]


# --- what a study holds -----------------------------------------------------------------------------------------------


def test_defaults_and_plans(tmp_path):
    study = a_study(tmp_path, prefer={"judges": ["y", "x"], "overlap": 1, "raters": 2}, rate=None)
    plan = KindPlan("prefer", 2, 1, ("attending", "chief", "master_candidate"), ("y", "x"))
    assert study.plans == {"prefer": plan}
    needed = [(item.key, item.needed) for item in study.items[:2]]
    assert needed == [("prefer/case-0/y/x", 3), ("prefer/case-1/y/x", 2)]
    study = a_study(tmp_path, rate={})
    assert study.plans["rate"].judges == ("x", "y")
    assert study.items[0].judges == ("x", "y")
    study = a_study(tmp_path, rate=None, verify={})
    assert (study.plans["verify"].roles, study.verdict_questions.scale) == (("chief",), (0, 1))
    study = a_study(tmp_path, rate={"judges": []}, limit=2)
    assert [item.judges for item in study.items] == [(), ()]
    study = a_study(tmp_path, rate={"roles": ["chief"], "overlap": 2})
    assert [item.needed for item in study.items] == [1] * 4, "one chief is all chiefs"


@pytest.mark.parametrize("rationale", [None, "", " \n"])
def test_an_invalid_verdict_is_not_asked_about_and_its_case_is(tmp_path, rationale):
    write_study(tmp_path)
    cases = [case_of(at) for at in range(4)]
    verdicts = [verdict_of(case, (1, 2, 3), "x") for case in cases]
    verdicts[1] = verdict_of(cases[1], None, "x")
    verdicts[2] = verdict_of(cases[2], (1, 2, 3), "x", rationale=rationale)
    write_lines(tmp_path / "verdicts.jsonl", [*verdicts, verdict_of(case_of(77), (1, 2, 3), "x")])
    study = read_study(tmp_path / "study.yaml")
    assert [item.judges for item in study.items] == [("x",), (), (), ("x",)]


def test_of_several_readings_the_first_is_asked_about(tmp_path):
    case = case_of(0)
    orders = [((2, 1, 0), 1), ((1, 0, 2), 0), ((0, 2, 1), 0)]
    readings = [verdict_of(case, (1, 2, 3), "x", order=order, run=run) for order, run in orders]
    for lines in (readings, readings[::-1]):
        write_study(tmp_path, number=1)
        write_lines(tmp_path / "verdicts.jsonl", lines)
        assert read_study(tmp_path / "study.yaml").verdicts["case-0", "x"].order == (0, 2, 1)


def test_a_reference_that_a_teacher_was_shown_is_shown(tmp_path):
    write_study(tmp_path, number=2)
    more = verdict_of(case_of(0), (1, 2, 3, 5), "x", models=[*MODELS, "reference"])
    write_lines(tmp_path / "verdicts.jsonl", [more, verdict_of(case_of(1), (1, 2, 3), "x")])
    study = read_study(tmp_path / "study.yaml")
    first, second = study.items
    assert study.case_of(first).models == [*MODELS, "reference"]
    assert study.case_of(second).models == list(MODELS)


# --- in which order ---------------------------------------------------------------------------------------------------


def test_a_random_order_follows_the_seed(tmp_path):
    orders = [
        cases_in_order(a_study(tmp_path, 12, order="random", seed=seed)) for seed in (1, 1, 2)
    ]
    in_file = cases_in_order(a_study(tmp_path, 12))
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != in_file == [f"case-{at}" for at in range(12)]
    assert sorted(orders[0]) == sorted(in_file)


def test_the_fingerprint_is_of_what_is_asked(tmp_path):
    first = a_study(tmp_path).fingerprint
    people = {**PHYSICIANS, "dora": "attending"}
    assert (
        a_study(tmp_path, physicians=people, rate={"raters": 2}, order="random").fingerprint
        == first
    )
    others = [a_study(tmp_path, 5), a_study(tmp_path, verdicts=None, rate={})]
    questions = read_yaml(ROOT / "src/automedeval/rubrics/packaged/questions/verdict.yaml")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(questions | {"title": "Mine"}))
    others.append(a_study(tmp_path, verdict_rubric=str(tmp_path / "mine.yaml")))
    assert others[-1].verdict_questions.title == "Mine"
    write_study(tmp_path)
    write_lines(
        tmp_path / "verdicts.jsonl", [verdict_of(case_of(at), (5, 5, 5), "x") for at in range(4)]
    )
    others.append(read_study(tmp_path / "study.yaml"))
    assert len({first, *(each.fingerprint for each in others)}) == 5


# --- what can be wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "message"), rows_of(__file__)["test_a_broken_study_is_one_line"])
def test_a_broken_study_is_one_line(tmp_path, more, message):
    file = write_study(tmp_path, **more)
    begins = "" if "nowhere/revisions" in message else f"{file}: "
    with refused(begins, message):
        read_study(file)


@pytest.mark.parametrize(("change", "message"), rows_of(__file__)["test_questions_are_checked"])
def test_questions_are_checked(tmp_path, change, message):
    good = read_yaml(ROOT / "src/automedeval/rubrics/packaged/questions/verdict.yaml")
    questions = {name: value for name, value in (good | change).items() if value != "ABSENT"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(questions))
    with refused("", message):
        a_study(tmp_path, verdict_rubric=str(tmp_path / "mine.yaml"))
