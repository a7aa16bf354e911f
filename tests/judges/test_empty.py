"""Empty and unread responses: each response stands by itself, in the verdict and in everything that is made of verdicts."""

import re
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import case_of as line_of
from doubles.agreement_study import write
from doubles.criteria_grader import grade
from doubles.endpoint import EndpointDouble, good_answer
from doubles.tiny_model import build_tiny_model
from factories import read_json, verdicts_in
from programs import ENCODER, FAST, module_fixture, needs_encoder, run_command, succeeded
from tables import each_row

from automedeval import Case, load_judge, read_rubric
from automedeval.harness.rewards import JudgeReward

ANSWER = "Take ibuprofen with food or milk to protect your stomach."
POOR = "I like trains."
THAI = "ใช่ คุณต้องฉีดวัคซีนบาดทะยัก"  # no judge reads it


def case_of(*texts: str, **more: object) -> Case:
    answers = dict(zip("abcdefgh", texts))
    case = line_of("1", "May I take ibuprofen with food?", answers)
    return Case.from_dict(case | more)


@module_fixture
def small():
    return load_judge("small", encoder=str(ENCODER))


@each_row("text, is_empty")
def test_a_response_is_empty_if_nothing_of_it_can_be_seen(text, is_empty):
    assert case_of(text).responses[0].is_empty == is_empty


@needs_encoder
@each_row("text")
def test_the_small_judge_scores_each_response_by_itself(small, text):
    """Whatever stands beside them, two answers have the scores that they have alone; an empty one has the lowest."""
    (verdict,) = small([case_of(ANSWER, text, POOR)])
    assert verdict.valid
    first, score, last = verdict.expected_scores
    for answer, beside in ((ANSWER, first), (POOR, last)):
        (alone,) = small([case_of(answer)])
        assert alone.expected_scores == pytest.approx((beside,), abs=1e-5)
    is_empty = text in ("", "\u200b")
    told = (1.0, ("b",), ()) if is_empty else (None, (), (1,))
    assert (score, verdict.empty, verdict.unread) == told


@needs_encoder
def test_other_languages_and_symbols_that_the_vocabulary_has_are_read(small):
    german = "Ja, lassen Sie die Tetanusimpfung auffrischen."
    turkish = "Evet, aşı olmalısınız."
    short = ["500 mg", "β-blockers: no 👍", "I", "EBV", "QD", "q8h"]
    (verdict,) = small([case_of(german, turkish, *short)])
    assert verdict.valid
    assert verdict.unread == ()


@needs_encoder
def test_what_nobody_can_read_is_invalid_and_says_what(small):
    unread = case_of(THAI, "...")
    unasked = case_of(ANSWER, question=THAI)
    verdicts = list(small([unread, unasked]))
    assert [verdict.error for verdict in verdicts] == [
        "no response can be read",
        "the question cannot be read",
    ]
    assert {(verdict.valid, verdict.expected_scores) for verdict in verdicts} == {(False, None)}
    (verdict,) = small([case_of("", " ")])
    assert verdict.valid
    assert verdict.expected_scores == (1.0, 1.0), "nobody answered: both are lowest"
    (verdict,) = small([case_of(ANSWER, reference=THAI)])
    assert verdict.valid
    assert not verdict.reads_reference


@needs_encoder
def test_of_a_conversation_the_last_question_is_read(small):
    def scores(*messages: str) -> tuple:
        talk = [{"role": "user", "content": text} for text in messages]
        answers = ("Ibuprofen with food is fine for most adults.", "Get a tetanus booster.")
        (verdict,) = small([case_of(*answers, question=talk)])
        return verdict.expected_scores

    told = "Hello doctor. " + "I have had a sore knee for years and I walk with my dog. " * 20
    asked = "Do I need a tetanus shot after a rusty nail?"
    first, second = scores(told, asked)
    assert scores(asked) == pytest.approx((first, second), abs=1e-5)
    assert second > first
    # A short last message is read with the one before.
    first, second = scores("May I take ibuprofen with food?", "And you?")
    assert first > second


@needs_encoder
def test_a_run_of_letters_that_is_no_word_is_a_poor_answer_and_not_an_unread_one(small):
    """A model that fails writes such runs; leaving them out would raise its mean."""
    runs = ["0,0,0," + "0" * 400, "O" * 2000]
    (verdict,) = small([case_of(ANSWER, *runs)])
    assert verdict.unread == ()
    assert max(verdict.expected_scores[1:]) < verdict.expected_scores[0] - 1
    asked = case_of(ANSWER, POOR, question=f"May I take ibuprofen with food? {runs[1]}")
    assert next(small([asked])).valid


@needs_encoder
def test_half_a_character_is_read_as_a_question_mark(small):
    """JSON can hold it, where a text was cut; no tokenizer takes it."""
    (cut,) = small([case_of(f"{ANSWER} \ud83d", "\ud83d", question="May I \udc4d take ibuprofen?")])
    (marked,) = small([case_of(f"{ANSWER} ?", "?", question="May I ? take ibuprofen?")])
    assert cut.expected_scores == marked.expected_scores
    assert (cut.expected_scores[1], cut.unread, cut.empty) == (None, (1,), ())


