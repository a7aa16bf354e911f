"""Empty and unread responses: each response stands by itself, in the verdict and in everything that is made of verdicts."""

import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from doubles.agreement_study import rating, read, write
from doubles.criteria_grader import grade, shown
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.tiny_model import build_tiny_model
from factories import read_json
from programs import ENCODER, flags, needs_encoder, run_command, succeeded

from automedeval import Case, RecordError, Verdict, judge_dataset, load_judge, read_rubric
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
    assert "reads_reference" not in verdict.extra


@needs_encoder
def test_of_a_conversation_the_last_question_is_read(small):
    told = "Hello doctor. " + "I have had a sore knee for years and I walk with my dog. " * 20
    thanks = "Thank you for telling me about the knee and the dog. " * 10
    talk = [{"role": "user", "content": told}, {"role": "assistant", "content": thanks}]
    answers = [
        "Ibuprofen with food is fine for most adults.",
        "Get a tetanus booster after the rusty nail.",
    ]
    scores = {}
    for last in ("May I take ibuprofen with food?", "Do I need a tetanus shot after a rusty nail?"):
        (verdict,) = small([case_of(*answers, question=[*talk, {"role": "user", "content": last}])])
        (plain,) = small([case_of(*answers, question=last)])
        assert verdict.expected_scores == pytest.approx(plain.expected_scores, abs=1e-5)
        scores[last] = verdict.expected_scores
    (food, nail) = scores.values()
    assert food[0] > food[1]
    assert nail[1] > nail[0]
    short = [
        {"role": "user", "content": "May I take ibuprofen with food?"},
        {"role": "user", "content": "And you?"},
    ]
    (verdict,) = small([case_of(*answers, question=short)])
    assert verdict.expected_scores[0] > verdict.expected_scores[1], (
        "a short last message is read with the one before"
    )


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


@needs_encoder
@pytest.mark.parametrize("roles", [("patient", "doctor"), ("human", "gpt"), ("Patient", "Doctor")])
def test_a_conversation_may_call_its_sides_otherwise(small, roles):
    """Where nobody is called "user" the patient is the side that speaks last."""
    texts = ["My knee hurts, and I walk a lot.", "Since when?", "May I take ibuprofen with food?"]
    talks = [
        [{"role": sides[n % 2], "content": text} for n, text in enumerate(texts)]
        for sides in (roles, ("user", "assistant"))
    ]
    for judge in (small, load_judge("baseline:BM25 to the question")):
        first, second = judge(case_of(ANSWER, POOR, question=talk) for talk in talks)
        assert first.valid
        assert first.expected_scores == second.expected_scores


