"""Empty and unread responses: each response stands by itself, in the verdict and in everything that is made of verdicts."""

import re
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from doubles.agreement_study import read, write
from doubles.criteria_grader import grade
from doubles.endpoint import EndpointDouble, good_answer
from doubles.tiny_model import build_tiny_model
from factories import read_json
from programs import ENCODER, flags, needs_encoder, run_command, succeeded

from automedeval import Case, RecordError, judge_dataset, load_judge, read_rubric
from automedeval.harness.rewards import JudgeReward

ANSWER = "Take ibuprofen with food or milk to protect your stomach."
POOR = "I like trains."
# No judge reads these.
THAI, KHMER = "ใช่ คุณต้องฉีดวัคซีนบาดทะยัก", "បាទ អ្នកត្រូវការវ៉ាក់សាំង"


def case_of(*texts: str, **more: object) -> Case:
    records = [{"model": letter, "text": text} for letter, text in zip("abcdefgh", texts)]
    return Case.from_dict(
        {"id": "1", "question": "May I take ibuprofen with food?", "responses": records, **more}
    )


@pytest.fixture(scope="module")
def small():
    return load_judge("small", encoder=str(ENCODER))


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b\u00a0\ufeff"])
def test_a_response_is_empty_if_nothing_of_it_can_be_seen(text):
    assert case_of(text).responses[0].is_empty


# 🫨 is of Unicode 15, which Python 3.11 does not know.
@pytest.mark.parametrize("text", ["-", "👍", "\U0001fae8", "\ud83d", "No.", "ใช่"])
def test_a_response_that_can_be_seen_is_not_empty(text):
    assert not case_of(text).responses[0].is_empty


@needs_encoder
@pytest.mark.parametrize(
    "text", ["", "\u200b", "...", "👍", THAI, KHMER, "አዎ ክትባት ያስፈልግዎታል", "是的，您需要打破伤风针。"]
)
def test_the_small_judge_scores_each_response_by_itself(small, text):
    """Whatever stands beside them, two answers have the scores that they have alone; an empty one has the lowest."""
    alone = [next(small([case_of(each)])).expected_scores[0] for each in (ANSWER, POOR)]
    (verdict,) = small([case_of(ANSWER, text, POOR)])
    assert verdict.valid
    assert [verdict.expected_scores[0], verdict.expected_scores[2]] == pytest.approx(
        alone, abs=1e-5
    )
    empty = text in ("", "\u200b")
    told = (small.rubric.scale[0], ("b",), ()) if empty else (None, (), (1,))
    assert (verdict.expected_scores[1], verdict.empty, verdict.unread) == told


@needs_encoder
def test_other_languages_and_symbols_that_the_vocabulary_has_are_read(small):
    texts = [
        "Ja, lassen Sie die Tetanusimpfung auffrischen.",
        "Evet, aşı olmalısınız.",
        "500 mg",
        "β-blockers: no 👍",
    ]
    texts += ["I", "EBV", "QD", "q8h"]
    (verdict,) = small([case_of(*texts)])
    assert verdict.valid
    assert verdict.unread == ()


@needs_encoder
def test_what_nobody_can_read_is_invalid_and_says_what(small):
    unread, unasked = case_of(THAI, "..."), case_of(ANSWER, question=THAI)
    for case, error in (
        (unread, "no response can be read"),
        (unasked, "the question cannot be read"),
    ):
        (verdict,) = small([case])
        assert (verdict.valid, verdict.error, verdict.expected_scores) == (False, error, None)
    (verdict,) = small([case_of("", " ")])
    assert verdict.valid
    assert verdict.expected_scores == (1.0, 1.0), "nobody answered: both are lowest"
    (verdict,) = small([case_of(ANSWER, reference=THAI)])
    assert verdict.valid
    assert not verdict.reads_reference


