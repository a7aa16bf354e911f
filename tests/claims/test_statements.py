"""Statements: their places, what is not asserted, and text that is not prose."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automedeval.claims.statements import spans, split_at, statements


def checked(text: str) -> list[str]:
    return [each.text for each in statements(text) if each.unread is None]


@given(st.text(max_size=400))
def test_places_are_in_order_and_lose_no_word(text: str) -> None:
    places = list(spans(text))
    assert all(start < end for start, end in places)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
    for each in statements(text):
        assert text[each.start : each.end].strip() == text[each.start : each.end]


@given(st.lists(st.sampled_from(["Take one.", "Drink water!", "Call 112.", "See Dr. Li now."]), min_size=1, max_size=6))
def test_plain_sentences_are_cut_at_their_ends(sentences: list[str]) -> None:
    text = " ".join(sentences)
    assert [text[start:end] for start, end in spans(text)] == sentences


def test_lists_abbreviations_and_decimals_do_not_cut_wrongly() -> None:
    text = "Try these:\n- Take 2.5 mg, e.g. with food.\n2. Ask Dr. Brown.\n* Rest at home"
    assert checked(text) == ["Try these:", "Take 2.5 mg, e.g. with food.", "Ask Dr. Brown.", "Rest at home"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Have you taken more than four grams?", "question"),
        ("Some people say antibiotics help against colds.", "quoted opinion"),
        ("A common myth is that vaccines cause autism.", "quoted opinion"),
        ("It would have been better to call.", "counterfactual"),
        ("| dose | 500 mg |", "table"),
        ("12:30.", "no statement"),
    ],
)
def test_what_is_not_asserted_is_not_checked(text: str, reason: str) -> None:
    (only,) = statements(text)
    assert only.unread == reason


def test_code_is_not_checked() -> None:
    text = "Take it daily.\n```\nprint one two\n```\nDrink some water."
    assert checked(text) == ["Take it daily.", "Drink some water."]


def test_a_long_answer_and_an_empty_one() -> None:
    assert statements("") == [] == statements(" \n\t ")
    assert len(statements("Take one tablet now. " * 1000)) == 1000


LINES = [
    "Take 5 mg once, and never with milk.",
    "Is it **safe**?",
    "- Some people say it helps.",
    "Rest. Dr. Li agrees.",
]
INVENTED = ["5 m", "Take 50 mg", "", "\0"]  # the first ends within a word
QUOTED = ["Take 5 mg once", "never with milk", "safe", "it helps", "Dr. Li", "Rest. Dr. Li agrees.", *INVENTED]


@given(st.lists(st.sampled_from(LINES), max_size=5), st.lists(st.sampled_from(QUOTED), max_size=8))
def test_quoted_statements_and_sentences_share_a_text_and_leave_out_no_two_words(
    lines: list[str], quoted: list[str]
) -> None:
    text = "\n".join(lines)
    cut, counts = split_at(text, quoted)
    assert all(first.end <= second.start for first, second in itertools.pairwise(cut))
    rest = list(text)
    for each in cut:
        assert text[each.start : each.end].replace("*", "").strip() == each.text
        rest[each.start : each.end] = "\n" * (each.end - each.start)
    assert all(len(re.findall("[A-Za-z]{2,}", piece)) < 2 for piece in "".join(rest).split("\n"))
    assert len(cut) - counts["by_sentence"] + counts["left_out"] == len(quoted)
    assert counts["left_out"] >= sum(each in INVENTED for each in quoted)
    assert not {"safe", "it helps", "Is it safe?"} & {each.text for each in cut if each.unread is None}
    if not quoted:
        assert cut == [each for each in statements(text) if each.unread != "no statement"]