def test_chat_judges_put_an_empty_response_lowest(tmp_path):
    """The tiny model's own verdict on the same prompt, with the empty response's scores put lowest by hand."""
    options = {"max_new_tokens": 8, "dtype": "float32", "device": "cpu"}
    model = str(build_tiny_model(tmp_path / "model"))
    for rubric in ("automedeval", "automedeval_guided"):
        judge = load_judge(model, rubric, options, rationale=False)
        case = case_of(ANSWER, "", POOR, reference="With food.")
        (request,) = judge.plan(case)
        ((_, answer),) = judge.answer([judge.prompt(request)], [True])
        (verdict,) = judge([case])
        assert (verdict.valid, verdict.empty) == (True, ("b",))
        means = [sum(int(word) * p for word, p in odds.items()) for odds in answer.probabilities]
        by_slot = np.reshape(means, (3, -1)).mean(axis=1)
        right = dict(zip(request.slots, by_slot)) | {1: 1.0}
        assert verdict.expected_scores == pytest.approx([right[at] for at in range(3)], abs=1e-5)
        by_criterion = verdict.criterion_scores or {"all": verdict.scores}
        assert {scores[1] for scores in (verdict.scores, *by_criterion.values())} == {1}
        assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


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
    head, *rows = (re.split(" {2,}", line) for line in done.stdout.splitlines()[2:5])
    assert head == ["model", "rank", "cases", "mean score", "share of pairs won", "empty"]
    assert [row[:4] for row in rows] == [
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


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """Ten cases: a is good in two, b in eight, c in two and else silent, d always in Thai. All but d's are rated."""
    folder = tmp_path_factory.mktemp("study")
    texts = [(ANSWER, POOR, ANSWER, THAI)] * 2 + [(POOR, ANSWER, "", THAI)] * 8
    asked = "May I take ibuprofen with food? ({})"
    cases = [case_of(*each, id=f"k{n}", question=asked.format(n)) for n, each in enumerate(texts)]
    write(folder / "cases.jsonl", cases)
    points = {ANSWER: 5, POOR: 2, "": 1, THAI: 4}
    ratings = [
        rating(case.id, each.model, points[each.text]) for case in cases for each in case.responses
    ]
    write(folder / "ratings.jsonl", ratings)
    small = flags(judge="small", encoder=ENCODER, output=folder / "v")
    done = succeeded(run_command("judge", folder / "cases.jsonl", *small))
    assert "c gave no answer in 8 cases, which counts as the lowest" in done.stdout
    assert "d has 10 responses to which the judge gives no score" in done.stdout
    return folder


@needs_encoder
def test_a_report_counts_what_is_empty_and_what_is_unread(study, tmp_path):
    """Concordance by a loop over the pairs that people ordered: a pair with an unread response counts as wrong."""
    files = flags(
        verdicts=study / "v", cases=study / "cases.jsonl", ratings=study / "ratings.jsonl"
    )
    options = flags(worse="none", encoder="none", resamples=100, output=tmp_path / "r")
    succeeded(run_command("report", *files, *options))
    result = read_json(tmp_path / "r" / "agreement.json")
    people = {
        (each["case_id"], each["model"]): each["score"] for each in read(study / "ratings.jsonl")
    }
    right = []
    for verdict in read(study / "v" / "verdicts.jsonl"):
        scores = dict(zip("abcd", verdict["expected_scores"]))
        for first, second in combinations("abcd", 2):
            rated = people[verdict["case_id"], first] - people[verdict["case_id"], second]
            one, other = scores[first], scores[second]
            if not rated:
                continue
            if None in (one, other):
                right.append(0)
            else:
                right.append(0.5 if one == other else (one > other) == (rated > 0))
    judge, rates = result["judges"]["small"], result["main_judge"]["valid_rates"]
    assert judge["concordance"]["value"] == pytest.approx(np.mean(right), abs=1e-9)
    assert (judge["empty"], judge["unread"]) == ({"c": 8}, {"d": 10})
    assert (rates["d"]["value"], rates["c"]["value"]) == (0.0, 1.0)


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


GOOD, UNREAD = (
    "Swallow tablets whole together with food or milk.",
    "รับประทานยาพร้อมอาหาร",
)  # no judge reads the latter
CRITERIA = [
    {"criterion": "says to take it together with food or milk", "points": 5},
    {"criterion": UNREAD, "points": 2},
]
HARM = {"criterion": "says that any dose is harmless", "points": -4}


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> Path:
    """Four cases: a answers all, b one and is silent in the others, c one and the others in a script nobody reads."""
    asked = "How do I take ibuprofen?"
    first = case_of(GOOD, GOOD, GOOD, id="c0", question=asked, criteria=[HARM, *CRITERIA])
    others = [
        case_of(GOOD, " \u200b\n", UNREAD, id=f"c{n}", question=asked, criteria=[CRITERIA[0], HARM])
        for n in range(1, 4)
    ]
    return write(tmp_path_factory.mktemp("empty") / "cases.jsonl", [first, *others])


def points(case: dict, met: list) -> float:
    worth = [each["points"] for each in case["criteria"]]
    return np.dot(worth, met) / sum(each for each in worth if each > 0)


def columns(said: str) -> dict[str, dict[str, str]]:
    """Return the printed table: model → column → cell."""
    lines = [line for line in said.splitlines() if line.startswith(("model ", "a ", "b ", "c "))]
    names, *rows = (re.split(" {2,}", line) for line in lines)
    return {row[0]: dict(zip(names, row)) for row in rows}


def test_whoever_answers_one_of_four_is_not_the_best(cases, tmp_path):
    def reads_english(body):
        response, criteria = shown(body)
        return answer("?") if UNREAD in (response, *criteria.values()) else grade(body)

    with EndpointDouble(reads_english) as endpoint:
        judge = flags(judge="openai:m", base_url=endpoint.url, rubric="checklist")
        options = (*judge, *flags(cases=cases, output=tmp_path / "v"))
        done = succeeded(run_command("judge", *options))
        assert len(endpoint.asked) == 9 + 3 + 9  # of b about its one answer alone
        assert "0 new" in run_command("judge", *options).stdout
    report = reported(tmp_path / "v", cases, tmp_path / "r")
    result, means = report["criteria"]["judges"]["m"]["candidates"], report["models"]["m"]["models"]
    verdicts = {
        (each["case_id"], each["order"][0]): each
        for each in read(tmp_path / "v" / "verdicts.jsonl")
    }
    printed = columns(done.stdout)
    for slot, model in enumerate("abc"):
        whole, unread = [], 0
        for case in read(cases):
            verdict, text = verdicts[case["id"], slot], case["responses"][slot]["text"]
            criteria = [each["criterion"] for each in case["criteria"]]
            met = verdict["checklist"]["met"] if verdict["valid"] else [None] * len(criteria)
            if model == "b" and case["id"] != "c0":
                assert met == [False] * len(criteria)
                assert (verdict["empty"], verdict["checklist"]["score"]) == (["b"], 0.0)
            elif text == UNREAD:
                assert not verdict["valid"]
            else:
                assert [each is None for each in met] == [each == UNREAD for each in criteria]
            unread += met.count(None)
            whole += [points(case, met)] if None not in met else []
        if whole:
            assert means[model]["score"]["value"] == pytest.approx(np.mean(whole))
        assert [*result[model].values()][:3] == [4, len(whole), unread]
        assert printed[model]["unread criteria"] == str(unread)
    assert (means["a"]["score"]["value"], means["b"]["score"]["value"]) == (1, 0)
    assert "b gave no answer in 3 cases, which counts as the lowest" in done.stdout
    assert "  invalid, 3: " in done.stdout


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
    assert (row["scored"], row["harm"]["value"], row["unread criteria"]) == (3, 0, 0)
    assert result["judges"]["old"]["empty"] == {"b": 3}
