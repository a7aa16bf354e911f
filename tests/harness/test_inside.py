"""A judge inside inspect_ai: the scores are the judge's, and an answer without a valid verdict has none."""

import json
import math
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, answer, good_answer, prompt_of
from doubles.word_judge import WordJudge
from factories import case_of, read_json, verdict_of, write_json
from programs import error_line
from tables import each_row

from automedeval import Case, RecordError, Response, Verdict
from automedeval.harness.logs import MULTIPLE_CHOICE
from automedeval.harness.scoring import UNREAD, score_answers, score_of
from automedeval.judges.judge import load_by_settings
from automedeval.records.errors import ChatError


def reply(body: dict) -> dict:
    """Give 4 points, and no readable verdict on the question about a nosebleed."""
    asked = prompt_of(body)
    return answer("I cannot say.") if "nosebleed" in asked else good_answer(body)


def answered(name: str, question: object, text: str, reference: str | None = None) -> Case:
    return Case(name, question, (Response("answer", text),), reference)


def values_of(scores: Iterable[dict]) -> list[float | None]:
    """Return the values of scores, None for NaN."""
    values = [score["value"] for score in scores]
    return [None if math.isnan(value) else value for value in values]


def test_inspect_has_the_judge_s_scores_and_leaves_out_what_has_no_verdict(harness, logs, tmp_path):
    settings = tmp_path / "judge.yaml"
    with EndpointDouble(reply) as endpoint:
        args = {"judge": "openai:double", "base_url": endpoint.url, "max_retries": 0}
        write_json(settings, args | {"rationale": True})
        program = Path(__file__).with_name("score_inside.py")
        printed = harness("python", program, logs["json"], settings, cwd=tmp_path)
    told = json.loads(printed.splitlines()[-1])
    assert values_of(told["scores"]) == [4, None, 4] * 2, "two epochs"
    reasons = [score["reason"] for score in told["scores"]]
    assert reasons == [None, "grader_failed", None] * 2
    assert told["mean"] == 4
    assert told["together"] == [6], "all samples were judged in one call"
    asked = " ".join(str(request["body"]) for request in endpoint.requests)
    assert "What lowers a fever?" in asked
    assert "Question: What" not in asked, "the prompt's template"


def test_choices_and_questions_without_a_text_have_no_score(harness, logs, tmp_path):
    """An answer has as many points as words."""
    options = "--scorer automedeval/judge --action append --display none"
    judge = ("-S", "judge=baseline:longer text")

    def scores_of(name):
        (file,) = (logs["odd"] / name).glob("*.json")
        scored = tmp_path / f"{name}.json"
        words = [*options.split(), "--output-file", scored]
        harness("inspect", "score", file, *words, *judge, cwd=tmp_path)
        samples = read_json(scored)["samples"]
        return {str(sample["id"]): sample["scores"]["judge"] for sample in samples}

    for score in scores_of("choices").values():
        assert math.isnan(score["value"])
        assert score["explanation"] == MULTIPLE_CHOICE
    mixed = scores_of("mixed")
    scores = [mixed[name]["value"] for name in ("draft", "empty", "parts")]
    assert scores == [1, 0, 3]
    unscored = {name: score for name, score in mixed.items() if math.isnan(score["value"])}
    assert unscored.keys() == {"error", "image only"}
    assert unscored["image only"]["explanation"] == "the question has no text"


def test_a_file_that_is_no_log_is_one_line(harness_python, tmp_path):
    broken = tmp_path / "broken.eval"
    zipfile.ZipFile(broken, "w").close()
    judge = ("--judge", "baseline:longer text")
    command = [harness_python.parent / "automedeval", "judge", f"m={broken}", *judge]
    line = error_line(subprocess.run(command, capture_output=True, text=True, cwd=tmp_path))
    assert "broken.eval" in line


def test_the_judge_reads_the_question_and_the_reference():
    judge = WordJudge()
    talk = [{"role": "user", "content": "Is it safe?"}]
    answers = [
        answered("7", talk, "One two."),
        answered("7", talk, "One.", "No."),
        answered("8", " ", "One."),
    ]
    scores = score_answers(judge, answers)
    assert values_of(scores) == [2, 1, None]
    explanations = [score["explanation"] for score in scores]
    assert explanations == ["So.", "So.", "the question has no text"]
    assert [(case.question, case.reference) for case in judge.seen] == [(talk, None), (talk, "No.")]


def test_a_score_is_the_mean_of_the_verdicts_that_give_one():
    case = case_of(0, "ab")
    first = verdict_of(case, (2, 4), expected_scores=(2.5, 4.0), rationale="So.")
    invalid = verdict_of(case, None, order=(1, 0), run=1, error="cannot be read")
    second = verdict_of(case, (5, 1), order=(1, 0), run=2, rationale=None)
    explained = "So.\n\n1 of 3 verdicts give no score: cannot be read"
    told = {"value": (2.5 + 5) / 2, "explanation": explained, "verdicts": 3, "valid": 2}
    assert score_of([first, invalid, second]) == told
    unread = replace(first, scores=None, expected_scores=(None, 1.0))
    for verdict, why in ((invalid, "cannot be read"), (unread, UNREAD)):
        score = score_of([verdict])
        assert values_of([score]) == [None]
        assert (score["explanation"], score["valid"]) == (why, 0)


FAULTS = {
    "no reference": RecordError("there is no reference"),
    "fault": TypeError("not a text"),
    "down": ChatError("is down"),
}


class Faulty(WordJudge):
    """A judge that some answers stop: by a reason for a person, or by a fault of its own."""

    def __call__(self, cases: list[Case]) -> Iterator[Verdict]:
        for case in cases:
            if fault := FAULTS.get(case.responses[0].text):
                raise fault
        return super().__call__(cases)


def test_only_the_answers_that_stop_the_judge_have_no_score():
    texts = ["word " * number for number in range(10)]
    texts[3] = "no reference"
    texts[8] = "fault"
    judge = Faulty()
    answers = [answered(f"s{number}", "Safe?", text) for number, text in enumerate(texts)]
    scores = score_answers(judge, [*answers, answers[4]])
    assert values_of(scores) == [0, 1, 2, None, 4, 5, 6, 7, None, 9, 4]
    assert scores[3]["explanation"] == "s3: there is no reference"
    assert scores[8]["explanation"] == "s8: TypeError: not a text"
    judged = sorted(len(case.responses[0].text.split()) for case in judge.seen)
    assert judged == [0, 1, 2, 4, 4, 5, 6, 7, 9]
    with pytest.raises(ChatError):
        score_answers(judge, [*answers, answered("s10", "Safe?", "down")])


@each_row("settings, said")
def test_a_setting_that_is_wrong_is_named(settings, said):
    with pytest.raises(RecordError, match=said):
        load_by_settings(settings)
