"""The curriculum: the paper's counts, one teacher for each case, and plans that cannot be."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from factories import write_yaml
from hypothesis import given
from hypothesis import strategies as st
from programs import ROOT, module_fixture
from tables import each_row, refused, rows_of

from automedeval.records import RecordError
from automedeval.records.yaml_file import YamlFile
from automedeval.study.dataset.curriculum import Curriculum, Part, Plan, assign, read_plan

ROWS = rows_of(__file__)

PAPER = ROOT / "recipes/runs/automedeval-13b/plan.yaml"
SIMPLE = ROWS["simple"]


def plan_of(folder: Path, content: dict) -> Plan:
    file = folder / "plan.yaml"
    write_yaml(file, content)
    return read_plan(file)


@module_fixture
def simple(tmp_path_factory) -> Plan:
    return plan_of(tmp_path_factory.mktemp("plan"), SIMPLE)


def both(number: int, quality: str | None = "high") -> dict[tuple[str, str], str | None]:
    keys = product((f"case-{at}" for at in range(number)), ("strong", "weak"))
    return dict.fromkeys(keys, quality)


def counts(assignment: Curriculum) -> dict[str, Counter]:
    numbers = {}
    for name, keys in assignment.splits.items():
        numbers[name] = Counter(teacher for _, teacher in keys)
    return numbers


HELD = {"s": ["strong"], "w": ["weak"], "b": ["strong", "weak"]}


@given(st.lists(st.sampled_from("swb"), max_size=60), st.randoms())
def test_every_case_is_in_one_place_whatever_the_order_of_the_input(simple, holders, rng):
    verdicts = [(f"case-{at}", name) for at, holder in enumerate(holders) for name in HELD[holder]]
    try:
        found = assign(simple, dict.fromkeys(verdicts))
    except RecordError:  # half of the cases, and fewer have a strong teacher's verdict
        strong = len(holders) - holders.count("w")
        apart = strong // 10
        assert strong - apart < (len(holders) - apart) // 2
        return
    in_other_order = rng.sample(verdicts, len(verdicts))
    assert assign(simple, dict.fromkeys(in_other_order)) == found
    assert set(found.keys) <= set(verdicts)
    placed = {case for case, _ in found.keys}
    assert len(placed) == len(found.keys)
    # Nothing is left over: the weak teacher and stage 2 take the rest.
    assert {case for case, teacher in verdicts if teacher == "weak"} <= placed


def test_the_seed_decides_and_the_order_within_a_stage_is_shuffled(tmp_path):
    one, two = (assign(plan_of(tmp_path, SIMPLE | {"seed": seed}), both(200)) for seed in (0, 1))
    assert counts(one) == counts(two)
    for name in one.splits:
        assert set(one.splits[name]) != set(two.splits[name])
        assert one.splits[name] != sorted(one.splits[name])


def test_a_teacher_leaves_to_the_next_what_only_that_one_has_not(tmp_path):
    # 10 cases of both teachers and 10 of the strong one alone: all 20 find a teacher.
    verdicts = both(10) | {(f"alone-{at}", "strong"): "high" for at in range(10)}
    found = assign(plan_of(tmp_path, SIMPLE | {"test": {"take": 0}}), verdicts)
    carried = dict(found.training)
    assert len(carried) == 20
    assert all(carried[f"alone-{at}"] == "strong" for at in range(10))


def test_quality_chooses_for_teachers_and_stages(tmp_path):
    verdicts = {}
    for at in range(10):
        verdicts[f"w{at}", "weak"] = "low" if at < 7 else "high"
        verdicts[f"s{at}", "strong"] = "low" if at < 5 else "high"
    found = assign(plan_of(tmp_path, ROWS["by quality"]), verdicts)
    assert counts(found) == {"early": {"weak": 7}, "late": {"weak": 3, "strong": 2}, "test": {}}
    for stage, quality in (("early", "low"), ("late", "high")):
        assert {verdicts[key] for key in found.splits[stage]} == {quality}
    assert "3 cases are in no stage" in found.lines


def test_a_quality_that_nobody_knows_is_refused(tmp_path):
    with pytest.raises(
        RecordError, match="asks for quality, and 19,138 of 19,138 verdicts have none"
    ):
        assign(read_plan(PAPER), both(9569, None))


@each_row("change, told")
def test_a_plan_that_asks_for_more_than_there_is_names_both_numbers(tmp_path, change, told):
    with pytest.raises(RecordError) as caught:
        assign(plan_of(tmp_path, SIMPLE | change), both(100))
    assert str(caught.value).endswith(f"plan.yaml: {told}")


@each_row("change, told")
def test_a_faulty_plan_is_refused_by_file_and_key(tmp_path, change, told):
    with refused(tmp_path / "plan.yaml", told):
        plan_of(tmp_path, SIMPLE | change)


@each_row("take, there, number")
def test_a_share_is_rounded_down_and_exact(take, there, number):
    content = {"teacher": "strong", "take": take}
    part = Part.read(YamlFile("plan.yaml"), content, "test.", "test", ("strong",))
    assert len(read_plan(PAPER).first(part, there, ["case"] * there)) == number


@each_row("study")
def test_vanilla_tuning_has_the_studys_own_test_cases_and_the_strong_teacher_alone(study):
    folder = ROOT / "recipes/runs" / study
    plan = read_plan(folder / "plan.yaml")
    vanilla = read_plan(folder / "plan_vanilla.yaml")
    assert (vanilla.test, vanilla.seed) == (plan.test, plan.seed)
    assert [part.teacher for part in vanilla.teachers] == ["strong"]
    rules = {read_plan(file).failed_criteria for file in folder.glob("plan*.yaml")}
    assert len(rules) == 1, "every plan of the study has one rule"
