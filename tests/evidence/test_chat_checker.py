"""The chat checker by its command: an endpoint, with and without log-probabilities, and a checkpoint."""

import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer, error
from doubles.tiny_model import build_tiny_model
from programs import APPEND, ENCODER, error_line, needs_encoder, run_command, stopped
from tables import rows_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from automedeval.evidence.chat_checker import BESIDE_REFERENCE, LABEL

pytestmark = needs_encoder

REFERENCE = "Take one tablet of 5 mg once a week. Never take it ~~~ with warfarin."
ANSWER = "Take it once a week. It goes well with warfarin. Is it safe? Drink tea at noon."
ROWS = rows_of(__file__)
SAID = ROWS["said"]


def cases(count: int = 1, text: str = ANSWER, reference: str = REFERENCE) -> list[dict]:
    responses = [{"model": "a", "text": text}, {"model": "b", "text": "Take it once a week."}]
    case = {"reference": reference, "responses": responses}
    return [case | {"id": f"c{n}", "question": f"How, {n}?"} for n in range(count)]


def statement_in(body: dict) -> str:
    text = body["messages"][-1]["content"]
    return re.search(r'is it true that: "(.*)"\? Answer yes, no, or maybe\.\Z', text, re.S)[1]


def says(body: dict) -> dict:
    return answer(SAID[statement_in(body)])


def tells(no: float, yes: float, maybe: float) -> Callable[[dict], dict]:
    """Return a server that answers "No" with log-probabilities."""

    def said(_: dict) -> dict:
        rivals = {" No": no * 2 / 3, "no": no / 3, "Yes": yes, "May": maybe}
        told = [{"token": token, "logprob": math.log(chance)} for token, chance in rivals.items()]
        return answer(" No", logprobs={"content": [told[0] | {"top_logprobs": told}]})

    return said


def check(
    records: list[dict], output: Path, *more: object
) -> tuple[subprocess.CompletedProcess, list[dict]]:
    file = write(output.with_suffix(".jsonl"), records)
    done = run_command(
        "check", file, "--output", output, "--encoder", ENCODER, "--max_retries", 0, *more
    )
    return done, read(output / "claims.jsonl") if (output / "claims.jsonl").exists() else []


def test_an_endpoint_gives_labels_with_passages_and_what_it_does_not_say_is_unread(
    tmp_path,
):
    with EndpointDouble(says) as endpoint:
        done, records = check(
            cases(), tmp_path / "out", "--checker", "openai:m", "--base_url", endpoint.url
        )
        prompts = [each["body"]["messages"][-1]["content"] for each in endpoint.asked]
    assert done.returncode == 0, done.stderr
    assert "was not measured" in done.stdout + done.stderr
    assert [each["label"] for each in records[0]["statements"]] == [
        "supported",
        "contradicted",
        "unread",
        "unread",
    ]
    supported, wrong, question, silent = records[0]["statements"]
    assert wrong["passage"] == "Never take it ~~~ with warfarin."
    assert (supported["passage"], wrong["source"]) == (
        "Take one tablet of 5 mg once a week.",
        "reference",
    )
    assert (question["reason"], silent["reason"]) == (
        "question",
        "'I cannot say.' is not one of Yes, No, Maybe",
    )
    assert "probability" not in supported
    assert records[0]["checker"] == "m"
    assert len(prompts) == 4  # the question is not asserted
    above = f"A patient asks: How, 0?\nA physician answers: {REFERENCE}\nQuestion: "
    assert all(prompt.startswith(above) for prompt in prompts)
    assert (
        "<mark>It goes well with warfarin.</mark>" in (tmp_path / "out" / "check.html").read_text()
    )


