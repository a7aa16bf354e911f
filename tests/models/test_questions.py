"""Typed questions: a checkpoint's odds beside transformers, and how an endpoint's answers are read."""

import math

import pytest
from doubles.endpoint import EndpointDouble, answer
from tables import rows_of

from automedeval.models.base import Answer
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.questions import Judgement, Question
from automedeval.records import RecordError

TRUE = Question("true@1", "{passage} Is it true that {statement}?", ("Yes", "No", "Maybe"))


def test_a_state_is_text_and_no_wording() -> None:
    prompt = TRUE.prompt({"passage": "Rest.", "statement": "{passage}"})
    assert prompt.messages[0]["content"] == "Rest. Is it true that {passage}?"


@pytest.mark.parametrize("options", [("A",), ("A", "a"), "x" * 27])
def test_a_question_that_is_none(options) -> None:
    with pytest.raises(RecordError, match="question q: "):
        Question("q", "", tuple(options))


LETTERS = Question("letters", "Which?", ("A", "B", "C"))
LEVELS = Question("levels", "How good?", tuple("12345"))
DEGREE = Question("degree@1", "How bad?", ("none", "mild", "moderate", "cannot be told"))


@pytest.mark.parametrize(("name", "text", "option"), rows_of(__file__)["test_how_a_text_is_read"])
def test_how_a_text_is_read(name, text, option) -> None:
    judged = {each.name: each for each in (LETTERS, TRUE, LEVELS, DEGREE)}[name].read(Answer(text))
    assert (judged.option, judged.probabilities) == (option, None)
    assert (judged.error is None) == (option is not None)


def test_an_answer_without_an_option_gives_its_reason() -> None:
    assert TRUE.read(Answer(error="refused")).error == "refused"
    for text in ("I think that", "4", "No."):  # it may have gone on: "4.5", "No. It does not say"
        assert TRUE.read(Answer(text, truncated=True)) == Judgement(error="the answer was cut off at its token limit")
    assert TRUE.read(Answer("It depends.")).error == "'It depends.' is not one of Yes, No, Maybe"


@pytest.mark.parametrize(
    ("question", "said", "rivals", "odds"),
    [
        (LEVELS, "4", {"4": 0.5, " 5": 0.3, "x": 0.1}, {"4": 0.625, "5": 0.375}),
        (LEVELS, "4", {"4": 0.3, "The": 0.7}, None),  # it was about to say something else
        (Question("tens", "", ("1", "2", "10")), "1", {"1": 0.9, "2": 0.1}, None),  # "1" of "10"
        (LEVELS, "4", {}, None),
        (LEVELS, "4.5", {"4": 0.9, "5": 0.1}, None),
    ],
)
def test_an_endpoint_gives_the_odds_of_its_first_token(question, said, rivals, odds) -> None:
    told = [{"token": token, "logprob": math.log(chance)} for token, chance in rivals.items()]
    logprobs = {"content": [{"token": said, "logprob": -0.1, "top_logprobs": told}]} if told else None
    with EndpointDouble(answer(said, logprobs=logprobs)) as endpoint:
        ((_, reply),) = OpenAIChat("m", base_url=endpoint.url).answer([question.prompt({})])
        body = endpoint.asked[0]["body"]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 5)
    judged = question.read(reply)
    assert judged.option == (said if said in question.options else None)
    if odds is None:
        assert judged.probabilities is None
    else:
        assert judged.probabilities == pytest.approx(dict.fromkeys(question.options, 0.0) | odds)


def test_odds_are_divided_by_those_without_a_state_where_all_of_these_are_known() -> None:
    odds = {"Yes": 0.2, "No": 0.6, "Maybe": 0.2}
    divided = Judgement("No", odds).divided_by(Judgement("No", {"Yes": 0.1, "No": 0.8, "Maybe": 0.1}))
    total = 0.2 / 0.1 + 0.6 / 0.8 + 0.2 / 0.1
    assert divided.probabilities == pytest.approx({"Yes": 2 / total, "No": 0.75 / total, "Maybe": 2 / total})
    assert divided.option == "Yes"
    for blank in (Judgement("Yes"), Judgement("Yes", odds | {"No": 0.0})):  # "No" is not among what a server tells
        assert Judgement("No", odds).divided_by(blank) == Judgement("No")
