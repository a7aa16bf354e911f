"""Instructions: whatever the slots, each response keeps its score and its step, and the completion reads back."""

from dataclasses import replace

import pytest
from factories import MODELS, case_of, verdict_of
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row, refused

from automedeval.records import REFERENCE, RecordError
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import parse_verdict, reads_back
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.rationale import split_steps
from automedeval.study.dataset.instructions import instruction

RUBRIC = read_rubric("automedeval")
CASE = case_of(1)
SCORES = {"ash": 1, "birch": 3, "cedar": 5}
VERDICT = verdict_of(CASE, (1, 3, 5))


def scores_by_model(row: dict) -> dict[str, int]:
    reading = parse_verdict(row["completion"][0]["content"], RUBRIC, len(row["order"]))
    assert reading.valid
    return {row["models"][index]: score for index, score in zip(row["order"], reading.scores)}


def prompt_of(row: dict, **options) -> list[dict]:
    texts = [CASE.responses[index].text for index in row["order"]]
    return judge_messages(RUBRIC, CASE.question, texts, CASE.reference, **options)


@given(st.integers(0, 10_000), st.permutations([0, 1, 2]))
def test_every_response_keeps_its_score_its_step_and_its_text(seed, order):
    steps = ["Analyze:", "Step 1: a cold."]
    for slot, index in enumerate(order, 1):
        steps.append(f"Step {slot + 1}: {MODELS[index]}. Doctor {slot}.")
    verdict = replace(VERDICT, order=tuple(order), rationale="\n".join(steps))
    row = instruction(CASE, verdict, RUBRIC, seed)
    assert scores_by_model(row) == SCORES
    completion = row["completion"][0]["content"]
    after = split_steps(completion.rpartition("\nScore")[0])
    for slot, index in enumerate(row["order"], 1):
        assert after[slot] == f"{MODELS[index]}. Doctor {slot}."
    assert row["prompt"] == prompt_of(row)
    assert reads_back(completion, RUBRIC, 3)


def test_every_slot_order_turns_up_and_the_seed_decides():
    def orders(seed):
        cases = [replace(CASE, id=f"case-{at}") for at in range(60)]
        rows = [instruction(case, VERDICT, RUBRIC, seed) for case in cases]
        return [tuple(row["order"]) for row in rows]

    assert len(set(orders(0))) == 6
    assert orders(0) == orders(0) != orders(1)


@each_row("rationale")
def test_a_verdict_without_rationale_is_asked_for_scores_alone(rationale):
    row = instruction(CASE, replace(VERDICT, rationale=rationale), RUBRIC)
    content = row["completion"][0]["content"]
    assert content.startswith("Score: Doctor 1: ")
    assert "Step" not in content
    assert row["prompt"] == prompt_of(row, rationale=False)
    assert scores_by_model(row) == SCORES


def test_the_reference_is_a_response_where_the_teacher_saw_it_as_one():
    shown = case_of(1, MODELS[:2])
    models = [*shown.models, REFERENCE]
    verdict = verdict_of(shown, (1, 3, 4), order=(2, 0, 1), models=models)
    row = instruction(shown, verdict, RUBRIC)
    assert scores_by_model(row) == {"ash": 1, "birch": 3, REFERENCE: 4}
    slot = row["order"].index(2) + 1
    assert f"Doctor {slot}:\n~~~\n{shown.reference}" in row["prompt"][-1]["content"]


def test_only_the_responses_that_were_shown_are_shown():
    verdict = verdict_of(CASE, (1, None, 5), order=(2, 0))
    row = instruction(CASE, verdict, RUBRIC)
    assert sorted(row["order"]) == [0, 2]
    assert "of birch" not in row["prompt"][-1]["content"]
    assert scores_by_model(row) == {"ash": 1, "cedar": 5}


@each_row("change, told")
def test_a_verdict_that_does_not_fit_its_case_is_refused(change, told):
    with refused("", told, "'case-1'"):
        instruction(CASE, replace(VERDICT, **change), RUBRIC)


def test_choices_about_a_pair_are_no_instructions():
    rubric = read_rubric("medical_pairwise")
    case = case_of(1, MODELS[:2])
    choices = dict.fromkeys(rubric.output_criteria, "ash")
    verdict = verdict_of(case, None, valid=True, error=None, choices=choices, pair=MODELS[:2])
    with pytest.raises(RecordError, match="one score for each response"):
        instruction(case, verdict, rubric)
