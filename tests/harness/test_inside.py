"""A judge inside inspect_ai: the scores are the judge's, and an answer without a valid verdict has none."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.word_judge import WordJudge
from harness.make_logs import QUESTIONS
from programs import ENCODER, needs_encoder, run_recipe, succeeded

from automedeval import Case, RecordError, Verdict
from automedeval.harness.logs import LoggedAnswer
from automedeval.harness.scoring import score_answers
from automedeval.judges.judge import load_by_settings
from automedeval.records.errors import ChatError

HERE = Path(__file__).parent
Inside = Callable[..., tuple[dict, list]]


def reply(body: dict) -> dict:
    """Give 4 points, and no readable verdict on the question about a nosebleed."""
    return answer("I cannot say.") if "nosebleed" in body["messages"][-1]["content"] else good_answer(body)


def scored(value: float) -> float | None:
    return None if math.isnan(value) else value


@pytest.fixture
def inside(harness: Callable[..., str], tmp_path: Path) -> Inside:
    """Return a function that scores a log inside inspect_ai; it returns the scores and what the judge was asked."""

    def score(log: Path, **settings: str) -> tuple[dict, list]:
        with EndpointDouble(reply) as endpoint:
            args = {"judge": "openai:double", "base_url": endpoint.url, "rationale": True, "max_retries": 0} | settings
            file = tmp_path / "judge.yaml"
            file.write_text(json.dumps(args))
            printed = harness("python", HERE / "score_inside.py", log, file, cwd=tmp_path, OPENAI_API_KEY="none")
        return json.loads(printed.splitlines()[-1]), [str(each["body"]) for each in endpoint.requests]

    return score


def test_inspect_has_the_judge_s_scores_and_leaves_out_what_has_no_verdict(inside: Inside, logs: dict) -> None:
    scores, asked = inside(logs["json"])
    assert [scored(each) for each in scores["values"]] == [4, None, 4] * 2, "two epochs"
    assert scores["reasons"] == [None, "grader_failed", None] * 2
    assert scores["mean"] == 4
    assert scores["together"] == [6], "all samples were judged in one call"
    assert any("What lowers a fever?" in each for each in asked)
    assert not any("Question: What" in each for each in asked), "the prompt's template"


def test_an_answer_that_stops_the_judge_has_no_score_and_the_others_have(inside: Inside, logs: dict) -> None:
    (log,) = (logs["odd"] / "mixed").glob("*.json")
    samples = json.loads(log.read_text(encoding="utf-8"))["samples"]
    referred = {each["id"] for each in samples if each["target"]}
    assert 0 < len(referred) < len(samples)
    scores, asked = inside(log, rubric="automedeval_guided")
    values = {name: scored(value) for name, value in zip(scores["ids"], scores["values"])}
    assert values == {name: 1 if name in referred else None for name in values}, "the double chooses the first value"
    assert scores["mean"] == 1
    for name, explanation in zip(scores["ids"], scores["explanations"]):
        assert name in referred or name in explanation or name == "image only", "the sample that failed is named"
    judged = [each for each in asked if "Doctor 1" in each and "How are you?" not in each]
    assert len(judged) == len(referred), "no answer was judged twice"


@needs_encoder
def test_the_scorer_marks_down_what_a_store_contradicts(harness: Callable, logs: dict, tmp_path: Path) -> None:
    dose = "Take 500 mg of acetaminophen every six hours against a fever."
    book, log = tmp_path / "book.md", tmp_path / "log.json"
    book.write_text(f"# Fever\n\n{dose}\n")
    succeeded(run_recipe("build_store", "--books", book, "--encoder", ENCODER, "--store", tmp_path / "store"))
    text = logs["json"].read_text(encoding="utf-8")
    answers = ("Take 5 g of acetaminophen every hour against a fever.", QUESTIONS[1][1], QUESTIONS[2][1])
    for number, each in enumerate(answers):
        text = text.replace(f"An answer, number {number}.", each)
    log.write_text(text, encoding="utf-8")
    command = ["inspect", "score", log, "--scorer", "automedeval/judge", "--action", "append", "--display", "none"]
    command += ["-S", "judge=small", "-S", f"encoder={ENCODER}", "-S", f"evidence={tmp_path / 'store'}"]
    harness(*command, "--output-file", tmp_path / "scored.json")
    samples = json.loads((tmp_path / "scored.json").read_text(encoding="utf-8"))["samples"]
    scores = [each["scores"]["judge"] for each in samples if each["epoch"] == 1]
    assert [each["value"] < 2 for each in scores] == [True, False, False]
    assert f"Fever says “{dose}”" in scores[0]["explanation"]


def test_the_judge_reads_the_question_and_the_reference() -> None:
    judge, talk = WordJudge(), [{"role": "user", "content": "Is it safe?"}]
    answers = [
        LoggedAnswer("7", talk, "One two."),
        LoggedAnswer("7", talk, "One.", "No.", epoch=2),
        LoggedAnswer("8", " ", "One."),
    ]
    *scores, blank = score_answers(judge, answers)
    assert scores == [{"value": value, "explanation": "So.", "verdicts": 1, "valid": 1} for value in (2, 1)]
    assert (scored(blank["value"]), blank["explanation"]) == (None, "the question has no text")
    assert [(case.question, case.reference) for case in judge.seen] == [(talk, None), (talk, "No.")]


class Faulty(WordJudge):
    """A judge that some answers stop: by a reason for a person, or by a fault of its own."""

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        cases = list(cases)
        for case in cases:
            text, no_reference = case.responses[0].text, RecordError(f"case {case.id!r}: there is no reference")
            faults = {"no reference": no_reference, "fault": TypeError("not a text"), "down": ChatError("is down")}
            if text in faults:
                raise faults[text]
        return super().__call__(cases)


def test_only_the_answers_that_stop_the_judge_have_no_score() -> None:
    texts = ["word " * number for number in range(10)]
    texts[3], texts[8] = "no reference", "fault"
    judge = Faulty()
    answers = [LoggedAnswer(f"s{number}", "Safe?", text) for number, text in enumerate(texts)]
    scores = score_answers(judge, [*answers, answers[4]])
    values = [scored(each["value"]) for each in scores]
    assert values == [None if number in (3, 8) else number for number in range(10)] + [4]
    assert "'s3': there is no reference" in scores[3]["explanation"]
    assert scores[8]["explanation"] == "s8: TypeError: not a text"
    judged = sorted([*texts[:3], *texts[4:8], texts[9], texts[4]])
    assert sorted(case.responses[0].text for case in judge.seen) == judged
    with pytest.raises(ChatError):
        score_answers(judge, [*answers, LoggedAnswer("s10", "Safe?", "down")])


def test_a_setting_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for settings, said in (
        ({"jugde": "small"}, "--jugde"),
        ({"judge": "openai:m", "rubric": "medical_pairwise"}, "gives choices, and scores are needed"),
        ({"config": str(tmp_path / "none.yaml")}, r"none\.yaml: "),
    ):
        with pytest.raises(RecordError, match=said):
            load_by_settings(settings)
