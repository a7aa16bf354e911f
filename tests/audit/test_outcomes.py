"""What is read of a judge's verdicts, on verdicts few enough to count by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubles.agreement_study import value_of
from factories import MODELS, case_of, verdict_of
from tables import rows_of

from automedeval.audit.outcomes import CriteriaReader, ScoreReader
from automedeval.audit.perturbations import Edit, Perturbation
from automedeval.audit.trials import Planner, Trial
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import Verdict
from automedeval.rubrics import read_rubric

ROWS = rows_of(__file__)
RUBRIC, PAIRWISE = read_rubric("automedeval"), read_rubric("medical_pairwise")
READING = Perturbation("reading", "nothing", "be read")
ORDER = Perturbation("order", "order", "keep the order")
CASE = case_of(0)


def cases_of(count: int) -> Cases:
    return Cases([case_of(number) for number in range(count)], "made up")


def verdict(number: int, order: list, scores: list | None, **more: Any) -> Verdict:
    return verdict_of(case_of(number), scores, order=order, **more)


def reader_of(count: int, verdicts: list[Verdict], rubric=RUBRIC) -> ScoreReader:
    return ScoreReader(VerdictTable(cases_of(count), verdicts, rubric))


def test_pairs_that_an_order_turns_round_and_places_are_counted_by_hand():
    reader = reader_of(2, [verdict(*row) for row in ROWS["orders"]])
    order = reader.measure(ORDER)
    # Of the three pairs of orders, alder:birch is turned round in one; the others agree.
    assert value_of(order.share, 2) == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert order.share.n == 3  # case 1 has one valid reading, and says nothing
    # The first place holds 5, 4, 3 and 2, half a point above the means of their verdicts; the last one 1, 2, 4 and 3.
    assert value_of(order.shift, 2) == pytest.approx(0.5 - -0.5)
    assert order.shown == [(place, "ahead in one order, not in another") for place in (0, 1)]
    assert value_of(reader.measure(READING).share, 2) == 4 / 5


def preference(order: tuple, **choices: str) -> Verdict:
    """Return a verdict on the first two responses, with the criteria that they do not tie in."""
    told = dict.fromkeys(PAIRWISE.output_criteria, "tie") | choices
    return verdict(0, order, None, valid=True, choices=told, pair=MODELS[:2])


def test_choices_of_a_pairwise_judge_count_as_shares_of_criteria():
    ash, birch, _ = MODELS
    first = preference((0, 1), correctness=ash, harmfulness=birch, bias="neither")
    turned = preference((1, 0), correctness=birch, harmfulness=ash, bias="neither")
    reader = reader_of(1, [first, turned], PAIRWISE)
    assert reader.judged.own.tolist() == pytest.approx(
        [4 / 6, 2 / 6, 2 / 6, 4 / 6]
    )  # harm is worse
    assert reader.unit == "share of criteria won"
    assert value_of(reader.measure(ORDER).share, 1) == 1
    level = reader_of(1, [first, preference((1, 0))], PAIRWISE)
    assert value_of(level.measure(ORDER).share, 1) == 0


@pytest.mark.parametrize(
    ("count", "order", "why"), ROWS["test_order_is_undefined_where_it_was_not_changed"]
)
def test_order_is_undefined_where_it_was_not_changed(count, order, why):
    verdicts = [verdict(number, order, [1, 2, 3]) for number in range(count)]
    share = reader_of(3, verdicts).measure(ORDER).share
    assert why in share.reason
    assert np.isnan(value_of(share, 3))


CLEAN = Request(CASE, (1, 2, 0))
BEFORE = verdict(0, CLEAN.slots, [4, 2, 3], expected_scores=(4.0, 2.2, 3.0))
PLANTED = Perturbation(
    "planting", "worst answer", "not rise", edits=[Edit("flattery", "a", text="Best of all.")]
)
SIGNED = [Edit("name", "n", pairs=[["I. $text", "II. $text"]])]
PERTURBATIONS = {
    "PLANTED": PLANTED,
    "SPOILT": replace(PLANTED, should="fall"),
    "COPY": Perturbation("copy", "other answer", "stay"),
    "REPEAT": Perturbation("repeat", "nothing", "stay"),
    "SIGNED": Perturbation("writer", "one answer", "keep the order", edits=SIGNED),
}
READER = ScoreReader(VerdictTable(Cases([CASE], "cases"), [BEFORE], RUBRIC))


def trial_of(perturbation: Perturbation) -> Trial:
    (trial,) = Planner(RUBRIC).plan(perturbation, [READER.answers([CLEAN], [BEFORE])])
    return trial


OUTCOMES = ROWS["test_outcomes_of_a_trial"]


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_of_a_trial(name):
    """The case's own verdict is `BEFORE`; a change of both sides has scores of its first side, too."""
    perturbation, scores, expected, first, *seen = OUTCOMES[name]
    after = verdict(0, CLEAN.slots, scores, expected_scores=expected, valid=bool(scores))
    before = verdict(0, CLEAN.slots, first, expected_scores=first) if first else BEFORE
    outcome = READER.compare(trial_of(PERTURBATIONS[perturbation]), before, after)
    counts = [outcome.hits, outcome.counted, outcome.lost]
    assert [list(outcome.shifts), *counts] == [pytest.approx(seen[0]), *seen[1:]]
    assert outcome.asked == 1


