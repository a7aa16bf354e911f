"""Judging by the criteria of a case: a checkpoint and an endpoint."""

import pytest
from doubles.agreement_study import write
from doubles.endpoint import EndpointDouble, answer, good_answer, level
from factories import read_yaml, verdicts_in, write_yaml
from programs import ENCODER, flags, module_fixture, needs_encoder, run_recipe, succeeded, told
from tables import each_row, rows_of

from automedeval.judges.checklist import ChecklistJudge
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.local import LocalChat
from automedeval.records import Case, RecordError
from automedeval.rubrics import read_rubric
from automedeval.rubrics.rubric import PACKAGED

RECORD = rows_of(__file__)["case"]
CRITERIA = RECORD["criteria"]


def case(**changes):
    return Case.from_dict(RECORD | changes)


@module_fixture
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
        ends = [checklist[name] for name in ("score", "lowest", "highest")]
        assert ends == [pytest.approx(sum(points) / 8)] * 3


def test_sharing_the_case_and_the_response_changes_no_probability(chat):
    judge = ChecklistJudge(chat, "checklist", rationale=False)
    (verdict,) = judge([case(responses=RECORD["responses"][:1])])
    assert len(chat._prefix.tokens) > 100  # computed once for all criteria
    prompts = judge.prompt(judge.plan(case())[0])
    alone = [next(chat.answer([prompt]))[1].probabilities[0]["met"] for prompt in prompts]
    assert verdict.checklist["met_probabilities"] == pytest.approx(alone, abs=1e-4)


def test_what_cannot_be_read_stays_unread():
    not_said = '{"rationale": "Not said.\\nNot said. Not said.", "criteria": {"1": "not met"}}'
    is_met = answer(not_said.replace("not met", "met"))
    odds = level("met", {"met": 0.6, "not": 0.2})
    # One criterion after another; what was read is asked once more.
    said = iter([is_met, odds, answer("It is met."), answer(not_said), odds])
    with EndpointDouble(lambda body: next(said)) as endpoint:
        chat = OpenAIChat("m", base_url=endpoint.url, concurrency=1)
        judge = ChecklistJudge(chat, "checklist", score_decoding="constrained")
        (verdict,) = judge([case(responses=RECORD["responses"][:1])])
    assert verdict.checklist == {
        "met": [True, None, False],
        "met_probabilities": [0.75, None, 0.75],
        "score": None,
        "lowest": 0.625,
        "highest": 1.0,
    }
    assert verdict.extra["unread"] == ["no JSON object with the criteria"]
    assert verdict.usage["requests"] == 5
    assert verdict.rationale == "Not said. Not said. Not said.\nNot said. Not said. Not said."


def test_each_prompt_shows_one_criterion_without_its_points(chat):
    judge = ChecklistJudge(chat, "checklist")
    prompts = judge.prompt(judge.plan(case())[0])
    for prompt, own in zip(prompts, CRITERIA, strict=True):
        text = prompt.messages[-1]["content"]
        assert [each for each in CRITERIA if each["criterion"] in text] == [own]
        assert '"criteria": {"1"' in text
        assert "points" not in text
    with pytest.raises(RecordError, match="has no criteria"):
        judge.plan(case(criteria=[]))


def test_verdicts_on_other_criteria_are_not_taken_over(tmp_path):
    with EndpointDouble(good_answer) as endpoint:
        judge = flags(judge="openai:m", base_url=endpoint.url, rubric="checklist")
        for criteria in (CRITERIA, CRITERIA[:2]):
            cases = write(tmp_path / "cases.jsonl", [case(criteria=criteria)])
            files = flags(cases=cases, output=tmp_path / "out")
            done = succeeded(run_recipe("judge", *judge, *files))
    assert "1 of 1 cases changed in texts or answers" in done.stdout
    assert len(endpoint.asked) == 2 * 3 + 2 * 2


@needs_encoder
def test_the_small_judge_says_that_criteria_take_a_language_model(tmp_path):
    """It judges by its own rubric; asked for a checklist it is refused, see tests/audit/test_criteria.py."""
    cases = write(tmp_path / "cases.jsonl", [case()])
    files = flags(cases=cases, encoder=ENCODER, output=tmp_path / "out")
    said = "the criteria of the cases are not read: that takes a language model, "
    told(
        run_recipe("judge", *files), f"{said}--judge MODEL or openai:MODEL with --rubric checklist"
    )
    (verdict,) = verdicts_in(tmp_path / "out")
    assert verdict.author == ("small", "automedeval@1")
    assert len(verdict.expected_scores) == 2


@each_row("change, said")
def test_a_checklist_has_no_criteria_of_its_own(tmp_path, change, said):
    content = read_yaml(PACKAGED / "checklist.yaml")
    write_yaml(tmp_path / "own.yaml", content | change)
    with pytest.raises(RecordError, match=said):
        read_rubric(tmp_path / "own.yaml")
