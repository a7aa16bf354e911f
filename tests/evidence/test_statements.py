"""Statements: their places, what is not asserted, and text that is not prose."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows_of

from automedeval.evidence.run import passages_of
from automedeval.evidence.statements import spans, statements


def checked(text: str) -> list[str]:
    return [each.text for each in statements(text) if each.unread is None]


@given(st.text(max_size=400))
def test_places_are_in_order_and_lose_no_word(text: str) -> None:
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
def test_plain_sentences_are_cut_at_their_ends(sentences: list[str]) -> None:
    text = " ".join(sentences)
    assert [text[start:end] for start, end, _ in spans(text)] == sentences


def test_lists_abbreviations_and_decimals_do_not_cut_wrongly() -> None:
    text = "Try these:\n- Take 2.5 mg, e.g. with food.\n2. Ask Dr. Brown.\n* Rest at home"
    assert checked(text) == [
        "Try these:",
        "Take 2.5 mg, e.g. with food.",
        "Ask Dr. Brown.",
        "Rest at home",
    ]


def test_a_line_above_a_list_and_a_heading_stand_before_what_they_change() -> None:
    text = "Try these:\n- Rest well.\n\nDo not:\n- Take 800 mg. Ask first.\n  - smoke at home\n\nDrink water.\n"
    text += (
        "1. Call 911 if:\n   - you faint\n2. Lie down.\n\n## Children\nGive 5 ml. Wait there.\n\n"
    )
    text += "**Never**\n- Take 10 ml.\n## What to do\nIt helps.\nDo not\n• drink it\n◦ eat it\n\nDon’t:\nput butter\n\nGo home."
    below = "Do not:|Do not Take 800 mg.|Ask first.|Do not smoke at home|Drink water.|Call 911 if:"
    below += "|Call 911 if you faint|Lie down.|Children: Give 5 ml.|Children: Wait there.|Never Take 10 ml.|What to do"
    below += "|It helps.|Do not|Do not drink it|Do not eat it|Don’t put butter|Go home."
    assert checked(text) == ["Try these:", "Rest well.", *below.split("|")]
    assert [each.text for each in passages_of(text, "reference")][2:5] == below.split("|")[:3]


@pytest.mark.parametrize(
    "line", ["Do not exceed 4 g.", "Do not mix it", "Call 911 if you faint", "It is safe"]
)
def test_a_bold_line_that_says_something_by_itself_is_no_head(line: str) -> None:
    assert checked(f"**{line}**\n\nTake 500 mg.")[-1] == "Take 500 mg."
    assert checked(f"Rest well.\n\n**Do not**\n- take it\n\n{line}")[-2:] == [
        "Do not take it",
        line,
    ]


def test_what_a_reference_asks_or_others_believe_is_no_evidence() -> None:
    text = "Does it cause flu? No, it cannot. Some people think it does. It is safe."
    passages = [(each.text, each.before) for each in passages_of(text, "reference")]
    assert passages == [
        ("No, it cannot.", "Does it cause flu?"),
        ("It is safe.", "Some people think it does."),
    ]


@pytest.mark.parametrize(
    ("text", "reason"), rows_of(__file__)["test_what_is_not_asserted_is_not_checked"]
)
def test_what_is_not_asserted_is_not_checked(text: str, reason: str) -> None:
    (only,) = statements(text)
    assert only.unread == reason


def test_code_is_not_checked() -> None:
    text = "Take it daily.\n```\nprint one two\n```\nDrink some water."
    assert checked(text) == ["Take it daily.", "Drink some water."]