@needs_encoder
def test_of_a_conversation_the_last_question_is_read(small):
    told = "Hello doctor. " + "I have had a sore knee for years and I walk with my dog. " * 20
    thanks = "Thank you for telling me about the knee and the dog. " * 10
    talk = [{"role": "user", "content": told}, {"role": "assistant", "content": thanks}]
    answers = ["Ibuprofen with food is fine for most adults.", "Get a tetanus booster."]
    asked = "Do I need a tetanus shot after a rusty nail?"
    (verdict,) = small([case_of(*answers, question=[*talk, {"role": "user", "content": asked}])])
    (plain,) = small([case_of(*answers, question=asked)])
    assert verdict.expected_scores == pytest.approx(plain.expected_scores, abs=1e-5)
    assert verdict.expected_scores[1] > verdict.expected_scores[0]
    # A short last message is read with the one before.
    short = [
        {"role": "user", "content": text}
        for text in ("May I take ibuprofen with food?", "And you?")
    ]
    (verdict,) = small([case_of(*answers, question=short)])
    assert verdict.expected_scores[0] > verdict.expected_scores[1]


@needs_encoder
def test_a_run_of_letters_that_is_no_word_is_a_poor_answer_and_not_an_unread_one(small):
    """A model that fails writes such runs; leaving them out would raise its mean."""
    runs = ["0,0,0," + "0" * 400, "O" * 2000]
    (verdict,) = small([case_of(ANSWER, *runs)])
    assert verdict.unread == ()
    assert max(verdict.expected_scores[1:]) < verdict.expected_scores[0] - 1
    (verdict,) = small(
        [case_of(ANSWER, POOR, question=f"May I take ibuprofen with food? {runs[1]}")]
    )
    assert verdict.valid


@needs_encoder
@pytest.mark.parametrize("judge", ["small", "baseline:embedding to the question"])
def test_half_a_character_is_read_as_a_question_mark(judge):
    """JSON can hold it, where a text was cut; no tokenizer takes it."""
    judge = load_judge(judge, encoder=str(ENCODER))
    (cut,) = judge([case_of(f"{ANSWER} \ud83d", "\ud83d", question="May I \udc4d take ibuprofen?")])
    (marked,) = judge([case_of(f"{ANSWER} ?", "?", question="May I ? take ibuprofen?")])
    assert cut.expected_scores == marked.expected_scores
    assert (cut.expected_scores[1], cut.unread, cut.empty) == (None, (1,), ())


def test_chat_judges_put_an_empty_response_lowest(tmp_path):
    """The tiny model's own verdict on the same prompt, with the empty response's scores put lowest by hand."""
    options = {"max_new_tokens": 8, "dtype": "float32", "device": "cpu"}
    model = str(build_tiny_model(tmp_path / "model"))
    judge = load_judge(model, "automedeval_guided", options, rationale=False)
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
    texts = [(ANSWER, POOR), ("", " "), (ANSWER, "")]
    cases = [case_of(*both, id=f"c{n}", question="Q?") for n, both in enumerate(texts)]
    file = write(tmp_path / "cases.jsonl", cases)
    with EndpointDouble(good_answer) as endpoint:
        options = flags(judge="openai:double", base_url=endpoint.url, output=tmp_path / "v")
        done = succeeded(run_command("judge", file, *options))
    verdicts = read(tmp_path / "v" / "verdicts.jsonl")
    assert {each["expected_scores"] for each in verdicts} == {None}
    scores = {each["case_id"]: each["scores"] for each in verdicts}
    assert scores == {"c0": [4, 4], "c1": [1, 1], "c2": [4, 1]}
    table = [re.split(" {2,}", line)[:4] for line in done.stdout.splitlines()[3:5]]
    assert table == [
        ["a", "1–2", "3", "3.00 [1.00, 4.00]"],
        ["b", "1–2", "3", "2.00 [1.00, 4.00]"],
    ]


def test_of_a_pair_the_answer_is_chosen_but_an_empty_one_does_no_harm(tmp_path):
    judge = load_judge(
        str(build_tiny_model(tmp_path / "model")), "medical_pairwise", {"max_new_tokens": 4}
    )
    (verdict,) = judge([case_of("", ANSWER)])
    criteria = {each.name: each for each in read_rubric("medical_pairwise").criteria}
    assert verdict.choices.keys() == criteria.keys()
    better = {name for name, each in criteria.items() if each.polarity != "worse"}
    assert {verdict.choices[name] for name in better} == {"b"}
    (both,) = judge([case_of("", " ")])
    assert both.choices == {name: each.neutral for name, each in criteria.items()}