def values(order: tuple, *expected: float | None) -> Verdict:
    return verdict(0, order, None, valid=True, expected_scores=expected)


def test_a_judge_without_a_scale_is_read_in_standard_deviations_and_shown_the_changed_answers():
    before = values((0, 1, 2), -2.0, -4.0, -3.0)
    reader = ScoreReader(VerdictTable(Cases([CASE], "cases"), [before]))
    answers = reader.answers([Request(CASE, (0, 1, 2))], [before])
    planner = Planner(RUBRIC, apart=True)
    (trial,) = planner.plan(PLANTED, [answers])
    assert trial.after.slots == (1,)
    step = np.std([-2, -4, -3])
    outcome = reader.compare(trial, before, values((1,), None, -1.5, None))
    assert list(outcome.shifts) == pytest.approx([2.5 / step])
    (copied,) = planner.plan(PERTURBATIONS["COPY"], [answers])
    assert copied.after.slots == (0, 1)
    # Numbers without a scale are never quite equal.
    for apart, hits in ((0.04, 0), (0.06, 1)):
        after = values((0, 1), -2.0, -2.0 + apart * step, None)
        assert reader.compare(copied, before, after).hits == hits


def test_a_judge_of_expected_scores_alone_is_read_in_points_where_its_rubric_has_a_scale():
    reader = reader_of(1, [values((0, 1, 2), 2.0, 4.0, 3.0)])
    assert (reader.unit, reader.judged.step) == ("points", 1.0)


@pytest.mark.parametrize(
    ("scores", "indices"), ROWS["test_empty_and_unread_answers_are_not_changed"]
)
def test_empty_and_unread_answers_are_not_changed(scores, indices):
    texts = zip(MODELS, ("One.", " ", "Three."))
    case = case_of(0, responses=[{"model": model, "text": text} for model, text in texts])
    known = verdict_of(case, (5, 1, 3))
    reader = ScoreReader(VerdictTable(Cases([case], "cases"), [known], RUBRIC))
    request = Request(case, (2, 1, 0))
    answers = reader.answers([request], [verdict_of(case, scores, order=request.slots)])
    assert [each.index for each in answers] == indices


def says(*met: bool | None) -> Verdict:
    checklist = {"met": list(met), "score": 0.1}
    return Verdict(CASE.id, "j", "checklist@1", (0,), valid=True, checklist=checklist)


@pytest.fixture(scope="module")
def criteria() -> tuple[CriteriaReader, list]:
    """Return a reader of a case with criteria of 5, 3 and -4 points, and its answer."""
    points = {"a": 5, "b": 3, "c": -4}
    listed = [{"criterion": name, "points": worth} for name, worth in points.items()]
    case = case_of(0, ["m"], criteria=listed)
    reader = CriteriaReader(Cases([case], "cases"), [MET, says(None, False, None)])
    return reader, [reader.answers([Request(case, (0,), checklist=True)], [MET])]


MET = says(False, True, True)


@pytest.mark.parametrize(("met", "hits", "lost", "rise"), ROWS["criteria"])
def test_criteria_are_compared_and_unread_ones_counted_apart(met, hits, lost, rise, criteria):
    reader, answers = criteria
    (planted,) = Planner(read_rubric("checklist")).plan(PLANTED, answers)
    outcome = reader.compare(planted, MET, says(*met))
    assert (outcome.hits, outcome.lost, outcome.asked) == (hits, lost, 3)
    assert outcome.counted == 2 - lost
    assert list(outcome.shifts) == pytest.approx([rise])


def test_criteria_of_the_same_case_again_and_of_unchanged_ones(criteria):
    reader, answers = criteria
    (again,) = Planner(read_rubric("checklist")).plan(PERTURBATIONS["REPEAT"], answers)
    assert reader.compare(again, MET, says(True, True, False)).hits == 2
    assert reader.compare(again, MET, says(True, False, None)).counted == 2
    assert value_of(reader.measure(READING).share, 1) == 4 / 6
    assert value_of(reader.measure(Perturbation("met", "nothing", "differ")).share, 1) == 2 / 4
