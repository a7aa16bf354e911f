"""Verdicts between the slots of a prompt and the responses of a case."""

from dataclasses import replace

from doubles.introspection_study import MODELS, case_of, rationale_of, verdict_of

from automedeval.rubrics.grammar import ParsedAnswer
from automedeval.rubrics.rationale import split_steps
from automedeval.rubrics.slots import as_recorded, reordered, seen_from


def test_a_verdict_is_seen_in_other_slots():
    verdict = verdict_of(case_of(0), (1, 3, 5), order=(2, 0, 1))
    by_criterion = {"tact": [1, 3, 5], "truth": [2, None, 4]}
    seen = seen_from(replace(verdict, criterion_scores=by_criterion), (1, 2, 0))
    assert seen.scores == (3, 5, 1)
    assert seen.criterion_scores == {"tact": (3, 5, 1), "truth": (None, 4, 2)}
    steps = split_steps(seen.rationale)
    assert [steps[slot].split()[0] for slot in (1, 2, 3)] == [MODELS[index] for index in (1, 2, 0)]


def test_an_answer_is_recorded_in_the_order_of_the_case():
    answer = ParsedAnswer(True, rationale="Doctor 1 is right.", scores=(5, 2))
    recorded = as_recorded(answer, (2, 0), MODELS)
    assert recorded == {"rationale": "Doctor 1 is right.", "scores": [2, None, 5], "choices": None}


def test_a_reordered_answer_comes_back():
    answer = ParsedAnswer(True, None, rationale_of(MODELS, (2, 0, 1)), (5, 1, 3))
    there = reordered(answer, (2, 0, 1), (0, 1, 2))
    assert there.scores == (1, 3, 5)
    assert there.rationale == rationale_of(MODELS, (0, 1, 2))
    assert reordered(there, (0, 1, 2), (2, 0, 1)) == answer