@pytest.mark.parametrize("name", ["longer text", "BM25 to the question"])
def test_judges_without_a_scale_put_it_below_every_answer(name):
    (verdict,) = load_judge(f"baseline:{name}")([case_of(ANSWER, "", POOR)])
    answer, empty, poor = verdict.expected_scores
    assert empty <= min(answer, poor)


@needs_encoder
def test_rewards_and_tables_have_the_same_values(small):
    question, texts = "May I take ibuprofen with food?", [ANSWER, "", THAI, POOR]
    (verdict,) = small([case_of(*texts)])
    assert JudgeReward(small)([question] * 4, texts) == list(verdict.expected_scores)
    row = {"question": question, **dict(zip("abcd", texts))}
    # A column without any text is no candidate's.
    data = Dataset.from_list([row, row | {"b": POOR}])
    blank = r"the data set: 1 of 8 answers are blank \(b 1\): --blank lowest .* or --blank skip"
    with pytest.raises(RecordError, match=blank):
        judge_dataset(small, data)
    first, second = judge_dataset(small, data, blank="lowest")
    assert first.expected_scores == verdict.expected_scores
    assert second.expected_scores[1] == second.expected_scores[3]
    assert list(judge_dataset(small, data, blank="skip").to_pandas().model) == [*"acd", *"abcd"]


GOOD = "Swallow tablets whole together with food or milk."
CRITERIA = [
    {"criterion": "says to take it together with food or milk", "points": 5},
    {"criterion": "says that any dose is harmless", "points": -4},
]


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> Path:
    """Three cases: a answers all, b one and is silent in the others."""
    asked = "How do I take ibuprofen?"
    silent = (" \u200b\n", "")
    answers = [(GOOD, GOOD), *((GOOD, nothing) for nothing in silent)]
    cases = [
        case_of(*texts, id=f"c{number}", question=asked, criteria=CRITERIA)
        for number, texts in enumerate(answers)
    ]
    return write(tmp_path_factory.mktemp("empty") / "cases.jsonl", cases)


def test_an_empty_response_meets_no_criterion_and_nobody_is_asked(cases, tmp_path):
    with EndpointDouble(grade) as endpoint:
        judge = flags(judge="openai:m", base_url=endpoint.url, rubric="checklist")
        options = (*judge, *flags(cases=cases, output=tmp_path / "v"))
        done = succeeded(run_command("judge", *options))
        assert len(endpoint.asked) == 2 * 3 + 2  # of b about its one answer alone
        assert "0 new" in run_command("judge", *options).stdout
    empty = [each for each in read(tmp_path / "v" / "verdicts.jsonl") if "empty" in each]
    assert sorted((each["case_id"], *each["empty"]) for each in empty) == [("c1", "b"), ("c2", "b")]
    for verdict in empty:
        checklist = verdict["checklist"]
        assert (checklist["met"], checklist["score"]) == ([False, False], 0.0)
    means = reported(tmp_path / "v", cases, tmp_path / "r")["models"]["m"]["models"]
    assert means["a"]["score"]["value"] == 1
    assert means["b"]["score"]["value"] == pytest.approx(1 / 3)
    assert "b gave no answer in 2 cases, which counts as the lowest" in done.stdout


def reported(verdicts: Path, cases: Path, output: Path) -> dict:
    files = flags(verdicts=verdicts, cases=cases, output=output)
    succeeded(run_command("report", *files))
    return read_json(output / "agreement.json")


def test_an_older_verdict_on_an_empty_response_counts_as_nothing_met(cases, tmp_path):
    verdict = {"judge": "old", "rubric": "checklist@1", "order": [1]}
    verdict |= {"valid": False, "error": "no words"}
    old = [verdict | {"case_id": case["id"]} for case in read(cases)[1:]]
    result = reported(write(tmp_path / "v.jsonl", old), cases, tmp_path / "r")
    row = result["criteria"]["judges"]["old"]["candidates"]["b"]
    assert (row["scored"], row["harm"]["value"], row["unread criteria"]) == (2, 0, 0)
    assert result["judges"]["old"]["empty"] == {"b": 2}
