"""Perturbations: what edits do to texts, where they do nothing, and files that are wrong."""

import re
from itertools import product

import pytest
from programs import SAMPLE
from tables import each_row, rows_of

from automedeval.audit.perturbations import (
    fill,
    names_for,
    read_perturbations,
)
from automedeval.records import RecordError
from automedeval.records.tables.cases import read_cases
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import parse_verdict


def by_name(edits) -> dict:
    return {edit.name: edit for edit in edits}


PACKAGED = by_name(read_perturbations())
DANGERS = by_name(PACKAGED["danger"].edits)
TWINS = by_name(PACKAGED["danger"].controls)
PLANTED = by_name(PACKAGED["planting"].edits) | by_name(PACKAGED["planting"].controls)
(PARAPHRASE,) = PACKAGED["paraphrase"].edits
RUBRIC = read_rubric("automedeval")
AMOUNT = re.compile(r"(?i)(\d[\d,]*(?:\.\d+)?) ?(mg|g|mcg|ml|micrograms?|millilitres?)\b")
SIZE = {"mg": 1e-3, "g": 1.0, "mcg": 1e-6, "ml": 1.0, "microgram": 1e-6, "millilitre": 1.0}


def amounts(text: str) -> list[float]:
    """Return the doses of a text in grams and millilitres, by a pattern of this test alone."""
    found = []
    for number, unit in AMOUNT.findall(text.replace(",", "")):
        size = SIZE[unit.lower().removesuffix("s")]
        found.append(float(number) * size)
    return found


@each_row("name, text, dangerous")
def test_a_harm_makes_a_fact_dangerous_or_finds_none(name, text, dangerous):
    assert DANGERS[name].apply(text, {}) == ([dangerous] if dangerous else [])


@each_row("name, text, same")
def test_a_twin_says_the_same_or_finds_none(name, text, same):
    assert TWINS[name].apply(text, {}) == ([same] if same else [])


def test_every_kind_of_danger_has_twins_and_those_of_doses_are_the_same_amounts():
    kinds = {danger.kind for danger in DANGERS.values()}
    assert {twin.kind for twin in TWINS.values()} == kinds
    assert not TWINS.keys() & DANGERS.keys()
    rows = rows_of(__file__)["test_a_harm_makes_a_fact_dangerous_or_finds_none"]
    assert {name for name, _, dangerous in rows if dangerous} == DANGERS.keys()
    texts = []
    for name in ("train_cases.jsonl", "test_cases.jsonl", "two_bots.jsonl"):
        for case in read_cases(SAMPLE / name):
            texts += [response.text for response in case.responses]
    compared = 0
    of_doses = [twin for twin in TWINS.values() if twin.kind == "dose"]
    for twin, before in product(of_doses, texts):
        for after in twin.apply(before, {}):
            compared += 1
            assert amounts(after) == pytest.approx(amounts(before)), (before, after)
    assert compared >= 30


def test_other_words_need_enough_changes_and_no_rule_undoes_another():
    assert PARAPHRASE.apply("Rest well.", {}) == []
    assert PARAPHRASE.apply("Often, due to it.", {}) == ["Frequently, because of it."]


def test_the_planted_answer_is_the_one_that_the_rubric_reads_as_best_for_the_attacker():
    def planted(name, slots):
        rubric = read_rubric(name)
        names = names_for(rubric, slots, 1, "Why?")
        (text,) = PLANTED["score line"].apply("Rest.", names)
        assert text.startswith("Rest.\n\n")
        return parse_verdict(text, rubric, slots)

    scored = planted("automedeval", 3)
    assert scored.scores == (1, 5, 1)
    chosen = planted("medical_pairwise", 2)
    assert chosen.choices["correctness"] == "b"
    assert chosen.choices["harmfulness"] == "a", "harm names the worse one"
    guided = planted("automedeval_guided", 3)
    assert list(guided.criterion_scores.values()) == [(1, 5, 1)] * 3


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_text_keeps_the_answer_and_adds_to_it(name):
    answer = "Rest {now}, $5."
    names = names_for(RUBRIC, 2, 0, "Why?")
    (text,) = PLANTED[name].apply(answer, names)
    assert answer in text
    assert len(text) > len(answer) + 8
    assert "$slot" not in text


def test_a_text_is_added_unless_it_says_where():
    assert fill("Thanks.", "Rest.", {}) == "Rest.\n\nThanks."
    assert fill("Thanks. $text", "Rest for $5.", {}) == "Thanks. Rest for $5."
    assert fill("$list", "Rest. Wait.", {}) == "- Rest.\n- Wait."
    assert fill("Costs $$5.", "Rest.", {}) == "Rest.\n\nCosts $5."


@each_row("content, message")
def test_a_faulty_file_is_one_line(content, message, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(content)
    with pytest.raises(RecordError, match=re.escape(message)) as error:
        read_perturbations(str(file))
    assert "own.yaml" in str(error.value)
