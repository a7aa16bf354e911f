import re
import time
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
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
TABLE = read_yaml(Path(__file__).parents[1] / "data" / "verdicts.yaml")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_a_judge_s_answer_is_read_as_the_table_says(row):
    rubric = RUBRICS[row.get("rubric", "automedeval")]
    slots = row.get("slots", rubric.max_responses)
    reading = parse_verdict(row["text"], rubric, slots, truncated=row.get("truncated", False))
    if "error" in row:
        assert not reading.valid
        assert row["error"] in reading.error
        assert (reading.scores, reading.choices, reading.rationale, reading.criterion_scores) == (
            None,
        ) * 4
        return
    assert reading.valid, reading.error
    assert reading.error is None
    if "scores" in row:
        assert reading.scores == tuple(row["scores"])
        by_name = {name: tuple(scores) for name, scores in row.get("criterion_scores", {}).items()}
        assert reading.criterion_scores == (by_name or None)
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


WHOLE = ROWS["whole"]  # answers of two slots


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_but_marks_may_stand_behind_an_answer(name):
    alone = parse_verdict(WHOLE[name], RUBRICS[name], 2)
    assert alone.valid
    for marks in ROWS["marks"]:
        assert parse_verdict(WHOLE[name] + marks, RUBRICS[name], 2) == alone
    for text in ROWS["text"]:
        behind = [
            parse_verdict(f"{WHOLE[name]}{gap}{text}", RUBRICS[name], 2)
            for gap in (" ", "\n", "\n```\n\n")
        ]
        assert not any(each.valid for each in behind), text


def test_the_table_has_every_rubric_and_no_name_twice():
    assert {row.get("rubric", "automedeval") for row in TABLE} == set(RUBRICS)
    assert len(TABLE) == len({row["name"] for row in TABLE}) >= 70


@st.composite
def readings(draw, rubric):
    """Draw a valid reading with a rationale that is the judge's own: no control token, nothing like a score line."""
    prose = st.text().map(str.strip).filter(lambda text: text and not CONTROL_TOKEN.search(text))
    prose = prose.filter(lambda text: not re.search("score", text, re.I))
    rationale = draw(st.none() | prose) if rubric.rationale else None
    most = 1 if rubric.grammar == "score_first" else 12
    if rubric.scale:
        score = st.integers(*rubric.scale)
        if not rubric.scores_criteria:
            return ParsedAnswer(
                True,
                rationale=rationale,
                scores=tuple(draw(st.lists(score, min_size=1, max_size=most))),
            )
        count = draw(st.integers(1, 5))
        each = st.lists(score, min_size=count, max_size=count).map(tuple)
        scores = {criterion.name: draw(each) for criterion in rubric.criteria}
        means = tuple(
            int(Decimal(mean(of)).quantize(Decimal(1), ROUND_HALF_UP))
            for of in zip(*scores.values())
        )
        return ParsedAnswer(True, rationale=rationale, scores=means, criterion_scores=scores)
    names = [criterion.name for criterion in rubric.criteria]
    choices = {name: draw(st.sampled_from(sorted(rubric.labels(name)))) for name in names}
    if rubric.in_words and not {"none", "no harm"}.isdisjoint(choices.values()):
        choices |= {"degree": "none", "likelihood": "no harm", "cause": "no harm"}
    return ParsedAnswer(True, rationale=rationale, choices=choices)


@pytest.mark.parametrize("rubric", RUBRICS.values(), ids=list(RUBRICS))
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_parsing_undoes_formatting(rubric, data):
    reading = data.draw(readings(rubric))
    slots = len(reading.scores or "ab")
    unended = rubric.grammar == "score_first" and reading.rationale is None  # it may go on
    for truncated in (False, True)[: 1 if unended else 2]:
        again = parse_verdict(format_verdict(reading, rubric), rubric, slots, truncated=truncated)
        assert again == reading


@pytest.mark.parametrize("rubric", RUBRICS.values(), ids=list(RUBRICS))
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
@pytest.mark.parametrize("rationale", [True, False])
def test_parts_filled_in_are_the_answer_that_is_read(rubric, slots, rationale):
    values, answer = [], ""
    slots = 1 if rubric.grammar == "score_first" else slots
    parts = answer_parts(rubric, slots, rationale)
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        if isinstance(part, Slot):
            values.append(part.values[(len(values) + 1) % len(part.values)])
            part = values[-1]
        elif isinstance(part, Free):
            assert following.startswith(part.stop)
            part = "Because."
        answer += part
    why = "Because." if rationale and rubric.rationale else None
    reading = reading_from_values(values, rubric, why)
    assert reading.valid
    asked = 1 if rubric.sums_up else len(rubric.criteria)
    assert len(values) == (slots if rubric.scale else 1) * asked
    assert answer == format_verdict(reading, rubric)
    assert parse_verdict(answer, rubric, slots) == reading


@pytest.mark.parametrize("rubric", RUBRICS.values(), ids=list(RUBRICS))
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
        text = (before if isinstance(before, str) else before.get(name, "")) + piece * (
            200_000 // len(piece)
        )
        start = time.process_time()
        parse_verdict(text, rubric, 2 if before is WHOLE else rubric.max_responses)
        # Linear parsing takes hundredths of a second, quadratic parsing minutes.
        assert time.process_time() - start < 5