def test_chat_judges_put_an_empty_response_lowest(tmp_path):
    """The tiny model's own verdict on the same prompt, with the empty response's scores put lowest by hand."""
    model = str(build_tiny_model(tmp_path / "model"))
    judge = load_judge(model, "automedeval_guided", FAST, rationale=False)
    case = case_of(ANSWER, "", POOR, reference="With food.")
    (request,) = judge.plan(case)
    ((_, answer),) = judge.answer([judge.prompt(request)], [True])
    (verdict,) = judge([case])
    assert (verdict.valid, verdict.empty) == (True, ("b",))
    means = [sum(int(word) * p for word, p in odds.items()) for odds in answer.probabilities]
    by_slot = np.reshape(means, (3, -1)).mean(axis=1)
    right = dict(zip(request.slots, by_slot)) | {1: 1.0}
    assert verdict.expected_scores == pytest.approx([right[at] for at in range(3)], abs=1e-5)
    assert {scores[1] for scores in (verdict.scores, *verdict.criterion_scores.values())} == {1}


def test_a_judge_that_gives_whole_scores_alone_gives_an_empty_response_no_other(tmp_path):
    """Else the table has a mean expected score over the cases that nobody answered, beside the mean score over all."""
    cases = [
        case_of(ANSWER, POOR, id="both"),
        case_of("", " ", id="none"),
        case_of(ANSWER, "", id="one"),
    ]
    file = write(tmp_path / "cases.jsonl", cases)
    with EndpointDouble(good_answer) as endpoint:
        options = {"judge": "openai:double", "base_url": endpoint.url, "output": tmp_path / "v"}
        done = succeeded(run_command("judge", file, **options))
    verdicts = verdicts_in(tmp_path / "v")
    assert {verdict.expected_scores for verdict in verdicts} == {None}
    scores = {verdict.case_id: verdict.scores for verdict in verdicts}
    assert scores == {"both": (4, 4), "none": (1, 1), "one": (4, 1)}
    first, second = done.stdout.splitlines()[3:5]
    assert re.match(r"a +1–2 +3 +3\.00 \[1\.00, 4\.00\]", first)
    assert re.match(r"b +1–2 +3 +2\.00 \[1\.00, 4\.00\]", second)


def test_of_a_pair_the_answer_is_chosen_but_an_empty_one_does_no_harm(tmp_path):
    model = build_tiny_model(tmp_path / "model")
    judge = load_judge(str(model), "medical_pairwise", {"max_new_tokens": 4})
    one, both = judge([case_of("", ANSWER), case_of("", " ")])
    criteria = read_rubric("medical_pairwise").criteria
    assert both.choices == {criterion.name: criterion.neutral for criterion in criteria}
    assert one.choices.keys() == both.choices.keys()
    for criterion in criteria:
        if criterion.polarity != "worse":
            assert one.choices[criterion.name] == "b"


def test_judges_without_a_scale_put_it_below_every_answer():
    (verdict,) = load_judge("baseline:BM25 to the question")([case_of(ANSWER, "", POOR)])
    answer, empty, poor = verdict.expected_scores
    assert empty <= min(answer, poor)


@needs_encoder
def test_rewards_have_the_same_values(small):
    question = "May I take ibuprofen with food?"
    texts = [ANSWER, "", THAI, POOR]
    (verdict,) = small([case_of(*texts)])
    assert JudgeReward(small)([question] * 4, texts) == list(verdict.expected_scores)


GOOD = "Swallow tablets whole together with food or milk."
CRITERIA = [
    {"criterion": "says to take it together with food or milk", "points": 5},
    {"criterion": "says that any dose is harmless", "points": -4},
]


@module_fixture
def cases(tmp_path_factory) -> Path:
    """Three cases: a answers all, b one and is silent in the others."""
    about = {"question": "How do I take ibuprofen?", "criteria": CRITERIA}
    of_b = (GOOD, " \u200b\n", "")
    cases = [case_of(GOOD, text, id=f"c{number}", **about) for number, text in enumerate(of_b)]
    return write(tmp_path_factory.mktemp("empty") / "cases.jsonl", cases)


def test_an_empty_response_meets_no_criterion_and_nobody_is_asked(cases, tmp_path):
    with EndpointDouble(grade) as endpoint:
        judge = {"judge": "openai:m", "base_url": endpoint.url, "rubric": "checklist"}
        options = judge | {"cases": cases, "output": tmp_path / "v"}
        done = succeeded(run_command("judge", **options))
        assert len(endpoint.asked) == 2 * 3 + 2  # of b about its one answer alone
        assert "new: 0" in run_command("judge", **options).stdout
    empty = [verdict for verdict in verdicts_in(tmp_path / "v") if verdict.empty]
    assert sorted((verdict.case_id, verdict.empty) for verdict in empty) == [
        ("c1", ("b",)),
        ("c2", ("b",)),
    ]
    for verdict in empty:
        assert (verdict.checklist["met"], verdict.checklist["score"]) == ([False, False], 0.0)
    means = reported(tmp_path / "v", cases, tmp_path / "r")["models"]["m"]["models"]
    assert means["a"]["score"]["value"] == 1
    assert means["b"]["score"]["value"] == pytest.approx(1 / 3)
    assert "b gave no answer in 2 cases, which meets no criterion." in done.stdout


def reported(verdicts: Path, cases: Path, output: Path) -> dict:
    succeeded(run_command("report", verdicts=verdicts, cases=cases, output=output))
    return read_json(output / "agreement.json")


def test_an_older_verdict_on_an_empty_response_counts_as_nothing_met(cases, tmp_path):
    verdict = {"judge": "old", "rubric": "checklist@1", "order": [1], "valid": False}
    old = [verdict | {"case_id": name, "error": "no words"} for name in ("c1", "c2")]
    result = reported(write(tmp_path / "v.jsonl", old), cases, tmp_path / "r")
    row = result["criteria"]["judges"]["old"]["candidates"]["b"]
    assert (row["scored"], row["harm"]["value"], row["unread criteria"]) == (2, 0, 0)
    assert result["judges"]["old"]["empty"] == {"b": 2}
