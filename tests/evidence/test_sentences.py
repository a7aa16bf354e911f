"""Sentences and list items: their places, and what stands above them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows_of

from automedeval.evidence.sentences import sentences, spans


def below(text: str) -> list[str]:
    """Return each sentence of a text after what stands above it."""
    return [f"{above}: {text[start:end]}".removeprefix(": ") for start, end, above in spans(text)]


@given(st.text(max_size=400))
def test_places_are_in_order_and_lose_no_word(text):
    places = list(spans(text))
    assert all(start < end for start, end, _ in places)
    assert all(end <= start for (_, end, _), (start, *_) in itertools.pairwise(places))
    for sentence in sentences(text):
        assert sentence.strip() == sentence


SENTENCES = st.sampled_from(["Take one.", "Drink water!", "Call 112.", "See Dr. Li now."])


@given(st.lists(SENTENCES, min_size=1, max_size=6))
def test_plain_sentences_are_cut_at_their_ends(written):
    assert sentences(" ".join(written)) == written


@pytest.mark.parametrize(
    ("text", "wanted"),
    rows_of(__file__)["a text, and each sentence of it behind what stands above"],
)
def test_a_heading_and_the_line_above_a_list_stand_before_what_is_below(text, wanted):
    assert below(text) == wanted


@pytest.mark.parametrize("line", ["Avoid:", "Do not take:", "## Avoid", "**Stop**"])
def test_an_item_of_one_word_stands_below_a_line(line):
    above = line.strip("#*: ")
    _, *items = below(f"{line}\n- ibuprofen\n- alcohol")
    assert items == [f"{above}: ibuprofen", f"{above}: alcohol"]


def test_a_row_of_a_table_stands_below_its_head():
    rows = "| do | do not |\n|---|---|\n| Take 400 mg. | Take 800 mg. |\n\nRest."
    assert [span.above for span in spans(rows)][-2:] == ["do | do not", ""]
