"""What is read of a judge's verdicts, on verdicts few enough to count by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubles.agreement_study import value_of
from factories import MODELS, case_of, verdict_of
from programs import module_fixture
from tables import each_row, rows_of

from automedeval.audit.outcomes import CriteriaReader, ScoreReader
from automedeval.audit.perturbations import Edit, Perturbation
from automedeval.audit.trials import Planner, Trial
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import Verdict
from automedeval.rubrics import read_rubric

ROWS = rows_of(__file__)
RUBRIC = read_rubric("automedeval")
PAIRWISE = read_rubric("medical_pairwise")
READING = Perturbation("reading", "nothing", "be read")
ORDER = Perturbation("order", "order", "keep the order")
CASE = case_of(0)


def cases_of(count: int) -> Cases:
    return Cases([case_of(number) for number in range(count)], "made up")


def verdict(number: int, order: list, scores: list | None, **more: Any) -> Verdict:
    return verdict_of(case_of(number), scores, order=order, **more)


def reader_of(count: int, verdicts: list[Verdict], rubric=RUBRIC) -> ScoreReader:
    return ScoreReader(VerdictTable(cases_of(count), verdicts, rubric))


def share_of(reader, perturbation: Perturbation, cases: int) -> float:
    measured = reader.measure(perturbation)
    return value_of(measured.share, cases)


def test_pairs_that_an_order_turns_round_and_places_are_counted_by_hand():
    reader = reader_of(2, [verdict(*row) for row in ROWS["orders"]])
    order = reader.measure(ORDER)
    # Of the three pairs of orders, alder:birch is turned round in one; the others agree.
    turned = [1 / 3, 0, 0]
    assert value_of(order.share, 2) == pytest.approx(sum(turned) / 3)
    assert order.share.n == 3  # case 1 has one valid reading, and says nothing
    # The first place holds 5, 4, 3 and 2, half a point above the means of their verdicts; the last one 1, 2, 4 and 3.
    first = 0.5
    last = -0.5
    assert value_of(order.shift, 2) == pytest.approx(first - last)
    assert order.turned == [0, 1]
    assert share_of(reader, READING, 2) == 4 / 5


def preference(order: tuple, **choices: str) -> Verdict:
    """Return a verdict on the first two responses, with the criteria that they do not tie in."""
    told = dict.fromkeys(PAIRWISE.output_criteria, "tie") | choices
    return verdict(0, order, None, valid=True, choices=told, pair=MODELS[:2])


def test_choices_of_a_pairwise_judge_count_as_shares_of_criteria():
    ash, birch, _ = MODELS
    first = preference((0, 1), correctness=ash, harmfulness=birch, bias="neither")
    turned = preference((1, 0), correctness=birch, harmfulness=ash, bias="neither")
    reader = reader_of(1, [first, turned], PAIRWISE)
    assert 6 * reader.judged.own == pytest.approx([4, 2, 2, 4]), "harm is worse"
    assert reader.unit == "share of criteria won"
    assert share_of(reader, ORDER, 1) == 1
    level = reader_of(1, [first, preference((1, 0))], PAIRWISE)
    assert share_of(level, ORDER, 1) == 0


@each_row("count, order, why")
def test_order_is_undefined_where_it_was_not_changed(count, order, why):
    verdicts = [verdict(number, order, [1, 2, 3]) for number in range(count)]
    measured = reader_of(3, verdicts).measure(ORDER)
    assert why in measured.share.reason
    assert np.isnan(value_of(measured.share, 3))


CLEAN = Request(CASE, (1, 2, 0))
BEFORE = verdict(0, CLEAN.slots, [4, 2, 3], expected_scores=(4.0, 2.2, 3.0))
READER = reader_of(1, [BEFORE])


def perturbation_of(name: str) -> Perturbation:
    fields = dict(ROWS["perturbations"][name])
    edits = [Edit(**edit) for edit in fields.pop("edits", ())]
    return Perturbation(**fields, edits=edits)


PLANTED = perturbation_of("PLANTED")


def trial_of(perturbation: Perturbation) -> Trial:
    answers = READER.answers([CLEAN], [BEFORE])
    (trial,) = Planner(RUBRIC).plan(perturbation, [answers])
    return trial


@each_row("perturbation, scores, expected, first, shifts, hits, counted, lost")
def test_outcomes_of_a_trial(perturbation, scores, expected, first, shifts, hits, counted, lost):
    """The case's own verdict is `BEFORE`; a change of both sides has scores of its first side, too."""
    after = verdict(
        0, CLEAN.slots, scores, expected_scores=expected, valid=bool(scores or expected)
    )
    before = BEFORE if scores else replace(BEFORE, scores=None)
    if first:
        before = verdict(0, CLEAN.slots, first, expected_scores=first)
    trial = trial_of(perturbation_of(perturbation))
    outcome = READER.compare(trial, before, after)
    assert list(outcome.shifts) == pytest.approx(shifts)
    assert [outcome.hits, outcome.counted, outcome.lost] == [hits, counted, lost]
    assert outcome.asked == 1


