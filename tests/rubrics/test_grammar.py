import re
import time
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise, product
from pathlib import Path
from statistics import mean

import pytest
from doubles.case_criteria import read_rubric
from factories import read_yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import ROOT
from tables import rows_of

from automedeval.models.base import Free, Slot
from automedeval.records.thoughts import CONTROL_TOKEN
from automedeval.rubrics import packaged_rubrics
from automedeval.rubrics.grammar import (
    ParsedAnswer,
    answer_form,
    answer_parts,
    format_verdict,
    parse_verdict,
    reading_from_values,
)

ROWS = rows_of(__file__)
RUBRICS = {name: read_rubric(name) for name in packaged_rubrics()}
RUBRICS["score_first"] = read_rubric(ROOT / "recipes/runs/feedbackqa/rubric.yaml")
each_rubric = pytest.mark.parametrize("rubric", RUBRICS.values(), ids=list(RUBRICS))
TABLE = read_yaml(Path(__file__).parents[1] / "data/verdicts.yaml")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_a_judge_s_answer_is_read_as_the_table_says(row):
    rubric = RUBRICS[row.get("rubric", "automedeval")]
    slots = row.get("slots", rubric.max_responses)
    reading = parse_verdict(row["text"], rubric, slots, truncated=row.get("truncated", False))
    if "error" in row:
        assert row["error"] in reading.error
        assert reading == ParsedAnswer(False, reading.error)
        return
    assert reading.valid, reading.error
    assert reading.error is None
    by_name = {name: tuple(scores) for name, scores in row.get("criterion_scores", {}).items()}
    assert reading.criterion_scores == (by_name or None)
    if "scores" in row:
        assert reading.scores == tuple(row["scores"])
    else:
        assert reading.choices == dict(zip(rubric.output_criteria, row["choices"], strict=True))
    if "rationale" in row:
        assert reading.rationale == row["rationale"]


def test_a_list_of_one_criterion_is_a_label_on_a_line():
    rubric = RUBRICS["instruction_pairwise"]
    single = replace(rubric, criteria=rubric.criteria[:1])
    for text in ("A", "Answer: **tie**", "I think so.\n\nB."):
        assert parse_verdict(text, single, 2).valid
    assert not parse_verdict("A\nB", single, 2).valid
    longer = replace(single, choices=single.choices | {"tie": "A bit"})
    assert not parse_verdict("A", longer, 2, truncated=True).valid, "the beginning of a label"


WHOLE = ROWS["whole"]  # answers of two slots


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_but_marks_may_stand_behind_an_answer(name):
    whole = WHOLE[name]
    rubric = RUBRICS[name]
    alone = parse_verdict(whole, rubric, 2)
    assert alone.valid
    for marks in ROWS["marks"]:
        assert parse_verdict(whole + marks, rubric, 2) == alone
    for gap, text in product((" ", "\n", "\n```\n\n"), ROWS["text"]):
        assert not parse_verdict(whole + gap + text, rubric, 2).valid, text


def test_the_table_has_every_rubric_and_no_name_twice():
    assert {row.get("rubric", "automedeval") for row in TABLE} == set(RUBRICS)
    assert len(TABLE) == len({row["name"] for row in TABLE}) >= 70


PROSE = st.text().map(str.strip).filter(bool)


def is_rationale(text: str) -> bool:
    """Return whether a text is the judge's own: no control token, nothing like a score line."""
    return not CONTROL_TOKEN.search(text) and not re.search("(?i)score", text)


