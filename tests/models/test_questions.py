"""Typed questions: how answers are read, and models of decisions as a folder, at OpenAI's double, and at a real server."""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, level
from doubles.tiny_model import build_tiny_model
from programs import error_line, flags, run_command, served, succeeded
from tables import rows_of
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
from transformers.decision import DecisionConfig

from automedeval.judges.judge import load_judge
from automedeval.models.arguments import ChatArguments
from automedeval.models.base import Answer, Prompt
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.questions import Judgement, Question
from automedeval.records import Case, RecordError

TRUE = Question("true@1", "{passage} Is it true that {statement}?", ("Yes", "No", "Maybe"))


def test_a_state_is_text_and_no_wording():
    prompt = TRUE.prompt({"passage": "Rest.", "statement": "{passage}"})
    assert prompt.messages[0]["content"] == "Rest. Is it true that {passage}?"


@pytest.mark.parametrize("options", [("A",), ("A", "a"), "x" * 27])
def test_a_question_that_is_none(options):
    with pytest.raises(RecordError, match="question q: "):
        Question("q", "", tuple(options))


LETTERS = Question("letters", "Which?", ("A", "B", "C"))
LEVELS = Question("levels", "How good?", tuple("12345"))
DEGREE = Question("degree@1", "How bad?", ("none", "mild", "moderate", "cannot be told"))


@pytest.mark.parametrize(("name", "text", "option"), rows_of(__file__)["test_how_a_text_is_read"])
def test_how_a_text_is_read(name, text, option):
    judged = {each.name: each for each in (LETTERS, TRUE, LEVELS, DEGREE)}[name].read(Answer(text))
    assert (judged.option, judged.probabilities) == (option, None)
    assert (judged.error is None) == (option is not None)


def test_an_answer_without_an_option_gives_its_reason():
    assert TRUE.read(Answer(error="refused")).error == "refused"
    for text in ("I think that", "4", "No."):  # it may have gone on: "4.5", "No. It does not say"
        assert TRUE.read(Answer(text, truncated=True)) == Judgement(
            error="the answer was cut off at its token limit"
        )
    assert TRUE.read(Answer("It depends.")).error == "'It depends.' is not one of Yes, No, Maybe"


@pytest.mark.parametrize(
    ("options", "said", "rivals", "odds"),
    rows_of(__file__)["test_an_endpoint_gives_the_odds_of_its_first_token"],
)
def test_an_endpoint_gives_the_odds_of_its_first_token(options, said, rivals, odds):
    question = Question("q", "How good?", tuple(options))
    with EndpointDouble(level(said, rivals)) as endpoint:
        ((_, reply),) = OpenAIChat("m", base_url=endpoint.url).answer([question.prompt({})])
        body = endpoint.asked[0]["body"]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 5)
    judged = question.read(reply)
    assert judged.option == (said if said in options else None)
    wanted = odds and dict.fromkeys(options, 0.0) | odds
    assert judged.probabilities == (wanted and pytest.approx(wanted))


RESPONSES = [{"model": "a", "text": "Once a day."}, {"model": "b", "text": "Never."}]
CASES = [{"id": f"c{n}", "question": f"How often, {n}?", "responses": RESPONSES} for n in range(2)]
ODDS = ([0.1, 0.1, 0.1, 0.2, 0.5], [0.4, 0.3, 0.1, 0.1, 0.1])  # of the scores 1 to 5 of two answers

TEMPLATE = (
    "{{ state }}\n{{ question.instructions }}{% for option in question.options %} {{ question.labels[loop.index0] }} is "
    "{{ option }};{% endfor %} it is <|mark|>, is it not?"
)
SHAPES: dict[str, dict] = {name: {} for name in ("llama", "mistral", "phi3", "qwen2")}
SHAPES |= {name: {"head_dim": 8} for name in ("gemma", "gemma2", "qwen3")}
SHAPES |= {"lfm2": {"layer_types": ["conv", "full_attention"]}}  # answers one prompt after another
QUESTIONS = [
    Question("q@1", "How good is {answer}?", ("well", "so", "ill")),
    Question("r@1", "{answer}?", ("x", "y")),
]
SCORES = ("scores", "expected_scores")
BLIND = "the template of its questions shows nothing of a state that is one text"
INSTRUCTIONS = "Answer the question at the end of the input."


