"""A judge inside inspect_ai: the scores are the judge's, and an answer without a valid verdict has none."""

import json
import math
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.word_judge import WordJudge
from factories import case_of, read_json, verdict_of
from programs import error_line

from automedeval import Case, RecordError, Response, Verdict
from automedeval.harness.logs import MULTIPLE_CHOICE
from automedeval.harness.scoring import UNREAD, score_answers, score_of
from automedeval.judges.judge import load_by_settings
from automedeval.records.errors import ChatError


def reply(body: dict) -> dict:
    """Give 4 points, and no readable verdict on the question about a nosebleed."""
    asked = body["messages"][-1]["content"]
    return answer("I cannot say.") if "nosebleed" in asked else good_answer(body)


def answered(name: str, question: object, text: str, reference: str | None = None) -> Case:
    return Case(name, question, (Response("answer", text),), reference)


def scored(value: float) -> float | None:
    return None if math.isnan(value) else value


def test_inspect_has_the_judge_s_scores_and_leaves_out_what_has_no_verdict(harness, logs, tmp_path):
    settings = tmp_path / "judge.yaml"
    with EndpointDouble(reply) as endpoint:
        args = {"judge": "openai:double", "base_url": endpoint.url, "max_retries": 0}
        settings.write_text(json.dumps(args | {"rationale": True}))
        program = Path(__file__).with_name("score_inside.py")
        printed = harness("python", program, logs["json"], settings, cwd=tmp_path)
    scores = json.loads(printed.splitlines()[-1])
    asked = [str(each["body"]) for each in endpoint.requests]
    assert [scored(each) for each in scores["values"]] == [4, None, 4] * 2, "two epochs"
    assert scores["reasons"] == [None, "grader_failed", None] * 2
    assert scores["mean"] == 4
    assert scores["together"] == [6], "all samples were judged in one call"
    assert any("What lowers a fever?" in each for each in asked)
    assert not any("Question: What" in each for each in asked), "the prompt's template"


@pytest.mark.parametrize(
    ("name", "values"),
    [("choices", {}), ("mixed", {"draft": 1, "empty": 0, "parts": 3})],
)
def test_choices_and_questions_without_a_text_have_no_score(harness, logs, tmp_path, name, values):
    """An answer has as many points as words."""
    (file,) = (logs["odd"] / name).glob("*.json")
    options = "--scorer automedeval/judge --action append --output-file scored.json --display none"
    judge = ("-S", "judge=baseline:longer text")
    harness("inspect", "score", file, *options.split(), *judge, cwd=tmp_path)
    log = read_json(tmp_path / "scored.json")
    scores = {str(sample["id"]): sample["scores"]["judge"] for sample in log["samples"]}
    assert {key: scores[key]["value"] for key in values} == values
    unscored = {
        key: score["explanation"] for key, score in scores.items() if math.isnan(score["value"])
    }
    if name == "choices":
        assert unscored == dict.fromkeys(scores, MULTIPLE_CHOICE)
    else:
        assert unscored == ({"image only": "the question has no text"} if name == "mixed" else {})


def test_a_file_that_is_no_log_is_one_line(harness_python, tmp_path):
    broken = tmp_path / "broken.eval"
    zipfile.ZipFile(broken, "w").close()
    judge = ("--judge", "baseline:longer text")
    command = [harness_python.parent / "automedeval", "judge", f"m={broken}", *judge]
    line = error_line(subprocess.run(command, capture_output=True, text=True, cwd=tmp_path))
    assert "broken.eval" in line


def test_the_judge_reads_the_question_and_the_reference():
    judge, talk = WordJudge(), [{"role": "user", "content": "Is it safe?"}]
    answers = [
        answered("7", talk, "One two."),
        answered("7", talk, "One.", "No."),
        answered("8", " ", "One."),
    ]
    *scores, blank = score_answers(judge, answers)
    assert scores == [
        {"value": value, "explanation": "So.", "verdicts": 1, "valid": 1} for value in (2, 1)
    ]
    assert (scored(blank["value"]), blank["explanation"]) == (None, "the question has no text")
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
        scores = score_of([verdict])
        assert scored(scores.pop("value")) is None
        assert scores == {"explanation": why, "verdicts": 1, "valid": 0}


class Faulty(WordJudge):
    """A judge that some answers stop: by a reason for a person, or by a fault of its own."""

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        cases = list(cases)
        for case in cases:
            match case.responses[0].text:
                case "no reference":
                    raise RecordError(f"case {case.id!r}: there is no reference")
                case "fault":
                    raise TypeError("not a text")
                case "down":
                    raise ChatError("is down")
        return super().__call__(cases)


def test_only_the_answers_that_stop_the_judge_have_no_score():
    texts = ["word " * number for number in range(10)]
    texts[3], texts[8] = "no reference", "fault"
    judge = Faulty()
    answers = [answered(f"s{number}", "Safe?", text) for number, text in enumerate(texts)]
    scores = score_answers(judge, [*answers, answers[4]])
    values = [scored(each["value"]) for each in scores]
    assert values == [None if number in (3, 8) else number for number in range(10)] + [4]
    assert "'s3': there is no reference" in scores[3]["explanation"]
    assert scores[8]["explanation"] == "s8: TypeError: not a text"
    judged = sorted([*texts[:3], *texts[4:8], texts[9], texts[4]])
    assert sorted(case.responses[0].text for case in judge.seen) == judged
    with pytest.raises(ChatError):
        score_answers(judge, [*answers, answered("s10", "Safe?", "down")])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"jugde": "small"}, "--jugde"),
        ({"judge": "openai:m", "rubric": "medical_pairwise"}, "gives choices, and scores"),
        ({"config": "nowhere/none.yaml"}, r"none\.yaml: "),
    ],
)
def test_a_setting_that_is_wrong_is_named(settings, said):
    with pytest.raises(RecordError, match=said):
        load_by_settings(settings)
