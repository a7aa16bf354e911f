"""Where a judge's verdicts differ from those on record."""

from dataclasses import replace

import pytest
from doubles.introspection_study import (
    AUTOMEDEVAL,
    MODELS,
    RUBRICS,
    case_of,
    recorded_of,
    verdict_of,
)
from factories import write
from tables import each_row

from automedeval.records import RecordError
from automedeval.study.dataset.instructions import instruction
from automedeval.study.introspection.discussion import Discussion
from automedeval.study.introspection.mistakes import (
    Mistake,
    find_mistakes,
    read_judges,
    read_recorded,
)

CASE = case_of(0)
RECORDED = recorded_of(CASE, (4, 2, 5), order=(2, 0, 1))


def kind_of(verdict, recorded=RECORDED):
    mistakes, _ = find_mistakes({CASE.id: recorded}, {CASE.id: verdict})
    return mistakes[0].kind if mistakes else None


@pytest.fixture
def judged(tmp_path):
    """Return what reads verdicts on one case as one judge's."""

    def read(*verdicts, recorded=RECORDED):
        file = write(tmp_path / "verdicts.jsonl", verdicts)
        return read_judges([str(file)], {recorded.case.id: recorded})

    return read


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_partners_see_both_verdicts_in_the_words_of_the_rubric(order):
    def said(order):
        return [f"Response {slot} is {MODELS[at]}'s" for slot, at in enumerate(order, 1)]

    rubric = replace(AUTOMEDEVAL, output=AUTOMEDEVAL.output | {"slot": "Response"})
    reading = replace(RECORDED.reading, rationale=", ".join(said(RECORDED.order)))
    judged = verdict_of(CASE, (1, 1, 1), order=(1, 2, 0), rationale=", ".join(said((1, 2, 0))))
    mistake = Mistake(replace(RECORDED, rubric=rubric, reading=reading), "scores", judged)
    on_record = Discussion(mistake, order, None).on_record
    for text in (mistake.judged_from(order)["rationale"], on_record.rationale):
        assert sorted(text.split(", ")) == said(order)


@each_row("record, scores, kind")
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=str)
def test_other_relations_other_scores_and_nothing_readable_are_mistakes(
    record, scores, kind, order
):
    recorded = recorded_of(CASE, record, order=(2, 0, 1))
    assert kind_of(verdict_of(CASE, scores, order=order), recorded) == kind


def test_a_case_beyond_the_context_window_is_counted_and_no_mistake():
    overlong = verdict_of(CASE, None, overlong=True)
    mistakes, (first, second) = find_mistakes({CASE.id: RECORDED}, {CASE.id: overlong})
    assert (mistakes, first) == ([], "introspection: 0 cases → 0 as on record, 0 mistakes")
    assert second.startswith("introspection: 1 more cases exceed the judge's")


def test_the_reference_as_a_response_is_compared(judged):
    case = case_of(2, MODELS[:2])
    models = [*case.models, "reference"]
    recorded = recorded_of(case, (2, 3, 5), models=models, order=(2, 0, 1))
    assert recorded.case.models == models
    judge = judged(verdict_of(recorded.case, (2, 3, 3)), recorded=recorded)
    (mistake,), _ = find_mistakes({case.id: recorded}, judge)
    assert mistake.kind == "relations"
    assert mistake.judged_from((2, 0, 1))["scores"] == (3, 2, 3)
    with pytest.raises(RecordError, match=r"on other responses .*: judge the rows with"):
        judged(verdict_of(case, (2, 3), order=(1, 0)), recorded=recorded)


def test_verdicts_on_other_cases_and_by_other_rubrics_are_passed_over(judged):
    one = verdict_of(CASE, (4, 2, 5))
    likelihood = replace(verdict_of(CASE, None, "likelihood:x"), rubric="likelihood@1")
    elsewhere = verdict_of(case_of(7), (1, 2, 3), "other")
    assert judged(likelihood, elsewhere, one)[CASE.id].judge == "judge"
    with pytest.raises(RecordError, match="there are none by the rubric of a training case"):
        judged(likelihood, elsewhere)


@each_row("changes, said")
def test_verdicts_that_do_not_fit_are_refused(judged, changes, said):
    verdict = verdict_of(CASE, (4, 2, 5))
    with pytest.raises(RecordError, match=said):
        judged(*(replace(verdict, **change) for change in changes))


def test_every_training_case_must_be_judged(tmp_path):
    def file(name, *verdicts):
        return str(write(tmp_path / f"{name}.jsonl", verdicts))

    cases = [case_of(number) for number in (4, 5)]
    others = {case.id: recorded_of(case, (1, 2, 3)) for case in cases}
    rows = {CASE.id: RECORDED} | others
    first = verdict_of(CASE, (4, 2, 5))
    made = [verdict_of(case, (1, 2, 3), "other") for case in cases]
    part = file("part", first)
    apart = file("apart", *made)
    with pytest.raises(RecordError, match="2 of the 3 training cases are not judged"):
        read_judges([part], rows)
    # Of several judges each judged what it was not trained on.
    both = read_judges([part, apart], rows)
    assert [verdict.judge for verdict in both.values()] == ["judge", "other", "other"]
    assert find_mistakes(rows, both)[0] == []
    assert len(find_mistakes(rows, both, every=True)[0]) == 3
    mixed = file("mixed", first, *made)
    with pytest.raises(RecordError, match=r"one judge, .* there are judge \(s1\), other \(s1\)"):
        read_judges([mixed], rows)
    with pytest.raises(RecordError, match=r"apart.jsonl:1: a second verdict on case 'case-4'"):
        read_judges([apart, apart], others)


@each_row("changes, cases, said")
def test_rows_that_do_not_fit_their_cases_are_refused(changes, cases, said):
    row = instruction(CASE, verdict_of(CASE, (4, 2, 5), "teacher"), AUTOMEDEVAL)
    other = replace(CASE, question="Another question?")
    held = {"known": [CASE], "none": [], "changed": [other]}
    with pytest.raises(RecordError, match=said):
        read_recorded([row | change for change in changes], held[cases], RUBRICS, "data")
