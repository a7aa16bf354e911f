"""What counts as a leak, and what does not."""

import random

import pytest

from automedeval.dataset.decontamination import Evaluation, holder_of_reference
from automedeval.records import Case, Response

RNG = random.Random(0)
WORDS = ["".join(RNG.choices("abcdefghij", k=6)) for _ in range(2000)]


def text(number: int) -> str:
    return " ".join(random.Random(RNG.random()).choices(WORDS, k=number))


def case_of(name: str, **more) -> Case:
    return Case(
        **{"id": name, "question": text(20), "responses": (Response("m", text(40)),), "reference": text(30)} | more
    )


@pytest.fixture(scope="module")
def evaluation_cases() -> list[Case]:
    return [case_of(f"eval-{at}") for at in range(20)]


def kinds(evaluation: Evaluation, *cases: Case) -> list[str]:
    return [kind for _, kind, _ in evaluation.leaks(cases)]


def test_the_same_question_leaks_however_it_is_written(evaluation_cases: list[Case]) -> None:
    evaluation, question = Evaluation(evaluation_cases), evaluation_cases[3].question
    near = question.rsplit(" ", 1)[0]  # 17 of 18 runs of three words
    far = " ".join([*question.split()[:10], text(10)])
    cases = [
        case_of("same", question=f"{question.upper()}?"),
        case_of("near", question=near),
        case_of("far", question=far),
    ]
    assert [leak[:2] for leak in evaluation.leaks(cases)] == [
        ("same", "question of an evaluation case"),
        ("near", "question of an evaluation case"),
    ]
    turns = [{"role": "user", "content": question}]
    assert kinds(evaluation, case_of("turns", question=turns)) == ["question of an evaluation case"]


def test_a_question_near_a_repeated_evaluation_question_is_found() -> None:
    # The second evaluation question repeats the first, and the training question is near the second alone.
    words = text(60).split()
    first, second, training = " ".join(words), " ".join(words[3:]), " ".join(words[6:])
    evaluation = Evaluation([case_of("one", question=first), case_of("two", question=second)])
    (leak,) = evaluation.leaks([case_of("t", question=training)])
    assert leak[2] == "repeats the question of 'two'"


@pytest.mark.parametrize(("shared", "leaks"), [(40, True), (32, True), (20, False), (0, False)])
def test_more_than_half_of_the_runs_of_twelve_words(evaluation_cases: list[Case], shared: int, leaks: bool) -> None:
    # Of 40 words, 29 runs; 32 shared words make 21 of them, 20 make 9.
    words = evaluation_cases[5].responses[0].text.split()[:shared]
    response = Response("m", " ".join([*words, *text(40).split()[shared:]]))
    found = kinds(Evaluation(evaluation_cases), case_of("t", responses=(response,)))
    assert found == (["text of an evaluation case"] if leaks else [])


@pytest.mark.parametrize(("held", "leaks"), [(40, True), (26, True), (25, False)])
def test_a_long_text_that_holds_most_of_an_evaluation_text(
    evaluation_cases: list[Case], held: int, leaks: bool
) -> None:
    # Of the 29 runs of twelve words in 40 words, 26 words hold 15; the long text has 200 words beside them.
    words = evaluation_cases[5].responses[0].text.split()[:held]
    response = Response("m", " ".join([text(100), *words, text(100)]))
    found = kinds(Evaluation(evaluation_cases), case_of("t", responses=(response,)))
    assert found == (["text of an evaluation case"] if leaks else [])


def test_references_count_on_both_sides(evaluation_cases: list[Case]) -> None:
    case = case_of("t", reference=evaluation_cases[0].responses[0].text)
    assert kinds(Evaluation(evaluation_cases), case) == ["text of an evaluation case"]
    case = case_of("t", responses=(Response("m", evaluation_cases[0].reference),))
    assert kinds(Evaluation(evaluation_cases), case) == ["text of an evaluation case"]


def test_a_short_text_that_stands_everywhere_is_no_leak() -> None:
    short = Response("m", "Ask your doctor.")
    evaluation = Evaluation([case_of("e", responses=(short,))])
    assert kinds(evaluation, case_of("t", responses=(short,), reference="Ask your doctor.")) == []


def test_a_response_that_holds_the_whole_reference() -> None:
    reference = text(12)
    holding = Response("b", f"Well: {reference.upper()}!")
    assert holder_of_reference(case_of("t", reference=reference, responses=(Response("a", text(9)), holding))) == "b"
    assert holder_of_reference(case_of("t", reference=f"{reference} more", responses=(holding,))) is None
    assert holder_of_reference(case_of("t", reference=None, responses=(holding,))) is None
    # The right response of a made-up pair is the reference by design.
    assert (
        holder_of_reference(case_of("t", reference=reference, responses=(Response("answer-right", reference),))) is None
    )


def test_nothing_leaks_into_no_evaluation() -> None:
    assert kinds(Evaluation([]), case_of("t")) == []
