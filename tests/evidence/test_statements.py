"""Statements: their places, what is not asserted, and text that is not prose."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows_of

from automedeval.evidence.run import sentences_of
from automedeval.evidence.statements import Evidence, spans, statements


def checked(text: str) -> list[str]:
    return [each.text for each in statements(text) if each.unread is None]


@given(st.text(max_size=400))
def test_places_are_in_order_and_lose_no_word(text):
    places = list(spans(text))
    assert all(start < end for start, end, _ in places)
    assert all(end <= start for (_, end, _), (start, *_) in itertools.pairwise(places))
    for each in statements(text):
        assert text[each.start : each.end].strip() == text[each.start : each.end]


@given(
    st.lists(
        st.sampled_from(["Take one.", "Drink water!", "Call 112.", "See Dr. Li now."]),
        min_size=1,
        max_size=6,
    )
)
def test_plain_sentences_are_cut_at_their_ends(sentences):
    text = " ".join(sentences)
    assert [text[start:end] for start, end, _ in spans(text)] == sentences


def test_lists_abbreviations_and_decimals_do_not_cut_wrongly():
    text = "Try these:\n- Take 2.5 mg, e.g. with food.\n2. Ask Dr. Brown.\n* Rest at home"
    assert checked(text) == [
        "Try these:",
        "Try these: Take 2.5 mg, e.g. with food.",
        "Try these: Ask Dr. Brown.",
        "Try these: Rest at home",
    ]


def test_a_heading_and_the_line_above_a_list_stand_before_what_is_below():
    text = "Do not:\n- Take 800 mg. Ask first.\n  - smoke at home\n\nDrink water.\n"
    text += (
        "1. Call 911 if:\n   - you faint\n2. Lie down.\n\n## Children\nGive 5 ml. Wait there.\n\n"
    )
    text += "**Never**\n- Take 10 ml.\n\nAvoid\n• to drink it\n\nDon’t:\nput butter\n\nGo home."
    said = "Do not:|Do not: Take 800 mg.|Do not: Ask first.|Do not: smoke at home|Drink water."
    said += (
        "|Call 911 if:|Call 911 if: you faint|Lie down.|Children: Give 5 ml.|Children: Wait there."
    )
    said += "|Never: Take 10 ml.|Never: Avoid: to drink it|Never: Don’t: put butter|Never: Go home."
    found = [each for each in checked(text) if each not in ("Never: Avoid", "Never: Don’t:")]
    assert found == said.split("|")
    below = sentences_of([Evidence(text, "reference")])
    assert [each.text for each in below][1:3] == said.split("|")[1:3]


@pytest.mark.parametrize("line", ["Avoid:", "Do not take:", "## Avoid", "**Stop**"])
def test_an_item_of_one_word_is_a_statement_below_a_line(line):
    above = line.strip("#*: ")
    found = checked(f"{line}\n- ibuprofen\n- alcohol")
    assert found[-2:] == [f"{above}: ibuprofen", f"{above}: alcohol"]
    assert checked("- ibuprofen\n- alcohol") == [], "nothing is said of these"


def test_a_row_of_a_table_stands_below_its_head():
    rows = "| do | do not |\n|---|---|\n| Take 400 mg. | Take 800 mg. |\n\nRest."
    assert [span.above for span in spans(rows)][-2:] == ["do | do not", ""]


def test_what_a_reference_asks_or_others_believe_is_no_evidence():
    text = "Does it cause flu? No, it cannot. Some people think it does. It is safe."
    found = sentences_of([Evidence(text, "reference")])
    assert [each.text for each in found] == ["No, it cannot.", "It is safe."]


@pytest.mark.parametrize(
    ("text", "reason"), rows_of(__file__)["test_what_is_not_asserted_is_not_checked"]
)
def test_what_is_not_asserted_is_not_checked(text, reason):
    (only,) = statements(text)
    assert only.unread == reason


def test_code_is_not_checked():
    text = "Take it daily.\n```\nprint one two\n```\nDrink some water."
    assert checked(text) == ["Take it daily.", "Drink some water."]
