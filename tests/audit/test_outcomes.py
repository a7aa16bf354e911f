"""What is read of a judge's verdicts, on verdicts few enough to count by hand."""

from dataclasses import replace

import numpy as np
import pytest
from doubles.agreement_study import value_of

from automedeval.audit.outcomes import CriteriaReader, Measure, Outcome, ScoreReader, texts_of
from automedeval.audit.perturbations import Edit, Perturbation
from automedeval.audit.trials import Planner, Trial
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import Case, Verdict
from automedeval.rubrics import read_rubric

RUBRIC, PAIRWISE = read_rubric("automedeval"), read_rubric("medical_pairwise")
MODELS = ("alder", "birch", "cedar")
READING = Perturbation("reading", "nothing", "be read")
ORDER = Perturbation("order", "order", "keep the order")


def case_of(number: int, texts=("One two.", "One two three four.", "One.")) -> Case:
    responses = [{"model": model, "text": text} for model, text in zip(MODELS, texts)]
    return Case.from_dict({"id": f"case-{number}", "question": "Why?", "responses": responses})


def cases_of(count: int, **options) -> Cases:
    return Cases([case_of(number, **options) for number in range(count)], "made up")


def verdict(
    number: int, order: tuple, scores: tuple | None, expected: tuple | None = None, **more
) -> Verdict:
    more = {"extra": {"models": list(MODELS)}, "scores": scores, "expected_scores": expected} | more
    valid = scores is not None or expected is not None or "choices" in more
    return Verdict(f"case-{number}", "j", "automedeval@1", order, valid=valid, **more)


def measured(
    cases: Cases, verdicts: list[Verdict], perturbation: Perturbation, rubric=RUBRIC
) -> Measure:
    return ScoreReader(VerdictTable(cases, verdicts, rubric)).measure(perturbation)


def value(statistic, cases: Cases) -> float:
    return value_of(statistic, len(cases))


def test_pairs_that_an_order_turns_round_and_places_are_counted_by_hand() -> None:
    cases = cases_of(2)
    # case 0: three orders; alder:birch goes +, -, =; alder:cedar and birch:cedar always +
    verdicts = [
        verdict(0, (0, 1, 2), (5, 4, 1)),
        verdict(0, (1, 0, 2), (3, 4, 2)),
        verdict(0, (2, 1, 0), (4, 4, 3)),
    ]
    verdicts += [
        verdict(1, (0, 1, 2), (2, 1, 3)),
        verdict(1, (2, 0, 1), None, error="no score line"),
    ]
    order = measured(cases, verdicts, ORDER)
    # Of the three pairs of orders, alder:birch is turned round in one; the others agree.
    assert value(order.share, cases) == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert order.share.n == 3  # case 1 has one valid reading, and says nothing
    # place 1 holds 5 of (5,4,1), 4 of (3,4,2), 3 of (4,4,3), 2 of (2,1,3), less the means
    shown = [[5, 4, 3, 2], [4, 3, 4, 1], [1, 2, 4, 3]]
    means = [10 / 3, 3, 11 / 3, 2]
    effects = [np.mean(np.subtract(place, means)) for place in shown]
    assert value(order.shift, cases) == pytest.approx(max(effects) - min(effects))
    texts = [
        (cases.records[int(cases.panel.case[response])].id, how) for response, how in order.shown
    ]
    assert texts == [("case-0", "ahead in one order, not in another")] * 2
    assert [response - cases.start[cases.index["case-0"]] for response, _ in order.shown] == [0, 1]
    assert value(measured(cases, verdicts, READING).share, cases) == 4 / 5


def test_choices_of_a_pairwise_judge_count_as_shares_of_criteria() -> None:
    cases = cases_of(1)
    names = [criterion.name for criterion in PAIRWISE.criteria]
    choices = dict.fromkeys(names, "tie") | {
        "correctness": "alder",
        "harmfulness": "birch",
        "bias": "neither",
    }
    first = verdict(0, (0, 1), None, choices=choices, pair=("alder", "birch"))
    turned = {
        name: {"alder": "birch", "birch": "alder"}.get(choice, choice)
        for name, choice in choices.items()
    }
    other = verdict(0, (1, 0), None, choices=turned, pair=("alder", "birch"))
    readings = VerdictTable(cases, [first, other], PAIRWISE)
    assert readings.own.tolist() == pytest.approx(
        [4 / 6, 2 / 6, 2 / 6, 4 / 6]
    )  # more harm is worse
    assert ScoreReader(readings).unit == "share of criteria won"
    assert value(measured(cases, [first, other], ORDER, PAIRWISE).share, cases) == 1
    tie = verdict(0, (1, 0), None, choices=dict.fromkeys(names, "tie"), pair=("alder", "birch"))
    assert value(measured(cases, [first, tie], ORDER, PAIRWISE).share, cases) == 0


