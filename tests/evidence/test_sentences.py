"""Sentences and list items: their places, and what stands above them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automedeval.evidence.sentences import sentences, spans


def below(text: str) -> list[str]:
    """Return each sentence of a text after what stands above it."""
    whole = []
    for start, end, above in spans(text):
        whole.append(f"{above}: {text[start:end]}" if above else text[start:end])
    return whole


@given(st.text(max_size=400))
def test_places_are_in_order_and_lose_no_word(text):
    places = list(spans(text))
    assert all(start < end for start, end, _ in places)
    assert all(end <= start for (_, end, _), (start, *_) in itertools.pairwise(places))
    for sentence in sentences(text):
        assert sentence.strip() == sentence


@given(
    st.lists(
        st.sampled_from(["Take one.", "Drink water!", "Call 112.", "See Dr. Li now."]),
        min_size=1,
        max_size=6,
    )
)
def test_plain_sentences_are_cut_at_their_ends(written):
    assert sentences(" ".join(written)) == written


def test_lists_abbreviations_and_decimals_do_not_cut_wrongly():
    text = "Try these:\n- Take 2.5 mg, e.g. with food.\n2. Ask Dr. Brown.\n* Rest at home"
    assert below(text) == [
        "Try these:",
        "Try these: Take 2.5 mg, e.g. with food.",
        "Try these: Ask Dr. Brown.",
        "Try these: Rest at home",
    ]


def test_a_heading_and_the_line_above_a_list_stand_before_what_is_below():
    text = """Do not:
- Take 800 mg. Ask first.
  - smoke at home

Drink water.
1. Call 911 if:
   - you faint
2. Lie down.

## Children
Give 5 ml. Wait there.

**Never**
- Take 10 ml.

Avoid
• to drink it

Don’t:
put butter

Go home."""
    assert below(text) == [
        "Do not:",
        "Do not: Take 800 mg.",
        "Do not: Ask first.",
        "Do not: smoke at home",
        "Drink water.",
        "Call 911 if:",
        "Call 911 if: you faint",
        "Lie down.",
        "Children",
        "Children: Give 5 ml.",
        "Children: Wait there.",
        "**Never**",
        "Never: Take 10 ml.",
        "Never: Avoid",
        "Never: Avoid: to drink it",
        "Never: Don’t:",
        "Never: Don’t: put butter",
        "Never: Go home.",
    ]


@pytest.mark.parametrize("line", ["Avoid:", "Do not take:", "## Avoid", "**Stop**"])
def test_an_item_of_one_word_stands_below_a_line(line):
    above = line.strip("#*: ")
    items = below(f"{line}\n- ibuprofen\n- alcohol")[-2:]
    assert items == [f"{above}: ibuprofen", f"{above}: alcohol"]


def test_a_row_of_a_table_stands_below_its_head():
    rows = "| do | do not |\n|---|---|\n| Take 400 mg. | Take 800 mg. |\n\nRest."
    assert [span.above for span in spans(rows)][-2:] == ["do | do not", ""]
