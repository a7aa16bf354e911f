"""The numbers of answers beside those of references, and how they are read beside pint."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from automedeval.evidence.numbers import differences, numbers
from automedeval.evidence.run import Evidence, marked_numbers
from automedeval.records.package_data import packaged

KNOWN = packaged("evidence", "numbers")


@each_row("reference, answer, factors")
def test_numbers_of_an_answer_stand_beside_those_of_the_reference(reference, answer, factors):
    found = differences(answer, reference)
    assert [mark.factor for mark in found] == pytest.approx(factors, rel=0.02)


@each_row("text, before, number")
def test_a_number_has_its_place_in_the_text_as_it_is(text, before, number):
    (read,) = numbers(text)
    assert text[: read.start] == before
    assert read.parts(text)[1] == number


@given(st.text("0123456789.,/ -½kgmldayshour%°CF\n:*|", max_size=60))
def test_every_text_is_read_and_agrees_with_itself(text):
    assert all(0 < number.low <= number.high < float("inf") for number in numbers(text))
    assert not differences(text, text)


ONES = st.sampled_from(list(KNOWN["ones"].items()))


@given(ONES, ONES, ONES, st.sampled_from([" ", " and "]))
def test_a_number_in_words_is_that_in_digits(thousands, hundreds, ones, joint):
    (thousand, a), (hundred, b), (one, c) = thousands, hundreds, ones
    (read,) = numbers(f"Take {thousand} thousand {hundred} hundred{joint}twenty-{one} mg.")
    assert read.low == int(f"{a}{b}2{c}")


@each_row("kind, base")
def test_units_are_those_of_pint(kind, base):
    pint = pytest.importorskip("pint")
    units = pint.UnitRegistry()
    ours = {"gm": "g", "cc": "cm**3", "mcg": "microgram", "ug": "microgram"}
    for unit in KNOWN["units"][kind]:
        if re.search("spoon|tsp|tbsp", unit):
            continue
        (number,) = numbers(f"Take 3 {unit} now.")
        plain = ours.get(unit, unit.replace("gramme", "gram"))
        assert number.low == pytest.approx(units(f"3 {plain}").to(base).magnitude), unit


def test_at_most_fifteen_words_forbid():
    assert len(KNOWN["forbids"]) <= 15


@each_row("question, answer, reference, books, unread")
def test_of_another_language_nothing_is_marked_and_that_is_said(
    question, answer, reference, books, unread
):
    marks, why = marked_numbers(question, answer, reference, [Evidence(book, "") for book in books])
    assert (bool(marks), why) == (unread is None, unread)
