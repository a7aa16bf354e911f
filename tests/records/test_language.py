"""Which texts count as English."""

import pytest
from programs import SAMPLE
from tables import each_row, rows_of

from automedeval.records import Case, Response
from automedeval.records.language import english_only, foreign_answers, is_english
from automedeval.records.tables.cases import read_cases

OTHERS = rows_of(__file__)["test_other_languages_are_told_apart"]
SHORT = rows_of(__file__)["short texts"]


@pytest.mark.parametrize("language", OTHERS)
def test_other_languages_are_told_apart(language):
    assert is_english(OTHERS[language]) is False


def test_english_cases_get_no_warning_and_short_texts_are_not_told():
    cases = [*read_cases(SAMPLE / "test_cases.jsonl"), *read_cases(SAMPLE / "train_cases.jsonl")]
    assert english_only(cases, "baselines") == []
    assert is_english("Rest, aspirin.") is None


def test_a_few_short_texts_of_another_language_tell_it_and_english_ones_do_not():
    assert [text for text in SHORT["English"] if is_english(text) is False] == []
    for text in SHORT["other"]:
        assert is_english(3 * f"{text} ") is False, text


def test_the_warning_counts_the_cases_and_names_the_step():
    cases = [
        Case("k1", OTHERS["German"], (Response("a", "Ja."),)),
        Case("k2", "Why?", (Response("a", "No."),)),
    ]
    (note,) = english_only(cases, "baselines that count words")
    assert note.startswith(
        "1 of 2 cases are not in English, for example 'k1': baselines that count words read English"
    )


@each_row("question, answers")
def test_a_short_answer_is_told_by_its_case(question, answers):
    case = Case("k1", question, tuple(Response(text, text) for text in answers))
    assert foreign_answers([case]) == list(answers.values())