def test_what_an_endpoint_does_not_answer_is_asked_again_and_nothing_else(tmp_path):
    broken = [True]

    def script(body: dict) -> dict:
        return error(500) if broken[0] and "warfarin" in statement_in(body) else says(body)

    with EndpointDouble(script) as endpoint:
        options = (tmp_path / "out", "--checker", "openai:m", "--base_url", endpoint.url)
        done, records = check(cases(), *options)
        assert "1 requests not answered" in error_line(done)
        assert [each["model"] for each in records] == ["b"]
        broken[0], asked = False, len(endpoint.asked)
        done, records = check(cases(), *options)
        assert done.returncode == 0, done.stderr
        assert [each["model"] for each in records] == ["b", "a"]
        assert len(endpoint.asked) == asked + 3  # the statements of "a"
        again = error_line(check(cases(), *options, "--temperature", 1)[0])
        assert "with other weights, wording or settings" in again


@pytest.mark.parametrize(
    ("odds", "label", "probability"),
    [  # of no, yes and maybe: a no counts if it is three times as likely as yes
        ((0.66, 0.2, 0.1), "contradicted", 0.66 / 0.96),
        ((0.3, 0.05, 0.6), "contradicted", 0.3 / 0.95),
        ((0.58, 0.2, 0.1), "supported", 0.2 / 0.88),
        ((0.4, 0.2, 0.3), "not_found", 0.3 / 0.9),
    ],
)
def test_a_server_that_tells_log_probabilities_gives_a_label_its_probability(
    odds, label, probability, tmp_path
):
    with EndpointDouble(tells(*odds)) as endpoint:
        _, records = check(
            cases(), tmp_path / "out", "--checker", "openai:m", "--base_url", endpoint.url
        )
    read_ones = [
        each for record in records for each in record["statements"] if each["label"] != "unread"
    ]
    said = [(each["label"], each["probability"]) for each in read_ones]
    assert said == [(label, round(probability, 4))] * 4


def test_a_checkpoint_gives_the_probabilities_of_plain_transformers_beside_the_whole_reference(
    tmp_path,
):
    folder = build_tiny_model(tmp_path / "tiny")
    sentences = [f"The {word} is taken with {word * 3} and water." for word in "abcdefghijkl"]
    chat = ("--checker", folder, "--dtype", "float32", "--device", "cpu")
    text = "The k is taken with kkk and water. The b is taken with milk."
    done, (record, *_) = check(cases(1, text, " ".join(sentences)), tmp_path / "out", *chat)
    assert done.returncode == 0, done.stderr
    assert record["checker"] == "tiny"
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(ENCODER), device="cpu")
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForCausalLM.from_pretrained(folder),
    )
    for each in record["statements"]:
        cosines = encoder.similarity(encoder.encode([each["text"]]), encoder.encode(sentences))[
            0
        ].tolist()
        assert each["passage"] == sentences[cosines.index(max(cosines))]
        text = " ".join(sentences)
        state = {"question": "How, 0?", "passage": text, "statement": each["text"]}
        messages = BESIDE_REFERENCE.prompt(state).messages
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        start = tokenizer(prompt, add_special_tokens=False).input_ids
        totals = []  # the tiny vocabulary spells each option by several tokens
        for own in tokenizer(list(LABEL), add_special_tokens=False).input_ids:
            with torch.no_grad():
                logits = model(torch.tensor([start + own])).logits[0, len(start) - 1 : -1]
            totals.append(logits.log_softmax(-1)[range(len(own)), own].sum())
        yes, no, maybe = torch.stack(totals).softmax(0).tolist()
        chances = dict(zip(LABEL.values(), (yes, no, maybe)))
        likelier = "supported" if yes >= maybe else "not_found"
        assert each["label"] == ("contradicted" if no >= 3 * yes else likelier)
        assert each["probability"] == pytest.approx(chances[each["label"]], abs=1e-4)


def test_as_many_passages_are_shown_as_fit_the_window(tmp_path):
    folder = build_tiny_model(tmp_path / "tiny", window=1024)
    long = "The tablet is taken with water in the morning, " + "and so on, " * 70 + "and never {}."
    passages = [long.format(word) for word in ("at night", "with milk", "with tea", "in a car")]
    assert len(AutoTokenizer.from_pretrained(folder)(" ".join(passages)).input_ids) > 1024
    reference = " ".join(passages)
    text = "The tablet is taken with water in the morning. " + "Word " * 2000 + "."
    done, (record, *_) = check(cases(1, text, reference), tmp_path / "out", "--checker", folder)
    assert done.returncode == 0, done.stderr
    first, second = record["statements"]
    assert first["label"] in LABEL.values()
    assert second["label"] == "unread"
    assert re.fullmatch(
        r"the prompt is \d+ tokens longer than the context window", second["reason"]
    )


