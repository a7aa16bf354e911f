"""Judges: slots become the case's responses and models, invalid stays invalid, so are overlong prompts."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.tiny_model import build_tiny_model
from programs import SAMPLE

from automedeval import Case, Judge, read_cases
from automedeval.judges.likelihood import LikelihoodJudge
from automedeval.judges.requests import Request
from automedeval.models.base import Answer
from automedeval.models.local import LocalChat
from automedeval.records import Response, Verdict

GUIDED = ("relevancy", "knowledge_correctness", "fluency")


@pytest.fixture(scope="module")
def chat(tiny_model) -> LocalChat:
    return LocalChat(str(tiny_model), dtype="float32", device="cpu", max_new_tokens=8)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return list(read_cases(SAMPLE / "test_cases.jsonl"))


def test_scores_stand_in_the_cases_order(chat, cases):
    judge = Judge(chat)
    request = Request(cases[0], (2, 0, 1))
    odds = ({"4": 0.5, "5": 0.5}, {"1": 1.0}, {"3": 1.0})
    answer = Answer("Score: …", values=("5", "1", "3"), probabilities=odds, free="Why.")
    verdict = judge.verdict(request, answer)
    assert (verdict.scores, verdict.order) == ((1, 3, 5), (2, 0, 1))
    assert verdict.expected_scores == (1.0, 3.0, 4.5)
    assert (verdict.rationale, list(verdict.models)) == ("Why.", cases[0].models)


def test_a_group_leaves_the_others_null(chat, cases):
    three = cases[0].responses
    others = [replace(response, model=f"{response.model}x") for response in three]
    six = replace(cases[0], responses=(*three, *others))
    answer = Answer("Score: Doctor 1: 2. Doctor 2: 3. Doctor 3: 1.")
    verdict = Judge(chat).verdict(Request(six, (4, 0, 5)), answer)
    assert verdict.scores == (3, None, None, None, 2, 1)


def test_scores_on_several_criteria_stand_in_the_cases_order(chat, cases):
    """The tiny model's own answers: whole scores by criterion, and their means beside sums over its probabilities."""
    guided = [replace(case, reference="Rest and wait.") for case in cases[:2]]
    judge = Judge(chat, "automedeval_guided", orders="latin", rationale=False)
    verdicts = list(judge(guided))
    assert len(verdicts) == 6
    for verdict in verdicts:
        assert verdict.valid, verdict.error
        content = json.loads(verdict.raw)
        odds = iter(verdict.extra["probabilities"])
        assert tuple(verdict.criterion_scores) == GUIDED
        for slot, index in enumerate(verdict.order, 1):
            shown = [content[f"Doctor {slot}"][name]["score"] for name in GUIDED]
            assert [verdict.criterion_scores[name][index] for name in GUIDED] == shown
            assert verdict.scores[index] == math.floor(sum(shown) / 3 + 0.5)
            means = []
            for score in shown:
                shares = next(odds)
                assert int(max(shares, key=shares.get)) == score
                means.append(sum(int(word) * share for word, share in shares.items()))
            assert verdict.expected_scores[index] == pytest.approx(sum(means) / 3, abs=2e-4)
        assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_written_scores_on_several_criteria_have_their_mean_as_expected_score(chat, cases):
    judge = Judge(chat, "automedeval_guided", score_decoding="free")
    request = Request(replace(cases[0], reference="Rest."), (2, 0))
    points = {"Doctor 1": dict(zip(GUIDED, (4, 5, 4))), "Doctor 2": dict(zip(GUIDED, (1, 2, 3)))}
    text = json.dumps({"rationale": "Why.", **points})
    verdict = judge.verdict(request, Answer(text))
    assert (verdict.scores, verdict.rationale) == ((2, None, 4), "Why.")
    assert verdict.expected_scores == pytest.approx((2.0, None, 13 / 3), abs=1e-6)
    by_criterion = zip(GUIDED, ([1, None, 4], [2, None, 5], [3, None, 4]))
    assert verdict.criterion_scores == dict(by_criterion)
    invalid = judge.verdict(request, Answer(text.replace("5", "6")))
    assert not invalid.valid
    assert invalid.score_lists == {}


def test_choices_name_models(chat, cases):
    judge = Judge(chat, "instruction_pairwise")
    models = cases[0].models
    pair = (models[1], models[2])
    verdict = judge.verdict(Request(cases[0], (2, 1), pair), Answer("A, tie, B, A"))
    chosen = (models[2], "tie", models[1], models[2])
    assert verdict.choices == dict(zip(("precision", "correctness", "format", "overall"), chosen))
    assert verdict.pair == pair


