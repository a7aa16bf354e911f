"""Sentences and list items: their places, and what stands above them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from automedeval.evidence.sentences import spans


def below(text: str) -> list[str]:
    """Return each sentence of a text after what stands above it."""
    return [f"{above}: {text[start:end]}".removeprefix(": ") for start, end, above in spans(text)]


@given(st.text(max_size=400))
def test_places_are_in_order_and_lose_no_word(text):
    places = list(spans(text))
    assert all(start < end for start, end, _ in places)
    assert all(end <= start for (_, end, _), (start, *_) in pairwise(places))
    for start, end, _ in places:
        assert text[start:end].strip() == text[start:end]


@each_row("text, wanted")
def test_a_heading_and_the_line_above_a_list_stand_before_what_is_below(text, wanted):
    assert below(text) == wanted
