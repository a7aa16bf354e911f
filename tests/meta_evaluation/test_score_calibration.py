"""Calibration: a few rated cases put any judge's scores on people's scale."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubles import likelihood_verdicts
from doubles.introspection_study import MODELS, case_of, verdict_of
from doubles.likelihood_verdicts import FEEDBACK, rated
from sklearn.isotonic import IsotonicRegression
from tables import each_row

from automedeval.meta_evaluation.calibration.scores import FEWEST, Calibration
from automedeval.records import Rating, RecordError, Verdict
from automedeval.stats.bootstrap import estimate, plain
from automedeval.stats.calibration_error import calibration_error
from automedeval.stats.folds import FOLDS


def people_of(judge: Sequence[float]) -> np.ndarray:
    """Return how people rate what the judge scores."""
    return np.interp(judge, [1.0, 2.0, 4.0, 5.0], [1.0, 1.2, 3.4, 4.0])


def scored(number: int, values: Sequence[float | None], **more: Any) -> Verdict:
    """Return a verdict with these expected scores, and whole ones near them."""
    whole = [value and round(value) for value in values]
    shown = [place for place, value in enumerate(values) if value is not None]
    fields = {"expected_scores": tuple(values), "order": tuple(shown), "models": [*MODELS]}
    return verdict_of(case_of(number), whole, **fields | more)


def study(number: int = 60) -> list[Verdict]:
    drawn = np.random.default_rng(0).uniform(1, 5, (number, 3)).round(6)
    return [scored(at, values) for at, values in enumerate(drawn.tolist())]


def people(verdicts: Sequence[Verdict], noise: float = 0.0) -> list[Rating]:
    rng = np.random.default_rng(1)
    ratings = []
    for verdict in verdicts:
        means = people_of(verdict.expected_scores) + rng.normal(0, noise, 3)
        scores = np.clip(means, 1, 4)
        ratings += rated(verdict, scores.tolist())
    return ratings


VERDICTS = study()
RATINGS = people(VERDICTS)
NOISY = people(VERDICTS, 0.8)


def fit(verdicts: Sequence[Verdict] = VERDICTS, ratings: Sequence[Rating] = RATINGS) -> Calibration:
    placed = [("ratings", rating) for rating in ratings]
    return Calibration.fit(verdicts, placed, FEEDBACK)


def renamed(verdict: Verdict, calibration: Calibration, **made: Any) -> Verdict:
    """Return a verdict by the new judge: what it was made of stays in it."""
    by = {"judge": "new", "rubric": "feedbackqa@1", "settings": calibration.fingerprint}
    return replace(verdict, **by | made)


def test_a_rising_line_is_found_again():
    calibration = fit()
    verdict = scored(99, [1.5, 3.0, 4.5])
    fresh = calibration.apply(verdict, "new")
    expected = people_of(verdict.expected_scores)
    assert fresh.expected_scores == pytest.approx(expected.tolist(), abs=0.03)
    note = "(Scores in this text are those before the calibration.)"
    rationale = f"{verdict.rationale}\n\n{note}"
    made = {"scores": None, "expected_scores": fresh.expected_scores, "rationale": rationale}
    assert fresh == renamed(verdict, calibration, **made)
    assert calibration.source == "expected_scores"


def test_its_steps_are_those_of_an_independent_isotonic_regression():
    x = np.concatenate([verdict.expected_scores for verdict in VERDICTS])
    y = np.array([rating.score for rating in NOISY])
    steps = IsotonicRegression().fit_transform(x, y)
    levels = np.unique(np.round(steps, 6))
    knots = np.array(fit(ratings=NOISY).knots)
    assert knots[:, 1] == pytest.approx(levels, abs=1e-6)
    expected = []
    for level in levels:
        on_step = np.isclose(steps, level, rtol=0, atol=1e-5)
        expected.append(x[on_step].mean())
    assert knots[:, 0] == pytest.approx(expected, abs=1e-5)


def test_readings_of_a_response_count_together_as_one():
    again = [replace(verdict, run=1) for verdict in VERDICTS]
    first = fit(ratings=NOISY)
    second = fit(VERDICTS + again, NOISY)
    assert first.knots == second.knots
    assert first.facts == second.facts
    of_some = fit(VERDICTS + again[:7], NOISY)
    turned = fit(VERDICTS[::-1], NOISY)
    assert of_some.knots == first.knots
    assert turned.to_dict() == first.to_dict()


def test_whole_scores_serve_where_a_verdict_has_no_others():
    verdicts = [*VERDICTS[:-1], replace(VERDICTS[-1], expected_scores=None)]
    calibration = fit(verdicts)
    assert calibration.source == "scores"
    knots = np.array(calibration.knots)
    assert {*knots[:, 0]} <= {*range(1, 6)}
    fresh = calibration.apply(scored(99, [1.2, None, 4.9]), "new")
    assert fresh.scores is None
    first, second, _ = fresh.expected_scores
    assert second is None
    assert first == pytest.approx(knots[0, 1])
    unscored = replace(scored(99, [1.0, 2.0, 3.0]), scores=None)
    with pytest.raises(RecordError, match="the verdict has no scores"):
        calibration.apply(unscored, "new")


def test_an_invalid_verdict_stays_invalid_and_gets_no_score():
    calibration = fit()
    invalid = verdict_of(case_of(99), None)
    fresh = calibration.apply(invalid, "new")
    assert fresh == renamed(invalid, calibration)
    more = RATINGS + rated(invalid, (1, 1, 4))
    assert fit([*VERDICTS, invalid], more).knots == calibration.knots


def test_the_fingerprint_follows_what_was_learnt():
    calibration = fit()
    fingerprints = {calibration.fingerprint}
    for change in ({"knots": ((1.0, 2.0),)}, {"source": "scores"}, {"settings": "s2"}):
        changed = replace(calibration, **change)
        fingerprints.add(changed.fingerprint)
    assert len(fingerprints) == 4


def test_what_nobody_rated_or_could_be_judged_says_nothing():
    strangers = rated(scored(900, [1.0, 2.0, 3.0]), (9, 9))
    strangers.append(replace(NOISY[0], model="a stranger"))
    unrated = scored(951, [5.0, 1.0, 2.0])
    more = fit([*VERDICTS, unrated], NOISY + strangers)
    assert more.to_dict() == fit(ratings=NOISY).to_dict()
    fewer = fit(ratings=RATINGS[1:])
    assert fewer.facts["responses"] == 179


def without_the_second(verdict: Verdict, kind: str) -> Verdict:
    """Return a verdict that says nothing of the second response."""
    first, _, third = verdict.expected_scores
    if kind == "unread":
        return replace(verdict, expected_scores=(first, None, third))
    outlier = replace(verdict, expected_scores=(first, -9.0, third))
    if kind == "not shown":
        return replace(outlier, order=(0, 2))
    return replace(outlier, empty=MODELS[1:2])


def test_of_responses_that_nothing_is_said_of_only_an_empty_one_has_a_score_the_lowest():
    *verdicts, last, fresh = likelihood_verdicts.study(22)
    ratings = []
    lines = []
    for each in likelihood_verdicts.people([*verdicts, last], 0.5):
        if each.case_id != last.case_id or each.model != MODELS[1]:
            ratings.append(each)
    for kind, score in (("unread", None), ("not shown", None), ("empty", 1.0)):
        calibration = fit([*verdicts, without_the_second(last, kind)], ratings)
        lines.append(calibration.knots)
        calibrated = calibration.apply(without_the_second(fresh, kind), "new")
        assert calibrated.expected_scores[1] == score, kind
    assert lines == lines[:1] * 3


FALLING = [replace(each, score=5 - each.score) for each in RATINGS]
FAULTS = {
    f"^9 rated cases .* needs {FEWEST} at least": [VERDICTS[:9]],
    "^no rating is of a case": [VERDICTS, []],
    "ratings do not rise": [VERDICTS, FALLING],
    "is off feedbackqa@1's scale": [VERDICTS, [replace(RATINGS[0], score=5)]],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_nothing_can_be_learnt_from_is_refused(fault):
    with pytest.raises(RecordError, match=fault):
        fit(*FAULTS[fault])


def error_of(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Any:
    cases = int(case.max()) + 1
    return estimate(calibration_error(judge, people, case, cases), cases)


@each_row("judge, gaps, error")
def test_the_error_is_the_mean_distance_of_the_bins(judge, gaps, error):
    judge = np.array(judge, float)
    people = judge + gaps
    cases = np.arange(len(judge))
    found = error_of(judge, people, cases)
    assert found.value == pytest.approx(error)


def test_after_is_measured_on_cases_that_the_line_was_not_learnt_from():
    verdicts = sorted(study(30), key=lambda verdict: verdict.case_id)
    ratings = []
    drawn = np.random.default_rng(2).integers(1, 5, (30, 3))
    for verdict, scores in zip(verdicts, drawn.tolist()):
        ratings += rated(verdict, scores)
    after = fit(verdicts, ratings).facts["calibration_error"]["after"]
    apart = []
    for place, verdict in enumerate(verdicts):
        others = [other for at, other in enumerate(verdicts) if at % FOLDS != place % FOLDS]
        fresh = fit(others, ratings).apply(verdict, "new")
        apart += fresh.expected_scores
    people = np.ravel(drawn) + 0.0
    cases = np.repeat(range(30), 3)
    error = error_of(np.array(apart), people, cases)
    assert after["value"] == pytest.approx(error.value, abs=1e-6)
    assert after["low"] <= after["value"] <= after["high"]


def test_the_error_of_a_good_judge_has_an_interval_that_reaches_down():
    rng = np.random.default_rng(0)
    held = 0
    within = 0
    case = np.repeat(range(60), 3)
    for _ in range(40):
        judge = rng.uniform(1.5, 4.5, 180)
        of_cases = rng.normal(0, 0.4, 60)
        of_responses = rng.normal(0, 0.5, 180)
        people = np.clip(judge + of_cases[case] + of_responses, 1, 5)
        error = plain(error_of(judge, people, case))
        worse = plain(error_of(judge + 0.5, people, case))
        # The error of 400,000 draws, but for clipping nothing.
        held += error["low"] <= 0.017 <= error["high"]
        assert error["low"] <= error["value"] <= error["high"]
        within += error["value"] <= error["chance"]
        assert worse["value"] > worse["chance"]
    assert min(held, within) >= 36
