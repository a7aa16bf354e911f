"""Statements: their places, what is not asserted, and text that is not prose."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows_of

from automedeval.evidence.statements import spans, statements


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


@pytest.mark.parametrize(("text", "reason"), rows_of(__file__)["test_what_is_not_asserted_is_not_checked"])
def test_what_is_not_asserted_is_not_checked(text: str, reason: str) -> None:
    (only,) = statements(text)
    assert only.unread == reason


def test_code_is_not_checked() -> None:
    text = "Take it daily.\n```\nprint one two\n```\nDrink some water."
    assert checked(text) == ["Take it daily.", "Drink some water."]
