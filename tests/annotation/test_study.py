"""A study's file: what it asks whom, in which order; and one readable line for everything that can be wrong with it."""

from doubles.introspection_study import MODELS, case_of, verdict_of
from doubles.small_study import PHYSICIANS, a_study, write_lines, write_study
from factories import read_yaml, write_yaml
from programs import ROOT
from tables import each_row, refused

from automedeval.annotation.study import KindPlan, read_study
from automedeval.records import Verdict


def verdict_by_x(number: int, scores=(1, 2, 3), **more) -> Verdict:
    return verdict_of(case_of(number), scores, "x", **more)


def cases_in_order(study) -> list[str]:
    return [item.case_id for item in study.items]


def judges_asked_about(study) -> list[tuple[str, ...]]:
    return [item.judges for item in study.items]


def needed(study) -> list[int]:
    return [item.needed for item in study.items]


def write_questions(folder, **changed) -> str:
    """Write the packaged questions about verdicts with some keys changed, and without those that are "ABSENT"."""
    packaged = read_yaml(ROOT / "src/automedeval/rubrics/packaged/questions/verdict.yaml")
    changed = packaged | changed
    questions = {name: value for name, value in changed.items() if value != "ABSENT"}
    file = folder / "mine.yaml"
    write_yaml(file, questions)
    return str(file)


# --- what a study holds -----------------------------------------------------------------------------------------------


def test_defaults_and_plans(tmp_path):
    study = a_study(tmp_path, prefer={"judges": ["y", "x"], "overlap": 1, "raters": 2}, rate=None)
    plan = KindPlan("prefer", 2, 1, ("attending", "chief", "master_candidate"), 3, ("y", "x"), None)
    assert study.plans == {"prefer": plan}
    assert study.items[0].key == "prefer/case-0/y/x"
    assert study.items[1].key == "prefer/case-1/y/x"
    assert needed(study)[:2] == [3, 2]
    study = a_study(tmp_path, rate={})
    assert study.plans["rate"].judges == ("x", "y")
    assert study.items[0].judges == ("x", "y")
    study = a_study(tmp_path, rate=None, verify={})
    assert study.plans["verify"].roles == ("chief",)
    assert study.verdict_questions.scale == (0, 1)
    study = a_study(tmp_path, rate={"judges": []}, limit=2)
    assert judges_asked_about(study) == [(), ()]
    study = a_study(tmp_path, rate={"roles": ["chief"], "overlap": 2})
    assert needed(study) == [1] * 4, "one chief is all chiefs"


@each_row("rationale")
def test_an_invalid_verdict_is_not_asked_about_and_its_case_is(tmp_path, rationale):
    write_study(tmp_path)
    verdicts = [verdict_by_x(number) for number in (0, 1, 2, 3, 77)]
    verdicts[1] = verdict_by_x(1, None)
    verdicts[2] = verdict_by_x(2, rationale=rationale)
    write_lines(tmp_path / "verdicts.jsonl", verdicts)
    study = read_study(tmp_path / "study.yaml")
    assert judges_asked_about(study) == [("x",), (), (), ("x",)]


def test_of_several_readings_the_first_is_asked_about(tmp_path):
    readings = []
    for order, run in (((2, 1, 0), 1), ((1, 0, 2), 0), ((0, 2, 1), 0)):
        readings.append(verdict_by_x(0, order=order, run=run))
    for lines in (readings, readings[::-1]):
        write_study(tmp_path, number=1)
        write_lines(tmp_path / "verdicts.jsonl", lines)
        study = read_study(tmp_path / "study.yaml")
        assert study.verdicts["case-0", "x"].order == (0, 2, 1)


def test_a_reference_that_a_teacher_was_shown_is_shown(tmp_path):
    write_study(tmp_path, number=2)
    models = [*MODELS, "reference"]
    shown = verdict_by_x(0, (1, 2, 3, 5), models=models)
    write_lines(tmp_path / "verdicts.jsonl", [shown, verdict_by_x(1)])
    study = read_study(tmp_path / "study.yaml")
    first, second = study.items
    assert study.case_of(first).models == models
    assert study.case_of(second).models == list(MODELS)


# --- in which order ---------------------------------------------------------------------------------------------------


def test_a_random_order_follows_the_seed(tmp_path):
    orders = []
    for seed in (1, 1, 2):
        study = a_study(tmp_path, 12, order="random", seed=seed)
        orders.append(cases_in_order(study))
    first, again, other = orders
    in_file = cases_in_order(a_study(tmp_path, 12))
    assert first == again != other
    assert first != in_file == [f"case-{at}" for at in range(12)]
    assert sorted(first) == sorted(in_file)


def test_the_fingerprint_is_of_what_is_asked(tmp_path):
    first = a_study(tmp_path)
    people = PHYSICIANS | {"dora": "attending"}
    same = a_study(tmp_path, physicians=people, rate={"raters": 2}, order="random")
    assert same.fingerprint == first.fingerprint
    more_cases = a_study(tmp_path, 5)
    no_verdicts = a_study(tmp_path, verdicts=None, rate={})
    questions = write_questions(tmp_path, title="Mine")
    own_questions = a_study(tmp_path, verdict_rubric=questions)
    write_study(tmp_path)
    verdicts = [verdict_by_x(number, (5, 5, 5)) for number in range(4)]
    write_lines(tmp_path / "verdicts.jsonl", verdicts)
    other_verdicts = read_study(tmp_path / "study.yaml")
    studies = (first, more_cases, no_verdicts, own_questions, other_verdicts)
    assert len({study.fingerprint for study in studies}) == 5


# --- what can be wrong ------------------------------------------------------------------------------------------------


@each_row("more, message")
def test_a_broken_study_is_one_line(tmp_path, more, message):
    file = write_study(tmp_path, **more)
    begins = "" if "nowhere/revisions" in message else f"{file}: "
    with refused(begins, message):
        read_study(file)


@each_row("change, message")
def test_questions_are_checked(tmp_path, change, message):
    questions = write_questions(tmp_path, **change)
    with refused("", message):
        a_study(tmp_path, verdict_rubric=questions)