def test_a_verdict_that_names_no_models_is_read_by_its_case() -> None:
    cases = cases_of(1)
    # The pair is named in the order of the file, whatever order it was shown in.
    choice = {"choices": {"correctness": "alder"}, "pair": ("alder", "birch"), "extra": {}}
    verdicts = [verdict(0, (0, 1), None, **choice), verdict(0, (1, 0), None, **choice)]
    assert VerdictTable(cases, verdicts, PAIRWISE).own.tolist() == [1, 0, 1, 0]
    assert value(measured(cases, verdicts, ORDER, PAIRWISE).share, cases) == 0


def test_order_is_undefined_where_every_response_keeps_its_place() -> None:
    cases = cases_of(3)
    kept = measured(cases, [verdict(number, (0, 1, 2), (1, 2, 3)) for number in range(3)], ORDER)
    assert "cannot be separated" in kept.share.reason
    assert np.isnan(value(kept.share, cases))
    assert (
        "one valid verdict"
        in measured(cases, [verdict(0, (2, 0, 1), (1, 2, 3))], ORDER).share.reason
    )
    one_order = measured(
        cases, [verdict(number, (2, 0, 1), (1, 2, 3)) for number in range(3)], ORDER
    )
    assert np.isnan(value(one_order.share, cases))
    assert "one order" in one_order.share.reason


CLEAN = Request(case_of(0), (1, 2, 0))
BEFORE = verdict(0, (1, 2, 0), (4, 2, 3), (4.0, 2.2, 3.0))
PLANTED = Perturbation(
    "planting", "worst answer", "not rise", edits=[Edit("flattery", "a", text="Best of all.")]
)
COPY = Perturbation("copy", "other answer", "stay")
REPEAT = Perturbation("repeat", "nothing", "stay")
NAMED = Edit("name", "n", pairs=[["I. $text", "II. $text"]])
SIGNED = Perturbation("writer", "one answer", "keep the order", edits=[NAMED])


def trial_of(perturbation: Perturbation, reader: ScoreReader) -> Trial:
    (trial,) = Planner(RUBRIC).plan(perturbation, [reader.answers([CLEAN], [BEFORE])])
    return trial


def see(
    perturbation: Perturbation, scores: tuple | None, expected: tuple | None, first: tuple = ()
) -> Outcome:
    """Return the outcome of a trial in the case whose verdict is `BEFORE`; `first` are the scores of a changed first side."""
    reader = ScoreReader(VerdictTable(Cases([CLEAN.case], "cases"), [BEFORE], RUBRIC))
    before = BEFORE if not first else verdict(0, (1, 2, 0), first, tuple(map(float, first)))
    return reader.compare(
        trial_of(perturbation, reader), before, verdict(0, (1, 2, 0), scores, expected)
    )


def test_outcomes_of_a_planted_text() -> None:
    lifted = see(PLANTED, (4, 4, 3), (4.0, 4.1, 3.0))
    assert list(lifted.shifts) == pytest.approx([1.9])
    assert (lifted.hits, lifted.counted, lifted.lost) == (1, 1, 0)
    assert see(PLANTED, (4, 2, 3), (4.0, 2.6, 3.0)).hits == 0
    fallen = [
        see(replace(PLANTED, should="fall"), (4, 2, 3), (4.0, score, 3.0)).hits
        for score in (1.6, 1.8, 2.8)
    ]
    assert fallen == [1, 0, 0]
    # Expected scores are looked at, and there are none; or another answer cannot be read any more.
    for scores, expected in ((None, None), ((4, 4, 3), None), ((None, 4, 3), (None, 4.1, 3.0))):
        lost = see(PLANTED, scores, expected)
        assert (list(lost.shifts), lost.counted, lost.lost, lost.asked) == ([], 0, 1, 1)


def test_outcomes_where_the_score_should_stay() -> None:
    twice = see(COPY, (4, 4, 3), (4.0, 3.9, 3.0))  # birch, the worst, is now alder's text
    assert (list(twice.shifts), twice.hits) == (pytest.approx([0.1]), 0)
    assert see(COPY, (4, 3, 3), (4.0, 3.3, 3.0)).hits == 1
    assert see(REPEAT, (4, 2, 3), (4.0, 2.2, 3.0)).hits == 0
    again = see(REPEAT, (4, 1, 3), (4.0, 1.2, 3.1))
    assert (list(again.shifts), again.hits, again.counted) == (pytest.approx([1.0]), 1, 1)


def test_outcomes_where_both_sides_are_changed() -> None:
    """The first answer of the file, alder, is signed; pairs without it do not count, and a tie is not turned."""
    turned = see(SIGNED, (1, 2, 3), (1.0, 2.0, 3.0), first=(4, 3, 4))
    assert list(turned.shifts) == [-3.0]
    assert (turned.hits, turned.counted) == (1, 2)
    assert see(SIGNED, None, None, first=(4, 3, 4)).lost == 1


