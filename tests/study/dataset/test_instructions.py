"""Instructions: whatever the slots, each response keeps its score and its step, and the completion reads back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import refused, rows_of

from automedeval.records import REFERENCE, Case, RecordError, Response, Verdict
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import parse_verdict, reads_back
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.rationale import split_steps
from automedeval.study.dataset.instructions import instruction

ROWS = rows_of(__file__)

RUBRIC = read_rubric("automedeval")
PAIRWISE = read_rubric("medical_pairwise")
CASE = Case(
    "c1",
    "What helps against a cold?",
    tuple(Response(name, f"text of {name}") for name in ("ash", "birch", "cedar")),
    "Rest and fluids.",
    extra={"source": "made-up", "license": "cc0-1.0"},
)
SCORES = {"ash": 1, "birch": 3, "cedar": 5}


def verdict_of(order: tuple[int, ...] = (0, 1, 2), case: Case = CASE, **more) -> Verdict:
    """Return a verdict whose step on each doctor names the response that was shown there."""
    names = case.models
    steps = [
        f"Step {slot + 2}: This is {names[index]}. Doctor {slot + 1} says it."
        for slot, index in enumerate(order)
    ]
    known = {
        "valid": True,
        "rationale": "\n".join(["Analyze:", "Step 1: a cold.", *steps]),
        "extra": {"models": names},
    }
    known["scores"] = tuple(
        SCORES.get(name) if at in order else None for at, name in enumerate(names)
    )
    return Verdict(case.id, "teacher", RUBRIC.name, order, **known | more)


def scores_by_model(row: dict) -> dict[str, int]:
    reading = parse_verdict(row["completion"][0]["content"], RUBRIC, len(row["order"]))
    assert reading.valid
    return {row["models"][index]: score for index, score in zip(row["order"], reading.scores)}


@given(st.integers(0, 10_000), st.permutations([0, 1, 2]))
def test_every_response_keeps_its_score_its_step_and_its_text(seed, order):
    row = instruction(CASE, verdict_of(tuple(order)), RUBRIC, "strong", "high", seed)
    assert scores_by_model(row) == SCORES
    completion = row["completion"][0]["content"]
    steps = split_steps(completion.rpartition("\nScore")[0])
    for slot, index in enumerate(row["order"], 1):
        assert steps[slot] == f"This is {CASE.models[index]}. Doctor {slot} says it."
    texts = [CASE.responses[index].text for index in row["order"]]
    assert row["prompt"] == judge_messages(RUBRIC, CASE.question, texts, CASE.reference)
    assert reads_back(row["completion"][0]["content"], RUBRIC, 3)


def test_every_slot_order_turns_up_and_the_seed_decides():
    def order_of(case_id, seed):
        case = replace(CASE, id=case_id)
        return tuple(instruction(case, verdict_of(case=case), RUBRIC, "strong", seed=seed)["order"])

    orders = [order_of(f"case-{at}", 0) for at in range(60)]
    assert len(set(orders)) == 6
    assert orders == [order_of(f"case-{at}", 0) for at in range(60)]
    assert orders != [order_of(f"case-{at}", 1) for at in range(60)]


@pytest.mark.parametrize("rationale", [None, "", " \n"])
def test_a_verdict_without_rationale_is_asked_for_scores_alone(rationale):
    row = instruction(CASE, verdict_of(rationale=rationale), RUBRIC, "weak")
    content = row["completion"][0]["content"]
    assert content.startswith("Score: Doctor 1: ")
    assert "Step" not in content
    texts = [CASE.responses[index].text for index in row["order"]]
    assert row["prompt"] == judge_messages(
        RUBRIC, CASE.question, texts, CASE.reference, rationale=False
    )
    assert scores_by_model(row) == SCORES


def test_the_reference_is_a_response_where_the_teacher_saw_it_as_one():
    shown = replace(CASE, responses=CASE.responses[:2])
    as_teacher_saw = replace(
        shown, responses=(*shown.responses, Response(REFERENCE, shown.reference))
    )
    given_verdict = verdict_of((2, 0, 1), as_teacher_saw, scores=(1, 3, 4))
    row = instruction(shown, given_verdict, RUBRIC, "strong")
    assert row["models"] == ["ash", "birch", REFERENCE]
    assert scores_by_model(row) == {"ash": 1, "birch": 3, REFERENCE: 4}
    slot = row["order"].index(2) + 1
    assert f"Doctor {slot}:\n~~~\nRest and fluids." in row["prompt"][-1]["content"]


def test_only_the_responses_that_were_shown_are_shown():
    row = instruction(CASE, verdict_of((2, 0)), RUBRIC, "strong")
    assert sorted(row["order"]) == [0, 2]
    assert "text of birch" not in row["prompt"][-1]["content"]
    assert scores_by_model(row) == {"ash": 1, "cedar": 5}


@pytest.mark.parametrize(
    ("change", "told"), ROWS["test_a_verdict_that_does_not_fit_its_case_is_refused"]
)
def test_a_verdict_that_does_not_fit_its_case_is_refused(change, told):
    with refused("", told, "'c1'"):
        instruction(CASE, replace(verdict_of(), **change), RUBRIC, "strong")


def test_choices_about_a_pair_are_no_instructions():
    case = replace(CASE, responses=CASE.responses[:2])
    choices = dict.fromkeys(PAIRWISE.output_criteria, "ash")
    verdict = Verdict(
        "c1", "t", PAIRWISE.name, (1, 0), ("birch", "ash"), valid=True, choices=choices
    )
    with pytest.raises(
        RecordError, match="by medical_pairwise@1 has choices; instructions are made of one score"
    ):
        instruction(case, verdict, PAIRWISE, "strong")
