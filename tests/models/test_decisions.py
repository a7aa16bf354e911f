"""A model of typed decisions: OpenAI's requests to a double, `/v1/systemone` to a real `transformers serve`."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble
from doubles.tiny_model import build_tiny_model
from programs import error_line, free_port, run_command
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from automedeval.models.arguments import ChatArguments
from automedeval.models.questions import Question

RESPONSES = [{"model": "a", "text": "Once a day."}, {"model": "b", "text": "Never."}]
CASES = [{"id": f"c{n}", "question": f"How often, {n}?", "responses": RESPONSES} for n in range(2)]
ODDS = ([0.1, 0.1, 0.1, 0.2, 0.5], [0.4, 0.3, 0.1, 0.1, 0.1])  # of the scores 1 to 5 of two answers


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


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
    usage = {"input_tokens": 70, "output_tokens": 0, "total_tokens": 70}
    return {"status": 200, "json": {"model": body["model"], "answers": answers, "usage": usage}}


def judge(tmp_path: Path, url: str, *more: object) -> tuple[subprocess.CompletedProcess, list[dict]]:
    cases = write(tmp_path / "cases.jsonl", CASES)
    options = ("--judge", "decision:m", "--base_url", url, "--output", tmp_path / "out", "--max_retries", 0)
    done = run_command("judge", cases, *options, *more)
    file = tmp_path / "out" / "verdicts.jsonl"
    return done, sorted(read(file), key=lambda each: each["case_id"]) if file.exists() else []


def test_decisions_give_scores_with_probabilities_and_a_refused_question_an_invalid_verdict(tmp_path: Path) -> None:
    with EndpointDouble(decides) as endpoint:
        endpoint.path = "/v1/decisions"
        done, (verdict, refused) = judge(tmp_path, endpoint.url)
        bodies = [each["body"] for each in endpoint.asked]
    assert done.returncode == 0, done.stderr
    by_slot = dict(zip(verdict["order"], (5, 1)))
    means = dict(zip(verdict["order"], (sum(n * p for n, p in enumerate(odds, 1)) for odds in ODDS)))
    assert verdict["scores"] == [by_slot[0], by_slot[1]]
    assert verdict["expected_scores"] == pytest.approx([means[0], means[1]])
    assert verdict["probabilities"] == [dict(zip("12345", odds)) for odds in ODDS]
    assert verdict["rationale"] is None
    assert verdict["usage"] == {"prompt_tokens": 70, "completion_tokens": 0}
    assert (refused["valid"], refused["error"]) == (False, "the model refuses the question")
    assert {len(body["questions"]) for body in bodies} == {2}
    assert all(body["input"][-1]["role"] == "user" for body in bodies)


def test_what_a_decision_model_cannot_do_is_one_line(tmp_path: Path) -> None:
    with EndpointDouble(decides) as endpoint:
        endpoint.path = "/v1/decisions"
        assert "writes no text" in error_line(judge(tmp_path, endpoint.url, "--score_decoding", "free")[0])
    with EndpointDouble(decides) as endpoint:  # neither /v1/decisions nor /v1/systemone
        assert "answered 404" in error_line(judge(tmp_path, endpoint.url)[0])


@contextmanager
def served(model: Path, log: Path) -> Iterator[str]:
    """Run `transformers serve` with one model; give the address of its API."""
    program, port = Path(sys.executable).with_name("transformers"), free_port()
    command = map(str, [program, "serve", model, "--port", port, "--device", "cpu"])
    with log.open("wb") as file, subprocess.Popen(list(command), stdout=file, stderr=file) as server:
        try:
            until = time.monotonic() + 240
            while time.monotonic() < until and server.poll() is None:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                    break
                except OSError:
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


@pytest.mark.slow
def test_a_real_server_of_typed_decisions_gives_the_probabilities_of_the_pipeline(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path / "m")
    questions = [Question("q@1", "How good is {answer}?", tuple("12345")), Question("r@1", "{answer}?", ("x", "y"))]
    prompts = [question.prompt({"answer": text}) for question in questions for text in ("rest", "a long walk at night")]
    with served(folder, tmp_path / "log") as url:
        chat = ChatArguments(base_url=url).load(f"decision:{folder}")
        answers = [answer for _, answer in sorted(chat.answer(prompts), key=lambda each: each[0])]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    decide = pipeline("decision", model=model, tokenizer=tokenizer, device="cpu")
    for prompt, answer in zip(prompts, answers):
        criteria = dict.fromkeys(prompt.options, "")
        asked = {"type": "choice", "instructions": "Answer the question at the end of the input.", "criteria": criteria}
        told = decide({"state": prompt.messages[0]["content"], "questions": {"0": asked}})["0"]
        assert answer.probabilities == (pytest.approx(told["probabilities"], abs=1e-4),)
        assert answer.values == (told["choice"],)