def test_stopped_and_resumed_a_checkpoint_gives_the_same(tmp_path):
    folder = build_tiny_model(tmp_path / "tiny")
    records = cases(40)
    chat = ("--checker", folder, "--batch_tokens", 4000)
    _, whole = check(records, tmp_path / "whole", *chat)
    with stopped(APPEND, len(whole) // 2):
        check(records, tmp_path / "cut", *chat)
    done, cut = check(records, tmp_path / "cut", *chat)
    assert done.returncode == 0, done.stderr
    assert cut == whole


@pytest.mark.parametrize(("checker", "said"), ROWS["test_a_checker_that_is_none_is_one_line"])
def test_a_checker_that_is_none_is_one_line(checker, said, tmp_path):
    done, records = check(cases(), tmp_path / "out", "--checker", checker)
    assert said in error_line(done)
    assert not records


REFUSES, CUT = (
    answer("I can't help with that."),
    answer("Let me think about", finish_reason="length"),
)


@pytest.mark.parametrize(
    ("reply", "why"), [(REFUSES, "I can't help with that."), (CUT, "the answer was cut off")]
)
def test_a_model_that_answers_no_question_is_an_error_for_a_gate_too(reply, why, tmp_path):
    with EndpointDouble(reply) as endpoint:
        asked = (
            "--checker",
            "openai:m",
            "--base_url",
            endpoint.url,
            "--fail_if",
            "contradicted",
        )
        text = "Take 50 mg. Rest a lot. Is it safe?"
        for _ in range(2):  # also where all is done already
            done, records = check(cases(2, text), tmp_path / "out", *asked)
            assert re.search(f"m answered none of 6 questions: .*{why}", error_line(done))
    assert {each["label"] for each in records[0]["statements"]} == {"unread"}
    assert [len(each["differs"]) for each in records] == [1, 0, 1, 0]  # the numbers stand beside
    assert len(records) == 4  # what was found stays


def test_without_evidence_a_model_says_what_it_believes(tmp_path):
    with EndpointDouble(says) as endpoint:
        asked = ("--checker", "openai:m", "--base_url", endpoint.url, "--evidence", "none")
        records = [
            {key: value for key, value in each.items() if key != "reference"} for each in cases()
        ]
        done, checked = check(records, tmp_path / "out", *asked)
        prompts = {each["body"]["messages"][-1]["content"] for each in endpoint.asked}
    assert done.returncode == 0, done.stderr
    assert "every label is the opinion of the model" in done.stdout + done.stderr
    assert [each["label"] for each in checked[0]["statements"]] == [
        "supported",
        "contradicted",
        "unread",
        "unread",
    ]
    assert (checked[0]["evidence"], "passage" in checked[0]["statements"][1]) == ("none", False)
    assert prompts == {
        f'Question: is it true that: "{each}"? Answer yes, no, or maybe.' for each in SAID
    }
    assert "1 of 1 answers hold a statement that the model calls contradicted" in done.stdout


def test_a_number_and_the_model_mark_one_answer_side_by_side(tmp_path):
    text = "Take 50 mg once a week. It goes well with warfarin."
    with EndpointDouble(lambda body: answer("No" if "goes" in statement_in(body) else "Yes")) as it:
        asked = ("--checker", "openai:m", "--base_url", it.url, "--fail_if", "contradicted")
        done, (record, *_) = check(cases(1, text), tmp_path / "out", *asked)
    assert done.returncode == 3
    assert [each["label"] for each in record["statements"]] == ["supported", "contradicted"]
    assert [mark["sentence"][1] for mark in record["differs"]] == ["50 mg"]
    page = (tmp_path / "out" / "check.html").read_text()
    assert "<mark>50 mg</mark>" in page
    assert "Contradicted by the model" in page
