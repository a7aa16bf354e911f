"""Typed questions: how answers are read, and models of decisions as a folder, at OpenAI's double, and at a real server."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, level
from doubles.tiny_model import build_tiny_model
from factories import case_of, verdicts_in, write, write_json
from programs import failed, flags, run_command, served, succeeded
from tables import each_row, rows_of
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
from transformers.decision import DecisionConfig

from automedeval.judges.judge import load_judge
from automedeval.models.arguments import ChatArguments
from automedeval.models.base import Chat, Prompt
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.questions import odds_of


def ask(text: str, options: Sequence[str] | None = None) -> Prompt:
    return Prompt([{"role": "user", "content": text}], options=options and tuple(options))


@each_row("options, said, rivals, odds")
def test_an_endpoint_gives_the_odds_of_its_first_token(options, said, rivals, odds):
    with EndpointDouble(level(said, rivals)) as endpoint:
        chat = OpenAIChat("m", base_url=endpoint.url)
        ((_, reply),) = chat.answer([ask("How good?", options)])
        (request,) = endpoint.asked
    assert (request["body"]["logprobs"], request["body"]["top_logprobs"]) == (True, 5)
    told = odds_of(reply, options)
    assert told == (odds and pytest.approx(dict.fromkeys(options, 0.0) | odds))
    assert odds_of(replace(reply, truncated=True), options) is None  # it may have gone on: "4.5"


CASES = [case_of(number, "ab", reference=None) for number in range(2)]
ODDS = rows_of(__file__)["odds of two scores"]

TEMPLATE = (
    "{{ state }}\n{{ question.instructions }}{% for option in question.options %} {{ question.labels[loop.index0] }} is "
    "{{ option }};{% endfor %} it is <|mark|>, is it not?"
)
SHAPES: dict[str, dict] = {name: {} for name in ("llama", "mistral", "phi3", "qwen2")}
SHAPES |= {name: {"head_dim": 8} for name in ("gemma", "gemma2", "qwen3")}
SHAPES |= {"lfm2": {"layer_types": ["conv", "full_attention"]}}  # answers one prompt after another
QUESTIONS = {"How good is {}?": ("well", "so", "ill"), "{}?": ("x", "y")}
BLIND = "the template of its questions shows nothing of a state that is one text"
INSTRUCTIONS = "Answer the question at the end of the input."


def decides(*odds: dict | None) -> EndpointDouble:
    """Return an endpoint that answers as OpenAI's decisions do: with these probabilities, or with a refusal for None."""
    answers = []
    for chances in odds:
        pairs = [{"value": value, "probability": chances[value]} for value in chances or ()]
        kind = "refusal" if chances is None else "choice"
        answers.append({"type": kind, "probabilities": pairs})
    usage = {"input_tokens": 700, "output_tokens": 0}
    endpoint = EndpointDouble({"status": 200, "json": {"answers": answers, "usage": usage}})
    endpoint.path = "/v1/decisions"
    return endpoint


def judge(folder: Path, url: str, *more: str) -> subprocess.CompletedProcess:
    cases = write(folder / "cases.jsonl", CASES)
    options = flags(judge="decision:m", base_url=url, output=folder / "out", max_retries=0)
    return run_command("judge", cases, *options, *more)


def test_decisions_give_scores_with_probabilities(tmp_path):
    with decides(*ODDS) as endpoint:
        succeeded(judge(tmp_path, endpoint.url))
        body = endpoint.asked[0]["body"]
    verdict, *_ = verdicts_in(tmp_path / "out")
    assert [verdict.scores[response] for response in verdict.order] == [5, 1]
    expected = [verdict.expected_scores[response] for response in verdict.order]
    assert expected == pytest.approx([3.9, 2.2])
    assert (verdict.extra["probabilities"], verdict.rationale) == (ODDS, None)
    assert verdict.usage == {"requests": 1, "prompt_tokens": 700, "completion_tokens": 0}
    assert [len(question["choices"]) for question in body["questions"]] == [5, 5]
    assert "What helps" in body["input"][-1]["content"]


