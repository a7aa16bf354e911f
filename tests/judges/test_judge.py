"""Judges: slots become the case's responses and models, invalid stays invalid, so are overlong prompts."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.tiny_model import build_tiny_model
from programs import FAST, SAMPLE, module_fixture

from automedeval import Case, Judge, read_cases
from automedeval.judges.likelihood import LikelihoodJudge
from automedeval.judges.requests import Request
from automedeval.models.base import Answer
from automedeval.models.local import LocalChat
from automedeval.records import Response, Verdict

GUIDED = ("relevancy", "knowledge_correctness", "fluency")


@module_fixture
def chat(tiny_model) -> LocalChat:
    return LocalChat(str(tiny_model), **FAST)


@module_fixture
def cases() -> list[Case]:
    return list(read_cases(SAMPLE / "test_cases.jsonl"))


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
            whole = expected = 0
            for name in GUIDED:
                score = content[f"Doctor {slot}"][name]["score"]
                shares = next(odds)
                assert verdict.criterion_scores[name][index] == score
                assert int(max(shares, key=shares.get)) == score
                whole += score
                expected += sum(int(word) * share for word, share in shares.items())
            assert verdict.scores[index] == math.floor(whole / 3 + 0.5)
            assert verdict.expected_scores[index] == pytest.approx(expected / 3, abs=2e-4)
        assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_written_scores_on_several_criteria_have_their_mean_as_expected_score(chat, cases):
    judge = Judge(chat, "automedeval_guided", score_decoding="free")
    request = Request(replace(cases[0], reference="Rest."), (2, 0))
    first = dict(zip(GUIDED, (4, 5, 4)))
    second = dict(zip(GUIDED, (1, 2, 3)))
    text = json.dumps({"rationale": "Why.", "Doctor 1": first, "Doctor 2": second})
    verdict = judge.verdict(request, Answer(text))
    assert (verdict.scores, verdict.rationale) == ((2, None, 4), "Why.")
    assert verdict.expected_scores == pytest.approx((2.0, None, 13 / 3), abs=1e-6)
    for name, scores in verdict.criterion_scores.items():
        assert scores == [second[name], None, first[name]]
    invalid = judge.verdict(request, Answer(text.replace("5", "6")))
    assert not invalid.valid
    assert invalid.score_lists == {}


def test_choices_name_models(chat, cases):
    _, second, third = cases[0].models
    request = Request(cases[0], (2, 1), pair=(second, third))
    verdict = Judge(chat, "instruction_pairwise").verdict(request, Answer("A, tie, B, A"))
    assert verdict.choices == {
        "precision": third,
        "correctness": "tie",
        "format": second,
        "overall": third,
    }
    assert verdict.pair == (second, third)


def test_thoughts_before_a_verdict_are_no_part_of_it(chat, cases, monkeypatch):
    """A checkpoint that thinks first writes its thoughts into its text."""
    judge = Judge(chat, score_decoding="free")
    request = Request(cases[0], (0, 1, 2))
    first = "Score: Doctor 1: 2. Doctor 2: 3. Doctor 3: 1."
    answer = "Good.\nScore: Doctor 1: 5. Doctor 2: 3. Doctor 3: 1."

    def verdict_of(text):
        monkeypatch.setattr(chat, "_join", lambda *_: (text, ""))  # what the model writes
        ((_, answered),) = chat.answer([judge.prompt(request)])
        return judge.verdict(request, replace(answered, truncated=False))  # after eight tokens

    verdict = verdict_of(f"<think>\nHm. {first}\n</think>\n\n{answer}")
    assert (verdict.scores, verdict.rationale, verdict.raw) == ((5, 3, 1), "Good.", answer)
    assert not verdict_of(f"<think>\nHm. {first}").valid


@pytest.mark.parametrize("text", ["So \ud800.", ""])
def test_a_lone_surrogate_and_an_empty_response_are_judged(chat, cases, text):
    first, *others = cases[0].responses
    case = replace(cases[0], responses=(replace(first, text=text), *others))
    for judge in (Judge(chat, rationale=False), LikelihoodJudge(chat)):
        (verdict,) = judge([case])
        assert verdict.valid


def test_likelihoods_that_are_not_finite_are_invalid(chat, cases, monkeypatch):
    nothing = lambda pairs, wanted=None: ((at, float("nan")) for at in range(len(pairs)))  # noqa: E731
    monkeypatch.setattr(chat, "likelihoods", nothing)
    (verdict,) = LikelihoodJudge(chat)(cases[:1])
    assert (verdict.valid, verdict.error) == (False, "no likelihood is finite")
    assert verdict.expected_scores is None


@module_fixture
def narrow(tmp_path_factory) -> LocalChat:
    folder = build_tiny_model(tmp_path_factory.mktemp("narrow") / "narrow", window=1500)
    return LocalChat(str(folder), **FAST)


def test_an_overlong_pair_of_texts_has_no_likelihood(narrow):
    small = Case("small", "Why?", (Response("a", "So."),))
    words = " ".join(f"word{number}" for number in range(3000))
    long = Case("long", "Why?", (Response("a", words), Response("b", "So.")))
    fine, overlong = LikelihoodJudge(narrow)([small, long])
    assert fine.valid
    assert (overlong.valid, overlong.overlong) == (False, True)
    assert "context window" in overlong.error


def test_a_rationale_takes_what_the_window_leaves_and_64_tokens_at_least(narrow):
    """In a window of 1,500 tokens, with rationales of up to 400."""
    judge = Judge(LocalChat(narrow.model, dtype="float32", device="cpu", max_new_tokens=400))
    room = 1500 - 64 - len("\nScore: Doctor 1: 5 points.")
    for words in range(200, 900, 5):
        case = Case(f"{words} words", "Why?", (Response("a", "word " * words),))
        (request,) = judge.plan(case)
        if judge.chat.count_tokens(judge.prompt(request)) > room:
            break
        longest = case
    verdict, overlong = judge([longest, case])
    assert verdict.valid
    assert 64 <= verdict.usage["completion_tokens"] < 200
    assert sum(verdict.usage.values()) <= 1500
    assert (overlong.valid, overlong.overlong) == (False, True)


def test_settings_follow_what_changes_an_answer(chat, tmp_path):
    rubric = tmp_path / "mine.yaml"
    packaged = Path("src/automedeval/rubrics/packaged/automedeval.yaml").read_text()
    rubric.write_text(packaged.replace("easy to follow", "easy to read"))
    judges = [
        LikelihoodJudge(chat),
        Judge(chat),
        Judge(chat, rationale=False),
        Judge(chat, score_decoding="free"),
        Judge(chat, rubric=str(rubric)),
        Judge(chat, search=list, store="a"),
        Judge(chat, search=list, store="b"),
    ]
    assert len({judge.fingerprint for judge in judges}) == 7
    assert Judge(chat, orders="all", seed=5).fingerprint == Judge(chat).fingerprint