def values(order: tuple, *expected: float | None) -> Verdict:
    return verdict(0, order, None, valid=True, expected_scores=expected)


def test_a_judge_without_a_scale_is_read_in_standard_deviations_and_shown_the_changed_answers():
    before = values((0, 1, 2), -2.0, -4.0, -3.0)
    in_points = reader_of(1, [before])
    assert (in_points.unit, in_points.judged.step) == ("points", 1.0), "its rubric has a scale"
    reader = reader_of(1, [before], rubric=None)
    answers = reader.answers([Request(CASE, (0, 1, 2))], [before])
    planner = Planner(RUBRIC, apart=True)
    (trial,) = planner.plan(PLANTED, [answers])
    assert trial.after.slots == (1,)
    step = np.std(before.expected_scores)
    after = values((1,), None, -1.5, None)
    outcome = reader.compare(trial, before, after)
    assert list(outcome.shifts) == pytest.approx([2.5 / step])
    (copied,) = planner.plan(perturbation_of("COPY"), [answers])
    assert copied.after.slots == (0, 1)
    # Numbers without a scale are never quite equal.
    for apart, hits in ((0.04, 0), (0.06, 1)):
        after = values((0, 1), -2.0, -2.0 + apart * step, None)
        outcome = reader.compare(copied, before, after)
        assert outcome.hits == hits


@each_row("scores, indices")
def test_empty_and_unread_answers_are_not_changed(scores, indices):
    case = case_of(0, responses=ROWS["responses, one empty"])
    known = verdict_of(case, (5, 1, 3))
    reader = ScoreReader(VerdictTable(Cases([case], "cases"), [known], RUBRIC))
    request = Request(case, (2, 1, 0))
    read = verdict_of(case, scores, order=request.slots)
    answers = reader.answers([request], [read])
    assert [answer.index for answer in answers] == indices


def says(*met: bool | None, place: int = 0) -> Verdict:
    checklist = {"met": list(met), "lowest": 0.1}
    return Verdict(CASE.id, "j", "checklist@1", (place,), valid=True, checklist=checklist)


@module_fixture
def criteria():
    """Return a reader of a case with criteria of 5, 3 and -4 points, and its answer."""
    case = case_of(0, ["m", "n"], criteria=ROWS["criteria of the case"])
    verdicts = [MET, says(None, False, None, place=1)]
    reader = CriteriaReader(VerdictTable(Cases([case], "cases"), verdicts))
    request = Request(case, (0,), checklist=True)
    return reader, [reader.answers([request], [MET])]


MET = says(False, True, True)


@each_row("met, hits, lost, rise")
def test_criteria_are_compared_and_unread_ones_counted_apart(met, hits, lost, rise, criteria):
    reader, answers = criteria
    (planted,) = Planner(read_rubric("checklist")).plan(PLANTED, answers)
    outcome = reader.compare(planted, MET, says(*met))
    assert [outcome.hits, outcome.lost, outcome.asked] == [hits, lost, 3]
    assert outcome.counted == 2 - lost
    assert list(outcome.shifts) == pytest.approx([rise])


def test_criteria_of_the_same_case_again_and_of_unchanged_ones(criteria):
    reader, answers = criteria
    (again,) = Planner(read_rubric("checklist")).plan(perturbation_of("REPEAT"), answers)
    other = reader.compare(again, MET, says(True, True, False))
    assert other.hits == 2
    unread = reader.compare(again, MET, says(True, False, None))
    assert unread.counted == 2
    assert share_of(reader, READING, 1) == 4 / 6
    assert share_of(reader, Perturbation("met", "nothing", "differ"), 1) == 2 / 4