def test_thoughts_before_a_verdict_are_no_part_of_it(chat, cases, monkeypatch):
    """A checkpoint that thinks first writes its thoughts into its text."""
    judge, request = Judge(chat, score_decoding="free"), Request(cases[0], (0, 1, 2))
    first, last = (f"Score: Doctor 1: {score}. Doctor 2: 3. Doctor 3: 1." for score in (2, 5))
    answer = f"Good.\n{last}"

    def verdict_of(text):
        monkeypatch.setattr(chat, "_join", lambda *_: (text, ""))  # what the model writes
        ((_, answered),) = chat.answer([judge.prompt(request)])
        return judge.verdict(request, replace(answered, truncated=False))  # after eight tokens

    for text in (f"<think>\nHm. {first}\n</think>\n\n{answer}", f"Hm. {first}</think>{answer}"):
        verdict = verdict_of(text)
        assert (verdict.scores, verdict.rationale, verdict.raw) == ((5, 3, 1), "Good.", answer)
    for text in (
        f"<think>\nHm. {first}",
        f"<thought>\n{first}\n</thought>I decline to give scores.",
    ):
        assert not verdict_of(text).valid


@pytest.mark.parametrize("text", ["So \ud800.", ""])
def test_a_lone_surrogate_and_an_empty_response_are_judged(chat, cases, text):
    case = replace(
        cases[0], responses=(replace(cases[0].responses[0], text=text), *cases[0].responses[1:])
    )
    for judge in (Judge(chat, rationale=False), LikelihoodJudge(chat)):
        (verdict,) = judge([case])
        assert verdict.valid


def test_likelihoods_that_are_not_finite_are_invalid(chat, cases, monkeypatch):
    nothing = lambda pairs, wanted=None: ((at, float("nan")) for at in range(len(pairs)))  # noqa: E731
    monkeypatch.setattr(chat, "likelihoods", nothing)
    (verdict,) = LikelihoodJudge(chat)(cases[:1])
    assert (verdict.valid, verdict.error) == (False, "no likelihood is finite")
    assert verdict.expected_scores is None


@pytest.fixture(scope="module")
def narrow(tmp_path_factory) -> LocalChat:
    folder = build_tiny_model(tmp_path_factory.mktemp("narrow") / "narrow", window=1500)
    return LocalChat(str(folder), dtype="float32", device="cpu", max_new_tokens=8)


@pytest.mark.parametrize("kind", [Judge, LikelihoodJudge])
def test_overlong(kind, narrow, cases):
    small = Case("small", "Why?", (Response("a", "So."),))
    words = " ".join(f"word{number}" for number in range(3000))
    long = Case("long", "Why?", (Response("a", words), Response("b", "So.")))
    fine, skipped = kind(narrow)([small, long])
    assert fine.valid
    assert not skipped.valid
    assert "context window" in skipped.error


def test_a_rationale_takes_what_the_window_leaves_and_64_tokens_at_least(narrow):
    """In a window of 1,500 tokens, with rationales of up to 400."""
    judge = Judge(LocalChat(narrow.model, dtype="float32", device="cpu", max_new_tokens=400))
    texts = ["word " * count for count in range(200, 900, 5)]
    cases = [Case("c", "Why?", (Response("a", text),)) for text in texts]
    prompts = [judge.prompt(judge.plan(case)[0]) for case in cases]
    fits = [over <= 0 for over in judge.chat.overflow(prompts)]
    most = fits.index(False) - 1
    verdict, overlong = judge(cases[most : most + 2])
    assert verdict.valid
    assert 64 <= verdict.usage["completion_tokens"] < 200
    assert sum(verdict.usage.values()) <= 1500
    assert (overlong.valid, overlong.overlong) == (False, True)


def test_settings_follow_what_changes_an_answer(chat, tmp_path):
    rubric = tmp_path / "mine.yaml"
    packaged = Path("src/automedeval/rubrics/packaged/automedeval.yaml").read_text()
    rubric.write_text(packaged.replace("easy to follow", "easy to read"))
    options = ({}, {"rationale": False}, {"score_decoding": "free"}, {"rubric": str(rubric)})
    judges = [*(Judge(chat, **changed) for changed in options), LikelihoodJudge(chat)]
    assert len({judge.fingerprint for judge in judges}) == 5
    assert Judge(chat, orders="all", seed=5).fingerprint == Judge(chat).fingerprint
