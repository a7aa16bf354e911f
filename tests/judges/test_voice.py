"""The voice of a language model beside the small judge: what it adds, and what it does not say."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer, error, level
from doubles.tiny_model import build_tiny_model
from factories import read_json
from programs import ENCODER, SAMPLE, error_line, flags, needs_encoder, run_command, succeeded
from transformers import AutoModelForCausalLM, AutoTokenizer

from automedeval.cli.judge import folder_name
from automedeval.judges.small import PACKAGED

pytestmark = needs_encoder
KEPT = read_json(PACKAGED / "judge.json")["voice"]
LOW, HIGH = 1, 5  # of the default rubric


def cases(count: int) -> list[dict]:
    return [case | {"reference": None} for case in read(SAMPLE / "test_cases.jsonl")[:count]]


def judged(output: Path, records: list[dict], judge: str = "small", *more: object) -> tuple:
    file = write(output.with_suffix(".jsonl"), records)
    options = flags(judge=judge, output=output, encoder=ENCODER, device="cpu", max_retries=0)
    done = run_command("judge", file, *options, *more)
    verdicts = read(output / "verdicts.jsonl") if (output / "verdicts.jsonl").exists() else []
    return done, {each["case_id"]: each for each in verdicts}


def by_endpoint(output: Path, records: list[dict], endpoint: EndpointDouble) -> tuple:
    return judged(output, records, "small+openai:m", "--base_url", endpoint.url)


near = partial(pytest.approx, abs=1e-3)


def odds_of(score: float) -> float:
    return math.log((score - LOW) / (HIGH - score))


def yes(chance: float) -> dict:
    return level("Yes", {"Yes": chance, "No": 1 - chance})


def test_a_checkpoint_adds_its_log_odds_as_plain_transformers_computes_them(tmp_path):
    folder, records = build_tiny_model(tmp_path / "tiny"), cases(3)
    _, small = judged(tmp_path / "small", records)
    done, both = judged(tmp_path / "both", records, f"small+{folder}", "--dtype", "float32")
    succeeded(done)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for case in records:
        alone, beside = small[case["id"]], both[case["id"]]
        assert (beside["judge"], "voice" in alone) == ("small+tiny", False)
        assert beside["settings"] != alone["settings"]
        for place, response in enumerate(case["responses"]):
            asked = f'does the text above correctly answer the question "{case["question"]}"? Answer yes or no.'
            message = {"role": "user", "content": f"{response['text']}\n\nQuestion: {asked}"}
            prompt = tokenizer.apply_chat_template(
                [message], tokenize=False, add_generation_prompt=True
            )
            start = tokenizer(prompt, add_special_tokens=False).input_ids
            totals = []  # the tiny vocabulary spells each option by several tokens
            for own in tokenizer(["Yes", "No"], add_special_tokens=False).input_ids:
                with torch.no_grad():
                    logits = model(torch.tensor([start + own])).logits[0, len(start) - 1 : -1]
                totals.append(float(logits.log_softmax(-1)[range(len(own)), own].sum()))
            voice = float(np.clip(totals[0] - totals[1], -6, 6))
            assert beside["voice"][response["model"]] == near(voice)
            gained = odds_of(beside["expected_scores"][place]) - odds_of(
                alone["expected_scores"][place]
            )
            assert gained == near(KEPT["weight"] * (voice - KEPT["mean"]))


def test_a_response_of_which_the_voice_says_nothing_has_no_score_and_a_reason(tmp_path):
    (case,) = cases(1)
    first, *rest = (each["text"] for each in case["responses"])

    def script(body):
        said = body["messages"][0]["content"]
        return answer("I cannot say.") if said.startswith(first) else yes(0.9)

    with EndpointDouble(script) as endpoint:
        done, verdicts = by_endpoint(tmp_path / "v", [case], endpoint)
        assert len(endpoint.asked) == 1 + len(rest)
    succeeded(done)
    verdict = verdicts[case["id"]]
    told = round(math.log(9), 4)
    unread, *voice = verdict["voice"].values()
    assert unread == "'I cannot say.' is not one of Yes, No"
    assert voice == [told] * len(rest)
    assert [score is None for score in verdict["expected_scores"]] == [True, *[False] * len(rest)]


def test_a_server_that_tells_no_probabilities_is_invalid_and_says_so(tmp_path):
    with EndpointDouble(answer("Yes")) as endpoint:
        done, verdicts = by_endpoint(tmp_path / "v", cases(1), endpoint)
    (verdict,) = verdicts.values()
    said = "no response can be read (the model tells no probabilities)"
    assert (verdict["valid"], verdict["error"], verdict["expected_scores"]) == (False, said, None)
    assert "no verdict is valid" in error_line(done)


def test_a_response_longer_than_the_window_has_no_score_and_the_others_keep_theirs(tmp_path):
    folder, records = build_tiny_model(tmp_path / "tiny", window=1024), cases(3)
    _, whole = judged(tmp_path / "whole", records, f"small+{folder}", "--dtype", "float32")
    records[0]["responses"][0]["text"] = "Drink a glass of water and rest. " * 400
    for response in records[1]["responses"]:
        response["text"] += " Rest." * 2000
    done, verdicts = judged(tmp_path / "v", records, f"small+{folder}", "--dtype", "float32")
    succeeded(done)
    first, second, third = (verdicts[each["id"]] for each in records)
    before, _, same = (whole[each["id"]]["expected_scores"] for each in records)
    said, name = "tokens longer than the context window", records[0]["responses"][0]["model"]
    assert first["expected_scores"] == [None, *map(near, before[1:])]
    assert said in first["voice"][name]
    assert f"{name} has no score" in first["rationale"]
    assert said in second["error"]
    assert third["expected_scores"] == [*map(near, same)]


@pytest.mark.parametrize(
    ("judge", "name"),
    [
        ("small+openai:org/m", "small+m"),
        ("small+models/x", "small+x"),
        ("small", "small"),
        ("small:f/x", "small-x"),
    ],
)
def test_the_name_of_a_folder_says_the_model(judge, name):
    assert folder_name(judge) == name


def test_what_an_endpoint_does_not_answer_is_asked_again_and_nothing_else(tmp_path):
    records, broken = cases(2), [True]

    def script(body):
        wrong = records[0]["responses"][0]["text"]
        failed = broken[0] and body["messages"][0]["content"].startswith(wrong)
        return error(500) if failed else yes(0.8)

    with EndpointDouble(script) as endpoint:
        done, verdicts = by_endpoint(tmp_path / "v", records, endpoint)
        assert "1 not judged" in error_line(done)
        assert list(verdicts) == [records[1]["id"]]
        broken[0], before = False, len(endpoint.asked)
        done, verdicts = by_endpoint(tmp_path / "v", records, endpoint)
        succeeded(done)
        assert len(endpoint.asked) == before + len(records[0]["responses"])
    assert len(verdicts) == 2