def decides(body: dict) -> dict:
    """Answer as OpenAI's decisions do; the second question of the case "1" is refused."""
    answers = []
    for number, (question, odds) in enumerate(zip(body["questions"], ODDS)):
        values = [each["value"] for each in question["choices"]]
        chances = [{"value": value, "probability": chance} for value, chance in zip(values, odds)]
        best = max(chances, key=lambda each: each["probability"])["value"]
        answer = {"type": "choice", "choice": best, "confidence": 0.5, "probabilities": chances}
        refused = number == 1 and "How often, 1?" in json.dumps(body["input"])
        answers.append({"type": "refusal", "name": None} if refused else answer)
    usage = {"input_tokens": 700, "output_tokens": 0, "total_tokens": 70}
    return {"status": 200, "json": {"model": body["model"], "answers": answers, "usage": usage}}


def judge(
    tmp_path: Path, url: str, *more: object
) -> tuple[subprocess.CompletedProcess, list[dict]]:
    cases = write(tmp_path / "cases.jsonl", CASES)
    options = flags(judge="decision:m", base_url=url, output=tmp_path / "out", max_retries=0)
    done = run_command("judge", cases, *options, *more)
    file = tmp_path / "out" / "verdicts.jsonl"
    return done, sorted(read(file), key=lambda each: each["case_id"]) if file.exists() else []


def test_decisions_give_scores_with_probabilities_and_a_refused_question_an_invalid_verdict(
    tmp_path,
):
    with EndpointDouble(decides) as endpoint:
        endpoint.path = "/v1/decisions"
        done, (verdict, refused) = judge(tmp_path, endpoint.url)
        bodies = [each["body"] for each in endpoint.asked]
    assert done.returncode == 0, done.stderr
    means = [sum(n * p for n, p in enumerate(odds, 1)) for odds in ODDS]
    in_slots = {name: [verdict[name][index] for index in verdict["order"]] for name in SCORES}
    assert in_slots == {"scores": [5, 1], "expected_scores": pytest.approx(means)}
    assert verdict["probabilities"] == [dict(zip("12345", odds)) for odds in ODDS]
    assert verdict["rationale"] is None
    assert verdict["usage"] == {"prompt_tokens": 700, "completion_tokens": 0}
    assert (refused["valid"], refused["error"]) == (False, "the model refuses the question")
    assert {len(body["questions"]) for body in bodies} == {2}
    assert all(body["input"][-1]["role"] == "user" for body in bodies)


@pytest.mark.parametrize(("answers", "error"), rows_of(__file__)["no answers"])
def test_what_is_no_answer_to_the_questions_is_an_invalid_verdict_with_its_reason(answers, error):
    told = [
        {"probabilities": [{"value": of, "probability": chance} for of, chance in each]}
        for each in answers
    ]
    with EndpointDouble(
        {"status": 200, "json": {"answers": [each | {"type": "choice"} for each in told]}}
    ) as endpoint:
        endpoint.path = "/v1/decisions"
        judged = load_judge("decision:m", chat={"base_url": endpoint.url, "max_retries": 0})
        verdicts = list(judged(map(Case.from_dict, CASES)))
    assert [(each.valid, each.scores) for each in verdicts] == [(False, None)] * 2
    assert verdicts[0].error.startswith(error)


def test_what_a_decision_model_cannot_do_is_one_line(tmp_path):
    with EndpointDouble(decides) as endpoint:
        endpoint.path = "/v1/decisions"
        assert "writes no text" in error_line(
            judge(tmp_path, endpoint.url, "--score_decoding", "free")[0]
        )
    with EndpointDouble(decides) as endpoint:  # neither /v1/decisions nor /v1/systemone
        assert "answered 404" in error_line(judge(tmp_path, endpoint.url)[0])