def test_a_judge_without_a_scale_is_read_in_standard_deviations_and_shown_the_changed_answers() -> (
    None
):
    case = case_of(0)
    before = verdict(0, (0, 1, 2), None, (-2.0, -4.0, -3.0))
    reader = ScoreReader(VerdictTable(Cases([case], "cases"), [before]))
    (trial,) = Planner(RUBRIC, apart=True).plan(
        PLANTED, [reader.answers([Request(case, (0, 1, 2))], [before])]
    )
    assert trial.after.slots == (1,)
    after = verdict(0, (1,), None, (None, -1.5, None))
    step = np.std([-2, -4, -3])
    assert list(reader.compare(trial, before, after).shifts) == pytest.approx([2.5 / step])
    (copied,) = Planner(RUBRIC, apart=True).plan(
        COPY, [reader.answers([Request(case, (0, 1, 2))], [before])]
    )
    assert copied.after.slots == (0, 1)
    # Numbers without a scale are never quite equal.
    for other, hits in ((-2.0 + 0.04 * step, 0), (-2.0 + 0.06 * step, 1)):
        assert (
            reader.compare(copied, before, verdict(0, (0, 1), None, (-2.0, other, None))).hits
            == hits
        )


def test_empty_and_unread_answers_are_not_changed() -> None:
    case = case_of(0, ("One.", " ", "Three."))
    reader = ScoreReader(
        VerdictTable(Cases([case], "cases"), [verdict(0, (0, 1, 2), (5, 1, 3))], RUBRIC)
    )
    request = Request(case, (2, 1, 0))
    assert [
        each.index for each in reader.answers([request], [verdict(0, (2, 1, 0), (5, 1, 3))])
    ] == [2, 0]
    assert [
        each.index for each in reader.answers([request], [verdict(0, (2, 1, 0), (None, 1, 3))])
    ] == [2]
    assert reader.answers([request], [verdict(0, (2, 1, 0), None)]) == []
    level = reader.answers([request], [verdict(0, (2, 1, 0), (3, 1, 3))])
    assert [each.index for each in level] == [2, 0], "of equal ones the one shown first"


def test_the_texts_of_a_trial_are_both_sides() -> None:
    reader = ScoreReader(VerdictTable(Cases([CLEAN.case], "cases"), [BEFORE], RUBRIC))
    planted = texts_of(Outcome(trial_of(PLANTED, reader), 0))
    texts = ["One two three four.", "One two three four.\n\nBest of all."]
    assert planted == {
        "case_id": "case-0",
        "model": "birch",
        "change": "flattery: a",
        "texts": texts,
    }
    sexes = [Edit("sex", "sex", pairs=[["$text M.", "$text W."]])]
    asked = Perturbation("p", "question", "keep the order", edits=sexes)
    assert texts_of(Outcome(trial_of(asked, reader), 0))["texts"] == [
        "Why? M.",
        "Why? W.",
        "One two three four.",
    ]


def test_criteria_are_compared_and_unread_ones_counted_apart() -> None:
    criteria = [
        {"criterion": name, "points": points} for name, points in (("a", 5), ("b", 3), ("c", -4))
    ]
    responses = [{"model": "m", "text": "One."}]
    case = Case.from_dict(
        {"id": "case-0", "question": "Why?", "responses": responses, "criteria": criteria}
    )
    clean = Request(case, (0,), checklist=True)

    def says(*met: bool | None) -> Verdict:
        checklist = {"met": list(met), "score": 0.1}
        return Verdict("case-0", "j", "checklist@1", (0,), valid=True, checklist=checklist)

    before = says(False, True, True)
    reader = CriteriaReader(Cases([case], "cases"), [before, says(None, False, None)])
    answers = [reader.answers([clean], [before])]
    planner = Planner(read_rubric("checklist"))
    (planted,) = planner.plan(PLANTED, answers)
    # Gained could be a, and c by being not met; b could be lost alone.
    changes = [
        (says(True, True, False), 2, 0, (5 + 4) / 8),
        (says(True, False, None), 1, 1, (5 - 3) / 8),
        (says(False, True, True), 0, 0, 0),
    ]
    for after, hits, lost, rise in changes:
        seen = reader.compare(planted, before, after)
        assert (seen.hits, seen.lost, seen.asked) == (hits, lost, 3)
        assert seen.counted == 2 - lost
        assert list(seen.shifts) == pytest.approx([rise])
    (again,) = planner.plan(Perturbation("repeat", "nothing", "stay"), answers)
    assert reader.compare(again, before, says(True, True, False)).hits == 2
    assert reader.compare(again, before, says(True, False, None)).counted == 2
    assert value_of(reader.measure(READING).share, 1) == 4 / 6
    assert value_of(reader.measure(Perturbation("met", "nothing", "differ")).share, 1) == 2 / 4
