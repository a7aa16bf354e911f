"""The chain of questions and passages that leads a teacher to its verdict."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from doubles.agreement_study import write
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from automedeval.evidence.books import Passage
from automedeval.judges.judge import Judge
from automedeval.models.base import Answer
from automedeval.models.replay import RecordedChat
from automedeval.records import Case, RecordError, Response
from automedeval.records.language import normalise
from automedeval.rubrics import read_rubric
from automedeval.rubrics.prompts import chain_messages, fenced
from automedeval.rubrics.questions import questions_of
from automedeval.study.distillation.completion_chain import CompletionChain

RUBRIC = read_rubric("automedeval")
CASE = Case(
    "c1",
    "What helps?",
    (Response("alder", "Rest."), Response("birch", "Wait.")),
    reference="Rest and wait.",
)
VERDICT = "Analyze:\nStep 1: Help.\nScore: Doctor 1: 4 points. Doctor 2: 2 points."
ASKS = ["[Question]: What is rest?", "[Question]: What is waiting?", "[Question]: What is help?"]


EXTRA = {"rounds", "ended", "transcript"}


class FakeBooks:
    """Search that finds for every question one passage of its own and one that all share."""

    def __init__(self):
        self.searches = []

    def __call__(self, questions):
        self.searches.append(list(questions))
        shared = Passage("0", "Basics", "", None, "Shared.", 0.5)
        own = (
            replace(shared, id=normalise(each), page=7, score=1 / 3, text=each)
            for each in questions
        )
        return [[each, shared] for each in own]


@pytest.fixture
def teach(tmp_path):
    """Return what lets a teacher say some texts, one a call, on a case, and gives its verdict and what it searched for."""

    def start(*texts, case=CASE, books=True, **options):
        keys = {"case_id": case.id, "teacher": "strong", "role": "judge", "knowledge": "chain"}
        said = ({**keys, "round": number, "text": text} for number, text in enumerate(texts, 1))
        file = write(tmp_path / "said.jsonl", said)
        found = FakeBooks()
        options = {"shuffle": False, **options}
        chain = CompletionChain(
            Judge(RecordedChat(file, "strong")), "strong", found if books else None, **options
        )
        (verdict,) = chain.verdicts([chain.plan(case)])
        assert set(verdict.extra) == EXTRA
        assert verdict.extra["rounds"] == len(texts), "every line was asked for"
        return verdict, found

    return start


def said_to(verdict):
    return [
        message["content"] for message in verdict.extra["transcript"] if message["role"] == "user"
    ]


def test_what_is_found_is_shown_as_data_and_recorded(teach):
    verdict, books = teach("[Question]: What is a ~~~ b <|im_end|>?", *ASKS[:1], VERDICT)
    assert (verdict.valid, verdict.extra["ended"]) == (True, "verdict")
    # what follows a control token is not the teacher's
    assert books.searches == [["What is a ~~~ b"], ["What is rest?"]]
    first, second = verdict.knowledge
    assert first["query"] == "What is a ~~~ b"
    assert [passage["id"] for passage in second["passages"]] == ["what is rest", "0"]
    passage = second["passages"][0]
    assert (passage["book"], passage["page"], passage["score"]) == ("Basics", 7, 0.3333)
    assert fenced("Basics, page 7:\nWhat is a ~~~ b") in said_to(verdict)[1]
    assert fenced("Basics:\nShared.") in said_to(verdict)[1]
    roles = [message["role"] for message in verdict.extra["transcript"]]
    assert roles[1:] == ["user", "assistant"] * 3


def test_a_teacher_that_asks_for_ever_is_asked_for_its_verdict_and_counted(teach):
    verdict, books = teach(*ASKS, "[Question]: What is more?")
    assert (verdict.valid, verdict.scores) == (False, None)
    assert verdict.extra["ended"] == "out_of_questions"
    assert "instead of giving its verdict" in verdict.error
    assert len(books.searches) == len(verdict.knowledge) == 3
    first, *_, last = said_to(verdict)
    assert "[Question]" not in first + last
    assert "No more questions" in last
    assert verdict.raw == "[Question]: What is more?"


@pytest.mark.parametrize("questions", [1, 3])
def test_a_verdict_after_the_last_question_is_valid(teach, questions):
    verdict, books = teach(*ASKS[:questions], VERDICT, questions=questions)
    assert (verdict.valid, verdict.scores) == (True, (4, 2))
    assert verdict.extra["ended"] == "out_of_questions"
    assert len(books.searches) == questions


@each_row("again")
@pytest.mark.parametrize("last", [VERDICT, "[Question]: What is rest?"])
def test_the_same_question_is_not_searched_twice(teach, again, last):
    verdict, books = teach(ASKS[0], again, last)
    assert (verdict.valid, verdict.extra["ended"]) == (last == VERDICT, "repeated_question")
    assert books.searches == [["What is rest?"]]
    assert "asked this before" in said_to(verdict)[-1]
    assert "No more questions" in said_to(verdict)[-1]


@each_row("text, error")
def test_what_is_neither_question_nor_verdict_is_invalid(teach, text, error):
    verdict, books = teach(text)
    assert (verdict.valid, verdict.extra["ended"], books.searches) == (False, "invalid", [])
    assert error in verdict.error


UNASKED = SimpleNamespace(
    name="chat", fingerprint="0" * 12, constrains=False
)  # a chat that is never asked


def test_without_books_the_prompt_is_the_judges_and_a_question_is_no_verdict(teach):
    verdict, _ = teach(VERDICT, books=False)
    assert verdict.extra["ended"] == "verdict"
    judge = Judge(UNASKED)
    prompt = judge.prompt(replace(judge.plan(CASE)[0], slots=(0, 1)))
    assert verdict.extra["transcript"][:-1] == prompt.messages
    verdict, _ = teach(ASKS[0], books=False)
    assert (verdict.valid, verdict.extra["ended"]) == (False, "invalid")
    assert "asked a question" in verdict.error


@each_row("text, asks")
def test_the_last_complete_one_of_question_and_verdict_counts(text, asks):
    assert questions_of(Answer(text.replace("VERDICT", VERDICT)), RUBRIC, 2) == asks


def test_no_question_is_read_from_a_broken_off_message_and_a_long_one_is_cut():
    assert questions_of(Answer("[Question]: " + "a" * 900), RUBRIC, 2) == ["a" * 500]
    asked = Answer("[Question]: What is rest?")
    assert questions_of(replace(asked, text=asked.text[:-1], truncated=True), RUBRIC, 2) == []
    assert questions_of(replace(asked, truncated=True), RUBRIC, 2) == ["What is rest?"]


@given(
    st.text(alphabet="[]Question:What is?\n*Score Doctor 12:points.~<|>", max_size=300) | st.text()
)
def test_any_text_is_read(text):
    for question in questions_of(Answer(text), RUBRIC, 2):
        assert 0 < len(question) <= 500
        assert "\n" not in question
        assert normalise(question)


def test_several_questions_of_one_message_are_one_round(teach):
    verdict, books = teach("[Question]: What is a?\n[Question]: What is b?", VERDICT)
    assert books.searches == [["What is a?", "What is b?"]]
    (asked,) = verdict.knowledge
    assert asked["query"] == "What is a?\nWhat is b?"
    assert [passage["id"] for passage in asked["passages"]] == ["what is a", "0", "what is b"]


def test_the_reference_is_one_more_response(teach):
    score = VERDICT + " Doctor 3: 5 points."
    verdict, _ = teach(score, reference_as_response=True)
    assert verdict.models == ("alder", "birch", "reference")
    assert (verdict.scores, verdict.order) == ((4, 2, 5), (0, 1, 2))
    assert verdict.case_digest == CASE.digest
    assert fenced("Rest and wait.") in said_to(verdict)[0]


def test_slots_are_shuffled_by_seed_and_scores_go_back_to_their_responses(teach):
    orders = set()
    for number in range(8):
        case = replace(CASE, id=f"c{number}")
        verdict, _ = teach(VERDICT, case=case, shuffle=True)
        orders.add(verdict.order)
        assert [verdict.scores[index] for index in verdict.order] == [4, 2]
    assert orders == {(0, 1), (1, 0)}


def chain_without(chat, **options):
    return CompletionChain(Judge(chat, score_decoding="free"), "strong", **options)


def test_a_case_that_cannot_be_shown_is_named():
    four = Case("c4", "What?", tuple(Response(name, "x") for name in "abcd"))
    with pytest.raises(RecordError, match="'c4': a teacher sees 3 responses at most"):
        chain_without(UNASKED).plan(four)
    with pytest.raises(RecordError, match="'c4' has no reference"):
        chain_without(UNASKED, reference_as_response=True).plan(four)


def test_every_setting_changes_the_fingerprint():
    books = FakeBooks()
    settings = [{}, {"search": books}, {"search": books, "questions": 2}]
    settings += [{"search": books, "store": "x"}]
    settings += [{"shuffle": False}, {"reference_as_response": True}]
    fingerprints = {chain_without(UNASKED, **options).fingerprint for options in settings}
    assert len(fingerprints) == len(settings)


def test_a_message_that_nothing_was_found_for_says_so():
    *_, last = chain_messages(RUBRIC, "Why?", ["a"], asked=[("[Question]: What is x?", [])])
    assert "Nothing was found" in last["content"]
    assert "[Question]: What is ...?" in last["content"]
