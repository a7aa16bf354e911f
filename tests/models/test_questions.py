"""Typed questions: how answers are read, and models of decisions as a folder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, level
from doubles.tiny_model import build_tiny_model
from programs import error_line, flags, run_command, succeeded
from tables import rows_of
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
from transformers.decision import DecisionConfig

from automedeval.models.arguments import ChatArguments
from automedeval.models.base import Prompt
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.questions import odds_of


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
    prompts = [
        Prompt([{"role": "user", "content": wording.format(text)}], options=options)
        for wording, options in QUESTIONS.items()
        for text in texts
    ]
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