@st.composite
def readings(draw, rubric):
    """Draw a valid reading."""
    rationale = draw(st.none() | PROSE.filter(is_rationale)) if rubric.rationale else None
    if not rubric.scale:
        choices = {}
        for criterion in rubric.criteria:
            choices[criterion.name] = draw(st.sampled_from(sorted(rubric.labels(criterion.name))))
        if rubric.in_words and not {"none", "no harm"}.isdisjoint(choices.values()):
            choices |= {"degree": "none", "likelihood": "no harm", "cause": "no harm"}
        return ParsedAnswer(True, rationale=rationale, choices=choices)
    count = 1 if rubric.mode == "pointwise" else draw(st.integers(1, 6))
    of_slots = st.lists(st.integers(*rubric.scale), min_size=count, max_size=count).map(tuple)
    if not rubric.scores_criteria:
        return ParsedAnswer(True, rationale=rationale, scores=draw(of_slots))
    scores = {criterion.name: draw(of_slots) for criterion in rubric.criteria}
    means = (Decimal(mean(of_slot)) for of_slot in zip(*scores.values()))
    rounded = tuple(int(value.quantize(Decimal(1), ROUND_HALF_UP)) for value in means)
    return ParsedAnswer(True, rationale=rationale, scores=rounded, criterion_scores=scores)


@each_rubric
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_parsing_undoes_formatting(rubric, data):
    reading = data.draw(readings(rubric))
    slots = len(reading.scores or "ab")
    unended = rubric.grammar == "score_first" and reading.rationale is None  # it may go on
    for truncated in (False, True)[: 1 if unended else 2]:
        again = parse_verdict(format_verdict(reading, rubric), rubric, slots, truncated=truncated)
        assert again == reading


@each_rubric
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
@pytest.mark.parametrize("rationale", [True, False])
def test_values_chosen_one_by_one_are_the_answer_that_is_read(rubric, slots, rationale):
    slots = 1 if rubric.mode == "pointwise" else slots
    parts = answer_parts(rubric, slots, rationale)
    chosen = [part for part in parts if isinstance(part, Slot)]
    values = [slot.values[(n + 1) % len(slot.values)] for n, slot in enumerate(chosen)]
    why = "Because." if rationale and rubric.rationale else None
    reading = reading_from_values(values, rubric, why)
    assert reading.valid
    assert parse_verdict(format_verdict(reading, rubric), rubric, slots) == reading
    for part, following in pairwise([*parts, ""]):
        if isinstance(part, Free):
            assert why
            assert following.startswith(part.stop)


@each_rubric
def test_the_form_that_a_prompt_shows_is_no_valid_answer(rubric):
    form = answer_form(rubric, rubric.max_responses)
    assert "[" in form
    assert not parse_verdict(form, rubric, rubric.max_responses).valid


@given(
    text=st.text(
        alphabet=st.sampled_from('Score:Doctr 1234.,;*/"{}[]\\\n>|<tieAB') | st.characters()
    )
)
def test_no_text_raises(text):
    for rubric in RUBRICS.values():
        for truncated in (False, True):
            reading = parse_verdict(text, rubric, rubric.max_responses, truncated=truncated)
            assert reading.valid == (reading.error is None)


@pytest.mark.parametrize(
    "deep", ['{"correctness": ' * 50_000, '{"choices": [' + "[" * 100_000, '{"a": ' + "9" * 100_000]
)
def test_deep_or_long_json_is_invalid_and_does_not_raise(deep):
    for rubric in RUBRICS.values():
        assert not parse_verdict(deep, rubric, rubric.max_responses).valid
        assert not parse_verdict(deep + "}" * 50_000, rubric, rubric.max_responses).valid


HOSTILE = ROWS["hostile"]


@pytest.mark.parametrize("piece", HOSTILE, ids=repr)
@pytest.mark.parametrize(
    "before", ["", '{"correctness": {"verdict": "', WHOLE], ids=["alone", "json", "whole"]
)
def test_hostile_text_of_200_kilobytes_is_read_in_no_time(piece, before):
    for name, rubric in RUBRICS.items():
        begins = before.get(name, "") if before is WHOLE else before
        text = begins + piece * (200_000 // len(piece))
        start = time.process_time()
        parse_verdict(text, rubric, 2)
        # Linear parsing takes hundredths of a second, quadratic parsing minutes.
        assert time.process_time() - start < 5