@each_row("odds, error")
def test_what_is_no_answer_to_the_questions_is_an_invalid_verdict_with_its_reason(odds, error):
    with decides(*odds) as endpoint:
        judged = load_judge("decision:m", chat={"base_url": endpoint.url, "max_retries": 0})
        for verdict in judged(CASES):
            assert (verdict.valid, verdict.scores) == (False, None)
            assert verdict.error.startswith(error)


def test_what_a_decision_model_cannot_do_is_one_line(tmp_path):
    with decides(*ODDS) as endpoint:
        failed(judge(tmp_path, endpoint.url, "--score_decoding", "free"), "writes no text")
        endpoint.path = "/v1/none"  # neither /v1/decisions nor /v1/systemone
        failed(judge(tmp_path, endpoint.url), "answered 404")


@pytest.mark.parametrize("shows", [False, True])
def test_a_served_model_that_is_not_shown_the_state_is_one_line_and_no_neutral_verdict(
    shows, tmp_path
):
    def decide(body: dict) -> dict:
        odds = ODDS[shows and body["state"] != "0"]
        answers = {name: {"type": "choice", "probabilities": odds} for name in body["questions"]}
        return {"status": 200, "json": {"answers": answers, "usage": {}}}

    with EndpointDouble(decide) as endpoint:
        endpoint.path = "/v1/systemone"
        done = judge(tmp_path, endpoint.url)
    scores = [verdict.scores for verdict in verdicts_in(tmp_path / "out")]
    if shows:
        assert scores == [(1, 1), (1, 1)]
    else:
        failed(done, BLIND)
        assert scores == []


@pytest.mark.slow
def test_a_real_server_of_typed_decisions_gives_the_probabilities_of_the_pipeline(tmp_path):
    folder = build_tiny_model(tmp_path / "m")
    with served(folder, tmp_path / "log") as url:
        chat = ChatArguments(base_url=url).load(f"decision:{folder}")
        prompts, answers = replies(chat, "rest", "a long walk at night")
    assert_told(answers, prompts, folder)


def replies(chat: Chat, *texts: str) -> tuple[list, list]:
    """Ask each of QUESTIONS about each text; return the prompts and their answers."""
    prompts = []
    for wording, options in QUESTIONS.items():
        prompts += [ask(wording.format(text), options) for text in texts]
    answers = sorted(chat.answer(prompts))
    return prompts, [answer for _, answer in answers]


def assert_told(answers: list, prompts: list, folder: Path) -> None:
    """Assert that answers have the probabilities of transformers' pipeline, which asks one question after another."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    decide = pipeline("decision", model=model, tokenizer=tokenizer, device="cpu")
    question = {"type": "choice", "instructions": INSTRUCTIONS}
    for prompt, answered in zip(prompts, answers, strict=True):
        asked = question | {"criteria": dict.fromkeys(prompt.options, "")}
        (message,) = prompt.messages
        told = decide({"state": message["content"], "questions": {"0": asked}})["0"]
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
    prompts, answers = replies(chat, *texts)
    assert_told(answers, prompts, folder)
    ((_, written),) = chat.answer([ask("rest")])  # a candidate writes
    assert (written.probabilities, written.truncated) == (None, True)
    chat.window = answers[0].usage["prompt_tokens"]
    _, (fitting, longer, *_) = replies(chat, *texts)
    assert (fitting.overlong, longer.overlong) == (False, True)


def test_a_judge_with_a_decision_json_answers_one_question_for_each_score(tmp_path):
    folder = build_tiny_model(tmp_path / "m")
    DecisionConfig({"choice": ["A", "B", "C", "D", "E"]}).save_pretrained(folder)
    cases = write(tmp_path / "cases.jsonl", CASES)
    options = flags(judge=folder, dtype="float32", device="cpu", output=tmp_path / "out")
    succeeded(run_command("judge", cases, *options))
    verdict, *_ = verdicts_in(tmp_path / "out")
    assert (verdict.valid, verdict.rationale, verdict.raw) == (True, None, "")
    assert [set(odds) for odds in verdict.extra["probabilities"]] == [set("12345")] * 2
    options = (*options[:-1], tmp_path / "other")
    for settings, said in rows_of(__file__)["not for this model"]:
        write_json(folder / "decision.json", settings)
        failed(run_command("judge", cases, *options), said.replace("BLIND", BLIND))
