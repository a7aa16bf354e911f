"""Judging by the criteria of a case: a checkpoint and an endpoint."""

import json

import numpy as np
import pytest
import yaml
from doubles.agreement_study import write
from doubles.endpoint import EndpointDouble, answer, good_answer
from programs import ENCODER, error_line, needs_encoder, run_recipe, succeeded
from tables import rows_of

from automedeval.judges.checklist import ChecklistJudge
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.local import LocalChat
from automedeval.records import Case, RecordError
from automedeval.rubrics import read_rubric
from automedeval.rubrics.rubric import PACKAGED

CRITERIA = rows_of(__file__)["criteria"]
RESPONSES = [
    {"model": "a", "text": "Take 400 mg with food."},
    {"model": "b", "text": "It is harmless."},
]


def case(number=0, **changes):
    record = {
        "id": f"c{number}",
        "question": "How do I take ibuprofen?",
        "responses": RESPONSES,
        "criteria": CRITERIA,
    }
    return Case.from_dict(record | changes)


def bodies(endpoint):
    return [request["body"] for request in endpoint.asked]


@pytest.fixture(scope="module")
def chat(tiny_model):
    return LocalChat(str(tiny_model), dtype="float32", max_new_tokens=8)


def test_each_response_has_a_verdict_with_its_score(chat):
    verdicts = list(ChecklistJudge(chat, "checklist", rationale=False)([case()]))
    assert [verdict.order for verdict in verdicts] == [(0,), (1,)]
    for verdict in verdicts:
        checklist = verdict.checklist
        assert verdict.valid
        assert verdict.scores is None
        assert checklist["met"] == [chance > 0.5 for chance in checklist["met_probabilities"]]
        points = [each["points"] for each, met in zip(CRITERIA, checklist["met"]) if met]
        assert (
            checklist["score"]
            == checklist["lowest"]
            == checklist["highest"]
            == pytest.approx(sum(points) / 8)
        )


def test_sharing_the_case_and_the_response_changes_no_probability(chat):
    judge = ChecklistJudge(chat, "checklist", rationale=False, models=["a"])
    (verdict,) = judge([case()])
    assert len(chat._prefix.tokens) > 100  # computed once for all criteria
    prompts = judge.prompt(judge.plan(case())[0])
    alone = [next(chat.answer([prompt]))[1].probabilities[0]["met"] for prompt in prompts]
    assert verdict.checklist["met_probabilities"] == pytest.approx(alone, abs=1e-4)


def test_what_cannot_be_read_stays_unread(chat):
    replies = [
        '{"criteria": {"1": "met"}}',
        "The criterion is met.",
        '{"criteria": {"1": "not met"}}',
    ]
    replies_by_criterion = {
        each["criterion"]: answer(reply) for each, reply in zip(CRITERIA, replies)
    }

    def script(body):
        return next(
            reply
            for text, reply in replies_by_criterion.items()
            if text in body["messages"][-1]["content"]
        )

    with EndpointDouble(script) as endpoint:
        judge = ChecklistJudge(
            OpenAIChat("m", base_url=endpoint.url, concurrency=1), "checklist", models=["a"]
        )
        (verdict,) = judge([case()])
    checklist = verdict.checklist
    assert checklist["met"] == [True, None, False]
    assert checklist["met_probabilities"] == [None] * 3
    assert (checklist["score"], checklist["lowest"], checklist["highest"]) == (5 / 8, 5 / 8, 1.0)
    assert verdict.extra["unread"] == ["no JSON object with the criteria"]


def test_each_prompt_shows_one_criterion_without_its_points(chat):
    judge = ChecklistJudge(chat, "checklist")
    shown = [prompt.messages[-1]["content"] for prompt in judge.prompt(judge.plan(case())[0])]
    assert [[each["criterion"] in text for each in CRITERIA] for text in shown] == np.eye(
        3, dtype=bool
    ).tolist()
    assert all('"criteria": {"1"' in text and "points" not in text for text in shown)
    with pytest.raises(RecordError, match="has no criteria"):
        judge.plan(case(criteria=[]))


def test_verdicts_on_other_criteria_are_not_taken_over(tmp_path):
    with EndpointDouble(good_answer) as endpoint:
        options = ["--judge", "openai:m", "--base_url", endpoint.url, "--rubric", "checklist"]
        options += ["--output", tmp_path / "out"]
        succeeded(
            run_recipe("judge", *options, "--cases", write(tmp_path / "cases.jsonl", [case()]))
        )
        changed = write(tmp_path / "cases.jsonl", [case(criteria=CRITERIA[:2])])
        done = succeeded(run_recipe("judge", *options, "--cases", changed))
    assert "1 of 1 texts changed" in done.stdout
    assert len(bodies(endpoint)) == 2 * 3 + 2 * 2


def test_a_batch_of_several_prompts_is_refused(tmp_path):
    cases = write(tmp_path / "cases.jsonl", [case()])
    options = (
        "--judge",
        "openai:m",
        "--rubric",
        "checklist",
        "--cases",
        cases,
        "--output",
        tmp_path,
    )
    result = run_recipe("judge", *options, "--batch_file", tmp_path / "requests.jsonl")
    assert "--batch_file: checklist@1 takes several prompts" in error_line(result)


@needs_encoder
def test_the_small_judge_says_that_criteria_take_a_language_model(tmp_path):
    options = ("judge", "--cases", write(tmp_path / "cases.jsonl", [case()]), "--encoder", ENCODER)
    refused = run_recipe(
        *options, "--judge", "small", "--rubric", "checklist", "--output", tmp_path / "no"
    )
    said = "--judge MODEL or openai:MODEL with --rubric checklist"
    assert f"--judge small reads no criteria; a language model does, by {said}" in error_line(
        refused
    )
    assert not (tmp_path / "no").exists()
    result = succeeded(run_recipe(*options, "--output", tmp_path / "out"))
    assert (
        f"the criteria of the cases are not read: that takes a language model, {said}"
        in result.stdout
    )
    (line,) = map(json.loads, (tmp_path / "out" / "verdicts.jsonl").read_text().splitlines())
    assert (line["judge"], line["rubric"], len(line["expected_scores"])) == (
        "small",
        "automedeval@1",
        2,
    )


def test_a_checklist_has_no_criteria_of_its_own(tmp_path):
    content = yaml.safe_load((PACKAGED / "checklist.yaml").read_text())
    for change, said in (
        ({"criteria": [{"name": "x", "description": "y"}]}, "criteria: a checklist has none"),
        ({"choices": {"a": "A", "b": "B"}}, "choices.a: unknown key"),
        (
            {"output": {"grammar": "first_line"}},
            "output.grammar: a checklist and criteria with values are answered",
        ),
    ):
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(content | change))
        with pytest.raises(RecordError, match=said):
            read_rubric(tmp_path / "own.yaml")