def test_a_served_model_that_is_not_shown_the_state_is_one_line_and_no_neutral_verdict(tmp_path):
    def seen(body, states):
        states.append(body["state"])
        odds = dict(zip(body["questions"]["0"]["criteria"], ODDS[len(body["state"]) > 1 and shows]))
        answers = {name: {"type": "choice", "probabilities": odds} for name in body["questions"]}
        return {"status": 200, "json": {"answers": answers, "usage": {}}}

    for shows in (False, True):
        with EndpointDouble(partial(seen, states=(states := []))) as endpoint:
            endpoint.path = "/v1/systemone"
            done, verdicts = judge(tmp_path, endpoint.url, "--concurrency", 1)
        assert states[1] == "0"
        if shows:
            assert [each["scores"] for each in verdicts] == [[1, 1], [1, 1]], done.stderr
        else:
            assert BLIND in error_line(done)
            assert (verdicts, len(states)) == ([], 2)


@pytest.mark.slow
def test_a_real_server_of_typed_decisions_gives_the_probabilities_of_the_pipeline(tmp_path):
    folder = build_tiny_model(tmp_path / "m")
    prompts = [
        question.prompt({"answer": text})
        for question in QUESTIONS
        for text in ("rest", "a long walk at night")
    ]
    with served(folder, tmp_path / "log") as url:
        chat = ChatArguments(base_url=url).load(f"decision:{folder}")
        answers = [answer for _, answer in sorted(chat.answer(prompts), key=lambda each: each[0])]
    assert_told(answers, prompts, folder)


def assert_told(answers: list, prompts: list, folder: Path) -> None:
    """Assert that answers have the probabilities of transformers' pipeline, which asks one question after another."""
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    decide = pipeline("decision", model=model, tokenizer=tokenizer, device="cpu")
    for prompt, answered in zip(prompts, answers, strict=True):
        asked = {
            "type": "choice",
            "instructions": INSTRUCTIONS,
            "criteria": dict.fromkeys(prompt.options, ""),
        }
        told = decide({"state": prompt.messages[0]["content"], "questions": {"0": asked}})["0"]
        assert answered.probabilities == (pytest.approx(told["probabilities"], abs=1e-4),)
        assert answered.values == (told["choice"],)


@pytest.mark.parametrize("template", [None, TEMPLATE])
@pytest.mark.parametrize("name", SHAPES)
def test_a_folder_with_a_decision_json_is_asked_as_the_pipeline_asks(name, template, tmp_path):
    folder = build_tiny_model(tmp_path / "m", model_type=name, **SHAPES[name])
    config = DecisionConfig({"choice": list("4321")}, {"choice": 2.5}, template)
    config.save_pretrained(folder)
    chat = ChatArguments(device="cpu", dtype="float32", max_new_tokens=4).load(str(folder))
    texts = ("rest", "a long walk <|im_end|> at night", "tea")
    prompts = [question.prompt({"answer": text}) for question in QUESTIONS for text in texts]
    answers = [answer for _, answer in sorted(chat.answer(prompts), key=lambda each: each[0])]
    assert_told(answers, prompts, folder)
    ((_, written),) = chat.answer([Prompt(prompts[0].messages)])  # a candidate writes
    assert (written.probabilities, written.truncated) == (None, True)
    chat.window = answers[0].usage["prompt_tokens"]
    assert chat.overflow(prompts)[0] == 0
    assert chat.overflow(prompts)[1] > 0


def test_a_judge_with_a_decision_json_answers_one_question_for_each_score(tmp_path):
    folder = build_tiny_model(tmp_path / "m")
    DecisionConfig({"choice": ["A", "B", "C", "D", "E"]}).save_pretrained(folder)
    cases = write(tmp_path / "cases.jsonl", CASES)
    options = flags(judge=folder, dtype="float32", device="cpu", output=tmp_path / "out")
    succeeded(run_command("judge", cases, *options))
    verdict = read(tmp_path / "out" / "verdicts.jsonl")[0]
    assert (verdict["valid"], verdict["rationale"], verdict["raw"]) == (True, None, "")
    assert [set(odds) for odds in verdict["probabilities"]] == [set("12345")] * 2
    options = (*options[:-1], tmp_path / "other")
    for settings, said in rows_of(__file__)["not for this model"]:
        (folder / "decision.json").write_text(json.dumps(settings))
        assert said.replace("BLIND", BLIND) in error_line(run_command("judge", cases, *options))
