"""Typed questions: how answers are read, and models of decisions as a folder, at OpenAI's double, and at a real server."""

import json
import subprocess
from dataclasses import replace
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
from automedeval.models.base import Chat, Prompt
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.questions import odds_of
from automedeval.records import Case


@pytest.mark.parametrize(
    ("options", "said", "rivals", "odds"),
    rows_of(__file__)["test_an_endpoint_gives_the_odds_of_its_first_token"],
)
def test_an_endpoint_gives_the_odds_of_its_first_token(options, said, rivals, odds):
    asked = Prompt([{"role": "user", "content": "How good?"}], options=tuple(options))
    with EndpointDouble(level(said, rivals)) as endpoint:
        ((_, reply),) = OpenAIChat("m", base_url=endpoint.url).answer([asked])
        body = endpoint.asked[0]["body"]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 5)
    wanted = odds and dict.fromkeys(options, 0.0) | odds
    told = odds_of(reply, options)
    assert told == (wanted and pytest.approx(wanted))
    assert odds_of(replace(reply, truncated=True), options) is None  # it may have gone on: "4.5"


RESPONSES = [{"model": "a", "text": "Once a day."}, {"model": "b", "text": "Never."}]
CASES = [{"id": f"c{n}", "question": f"How often, {n}?", "responses": RESPONSES} for n in range(2)]
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
    verdict = read(tmp_path / "out" / "verdicts.jsonl")[0]
    in_slots = {
        name: [verdict[name][slot] for slot in verdict["order"]]
        for name in ("scores", "expected_scores")
    }
    assert in_slots == {"scores": [5, 1], "expected_scores": pytest.approx([3.9, 2.2])}
    assert (verdict["probabilities"], verdict["rationale"]) == (ODDS, None)
    assert verdict["usage"] == {"prompt_tokens": 700, "completion_tokens": 0}
    assert [len(question["choices"]) for question in body["questions"]] == [5, 5]
    assert "How often" in body["input"][-1]["content"]


@pytest.mark.parametrize(("odds", "error"), rows_of(__file__)["no answers"])
def test_what_is_no_answer_to_the_questions_is_an_invalid_verdict_with_its_reason(odds, error):
    with decides(*odds) as endpoint:
        judged = load_judge("decision:m", chat={"base_url": endpoint.url, "max_retries": 0})
        verdicts = list(judged(map(Case.from_dict, CASES)))
    assert {(verdict.valid, verdict.scores) for verdict in verdicts} == {(False, None)}
    assert verdicts[0].error.startswith(error)


def test_what_a_decision_model_cannot_do_is_one_line(tmp_path):
    with decides(*ODDS) as endpoint:
        free = judge(tmp_path, endpoint.url, "--score_decoding", "free")
        assert "writes no text" in error_line(free)
        endpoint.path = "/v1/none"  # neither /v1/decisions nor /v1/systemone
        assert "answered 404" in error_line(judge(tmp_path, endpoint.url))


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
    scores = [verdict["scores"] for verdict in read(tmp_path / "out" / "verdicts.jsonl")]
    if shows:
        assert scores == [[1, 1], [1, 1]]
    else:
        assert BLIND in error_line(done)
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
    prompts = [
        Prompt([{"role": "user", "content": wording.format(text)}], options=options)
        for wording, options in QUESTIONS.items()
        for text in texts
    ]
    answered = dict(chat.answer(prompts))
    return prompts, [answered[number] for number in range(len(prompts))]


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
    prompts, answers = replies(chat, *texts)
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
