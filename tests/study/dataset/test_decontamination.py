"""Near-duplicate texts beside naive comparisons, and what counts as a leak."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import module_fixture
from tables import each_row

from automedeval.records import Case, Response
from automedeval.records.language import normalise
from automedeval.study.dataset import decontamination
from automedeval.study.dataset.decontamination import (
    holds_reference,
    leaks,
    near_duplicates,
)

RNG = random.Random(0)
WORDS = ["".join(RNG.choices("abcdefghij", k=6)) for _ in range(2000)]


def text(number: int) -> str:
    return " ".join(random.Random(RNG.random()).choices(WORDS, k=number))


def case_of(name: str, **more) -> Case:
    texts = {"question": text(20), "responses": (Response("m", text(40)),), "reference": text(30)}
    return Case(name, **texts | more)


@module_fixture
def evaluation_cases() -> list[Case]:
    return [case_of(f"eval-{at}") for at in range(20)]


def answered(name: str, told: str, **more) -> Case:
    return case_of(name, responses=(Response("ash", told),), **more)


def kinds(evaluation: list[Case], *cases: Case) -> list[str]:
    return list(leaks(cases, evaluation).values())


def test_the_same_question_leaks_however_it_is_written(evaluation_cases):
    question = evaluation_cases[3].question
    near, _ = question.rsplit(" ", 1)  # 17 of 18 runs of three words
    far = " ".join([*question.split()[:10], text(10)])
    asked = {"same": f"{question.upper()}?", "near": near, "far": far}
    cases = [case_of(name, question=told) for name, told in asked.items()]
    expected = dict.fromkeys(("same", "near"), "question of an evaluation case")
    assert leaks(cases, evaluation_cases) == expected


def test_a_question_near_a_repeated_evaluation_question_is_found():
    # The second evaluation question repeats the first, and the training question is near the second alone.
    first = text(60)
    second = first.split(" ", 3)[3]
    training = second.split(" ", 3)[3]
    evaluation = [case_of("one", question=first), case_of("two", question=second)]
    assert kinds(evaluation, case_of("t", question=training)) == ["question of an evaluation case"]


@each_row("before, shared, after, times")
def test_more_than_half_of_the_runs_of_twelve_words(evaluation_cases, before, shared, after, times):
    words = evaluation_cases[5].responses[0].text.split()[:shared]
    told = " ".join([text(before), *words, text(after)])
    found = kinds(evaluation_cases, answered("t", told))
    assert found == ["text of an evaluation case"] * times


def test_texts_without_spaces_are_compared_by_letters():
    thai = [chr(0x0E01 + at) for at in range(30)]
    copied = "".join(random.Random(1).choices(thai, k=80))
    own = "".join(random.Random(2).choices(thai, k=80))
    # Of the 69 runs of twelve letters of the evaluation text, the first case holds 59 and the second 9.
    first = answered("one", f"{own[:20]}, {copied[5:75]}.")
    second = answered("two", f"{own[40:]} {copied[:20]}.")
    found = leaks([first, second], [answered("e", copied)])
    assert found == {"one": "text of an evaluation case"}


def test_references_count_on_both_sides(evaluation_cases):
    known = evaluation_cases[0]
    swapped = case_of("t", reference=known.responses[0].text)
    turned = answered("u", known.reference)
    found = kinds(evaluation_cases, swapped, turned)
    assert found == ["text of an evaluation case"] * 2


def test_a_short_text_that_stands_everywhere_is_no_leak():
    short = "Ask your doctor."
    assert kinds([answered("e", short)], answered("t", short, reference=short)) == []


def test_a_response_that_holds_the_whole_reference():
    reference = text(12)
    holding = f"Well: {reference.upper()}!"
    assert holds_reference(answered("t", holding, reference=reference))
    assert not holds_reference(answered("t", holding, reference=f"{reference} more"))
    assert not holds_reference(answered("t", holding, reference=None))
    # The right response of a made-up pair is the reference by design.
    right = (Response("answer-right", reference),)
    assert not holds_reference(case_of("t", responses=right, reference=reference))


# --- near-duplicates --------------------------------------------------------------------------------------------------

# Few words, so that texts overlap.
TEXTS = st.lists(st.lists(st.sampled_from("abcde"), max_size=14).map(" ".join), max_size=25)


def runs(text, words):
    """Return the runs of words of a text, as tuples: what a shingle stands for."""
    found = text.split()
    length = min(words, len(found))
    starts = range(len(found) - length + 1) if found else ()
    return {tuple(found[start : start + length]) for start in starts}


@each_row("text, words")
def test_normalising_leaves_words(text, words):
    assert normalise(text) == words
    assert normalise(words) == words


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(["0.2", "0.5", "0.6", "0.75", "0.9", "1"]).map(Fraction))
def test_near_duplicates_are_those_that_comparing_all_pairs_finds(texts, threshold):
    expected = []
    for text in texts:
        own = runs(text, 3)
        similar = []
        for other, repeated in enumerate(expected):
            theirs = runs(texts[other], 3)
            shared = len(own & theirs)
            if own and repeated is None and shared >= threshold * len(own | theirs):
                similar.append(other)
        expected.append(min(similar, default=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decontamination, "SIMILAR", threshold)
        assert near_duplicates(texts) == expected


@each_row("questions")
def test_questions_that_differ_in_a_vowel_are_two(questions):
    assert near_duplicates(questions) == [None, None]
    assert near_duplicates([*questions, f"{questions[1]} …"]) == [None, None, 1]
