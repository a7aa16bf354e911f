"""Calibration: a few rated cases put any judge's scores on people's scale."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubles import likelihood_verdicts
from doubles.introspection_study import MODELS, case_of, verdict_of
from doubles.likelihood_verdicts import FEEDBACK, rated
from sklearn.isotonic import IsotonicRegression

from automedeval.meta_evaluation.calibration.scores import FEWEST, Calibration
from automedeval.records import Rating, RecordError, Verdict
from automedeval.stats.bootstrap import estimate, plain
from automedeval.stats.calibration_error import FOLDS, calibration_error

SHAPE = ((1.0, 1.0), (2.0, 1.2), (4.0, 3.4), (5.0, 4.0))  # how people rate what the judge scores


def scored(number: int, values: Sequence[float | None], **more: Any) -> Verdict:
    """Return a verdict with these expected scores, and whole ones near them."""
    whole = [value and round(value) for value in values]
    shown = tuple(place for place, value in enumerate(values) if value is not None)
    more = {"expected_scores": tuple(values)} | more
    return verdict_of(case_of(number), whole, order=shown, models=list(MODELS), **more)


def study(number: int = 60) -> list[Verdict]:
    drawn = np.random.default_rng(0).uniform(1, 5, (number, 3)).round(6)
    return [scored(at, values) for at, values in enumerate(drawn.tolist())]


def people(verdicts: Sequence[Verdict], noise: float = 0.0) -> list[Rating]:
    rng, ratings = np.random.default_rng(1), []
    for verdict in verdicts:
        means = np.interp(verdict.expected_scores, *zip(*SHAPE)) + rng.normal(0, noise, 3)
        ratings += rated(verdict, np.clip(means, 1, 4).tolist())
    return ratings


VERDICTS = study()
RATINGS, NOISY = people(VERDICTS), people(VERDICTS, 0.8)


def fit(verdicts: Sequence[Verdict] = VERDICTS, ratings: Sequence[Rating] = RATINGS) -> Calibration:
    return Calibration.fit(verdicts, ratings, FEEDBACK)


def test_a_rising_line_is_found_again():
    calibration, verdict = fit(), scored(99, [1.5, 3.0, 4.5])
    fresh = calibration.apply(verdict, "new")
    expected = np.interp([1.5, 3.0, 4.5], *zip(*SHAPE)).tolist()
    assert fresh.expected_scores == pytest.approx(expected, abs=0.03)
    assert (fresh.judge, fresh.rubric, fresh.valid) == ("new", "feedbackqa@1", True)
    # What the verdict was made of stays in it.
    assert (fresh.settings, fresh.models) == (calibration.fingerprint, verdict.models)
    kept = ("case_id", "order", "run")
    assert [getattr(fresh, name) for name in kept] == [getattr(verdict, name) for name in kept]
    assert calibration.source == "expected_scores"
    assert [calibration.facts[name] for name in ("cases", "responses", "ratings")] == [60, 180, 180]


def test_its_steps_are_those_of_an_independent_isotonic_regression():
    x = np.concatenate([verdict.expected_scores for verdict in VERDICTS])
    y = np.array([rating.score for rating in NOISY])
    steps = IsotonicRegression().fit_transform(x, y)
    levels = np.unique(np.round(steps, 6))
    centres, heights = zip(*fit(ratings=NOISY).knots)
    assert heights == pytest.approx(levels.tolist(), abs=1e-6)
    expected = [x[np.abs(steps - level) < 1e-5].mean() for level in levels]
    assert centres == pytest.approx(expected, abs=1e-5)


def test_readings_of_a_response_count_together_as_one():
    again = [replace(verdict, run=1) for verdict in VERDICTS]
    first, second = fit(ratings=NOISY), fit(VERDICTS + again, NOISY)
    assert first.knots == second.knots
    assert first.facts == second.facts
    assert fit(VERDICTS + again[:7], NOISY).knots == first.knots
    assert fit(VERDICTS[::-1], NOISY).to_dict() == first.to_dict()


def test_whole_scores_serve_where_a_verdict_has_no_others():
    verdicts = [*VERDICTS[:-1], replace(VERDICTS[-1], expected_scores=None)]
    calibration = fit(verdicts)
    assert calibration.source == "scores"
    assert {centre for centre, _ in calibration.knots} <= {1.0, 2.0, 3.0, 4.0, 5.0}
    fresh = calibration.apply(scored(99, [1.2, None, 4.9]), "new")
    assert fresh.expected_scores[1] is fresh.scores is None
    assert fresh.expected_scores[0] == pytest.approx(calibration.knots[0][1])
    with pytest.raises(RecordError, match="case 'case-99': the verdict has no scores"):
        calibration.apply(replace(scored(99, [1.0, 2.0, 3.0]), scores=None), "new")


def test_an_invalid_verdict_stays_invalid_and_gets_no_score():
    calibration, invalid = fit(), verdict_of(case_of(99), None)
    fresh = calibration.apply(invalid, "new")
    assert (fresh.valid, fresh.error) == (False, "no score line")
    assert fresh.scores is fresh.expected_scores is None
    assert (fresh.judge, fresh.rubric) == ("new", "feedbackqa@1")
    more = RATINGS + rated(invalid, (1, 1, 4))
    assert fit([*VERDICTS, invalid], more).knots == calibration.knots


def test_other_settings_are_refused_and_the_fingerprint_follows():
    calibration = fit()
    with pytest.raises(RecordError, match="case 'case-99': judged with other settings"):
        calibration.apply(scored(99, [1.0, 2.0, 3.0], settings="s2"), "new")
    changes = ({}, {"knots": ((1.0, 2.0),)}, {"source": "scores"}, {"settings": "s2"})
    assert len({replace(calibration, **change).fingerprint for change in changes}) == 4
    assert json.loads(json.dumps(calibration.to_dict()))["from"] == "expected_scores"


def test_what_nobody_rated_or_could_be_judged_says_nothing():
    strangers = rated(scored(900, [1.0, 2.0, 3.0]), (9, 9))
    strangers.append(replace(NOISY[0], model="a stranger"))
    more = fit([*VERDICTS, scored(951, [5.0, 1.0, 2.0])], NOISY + strangers)
    assert more.to_dict() == fit(ratings=NOISY).to_dict()
    assert fit(ratings=RATINGS[1:]).facts["responses"] == 179


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
    ratings, lines = likelihood_verdicts.people([*verdicts, last], 0.5), []
    ratings = [each for each in ratings if (each.case_id, each.model) != (last.case_id, MODELS[1])]
    for kind, score in (("unread", None), ("not shown", None), ("empty", 1.0)):
        calibration = fit([*verdicts, without_the_second(last, kind)], ratings)
        lines.append(calibration.knots)
        calibrated = calibration.apply(without_the_second(fresh, kind), "new")
        assert calibrated.expected_scores[1] == score, kind
    assert lines == lines[:1] * 3


FAULTS = {
    f"^9 rated cases .* needs {FEWEST} at least": [VERDICTS[:9]],
    "^0 rated cases with a valid verdict": [VERDICTS, []],
    "every response is rated 3": [VERDICTS, [replace(each, score=3) for each in RATINGS]],
    "ratings do not rise": [VERDICTS, [replace(each, score=5 - each.score) for each in RATINGS]],
    "is off feedbackqa@1's scale": [VERDICTS, [replace(RATINGS[0], score=5)]],
    "with several settings": [[*VERDICTS, scored(99, [1.0, 2.0, 3.0], settings="s2")]],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_nothing_can_be_learnt_from_is_refused(fault):
    with pytest.raises(RecordError, match=fault):
        fit(*FAULTS[fault])


def error_of(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Any:
    cases = int(case.max()) + 1
    return estimate(calibration_error(judge, people, case, cases), cases)


TENS = np.repeat(range(10), 2)


@pytest.mark.parametrize(
    ("judge", "gaps", "error"),
    [
        (TENS, [-2, 0, *[1, 0] * 9], 0.55),  # the mean distance of ten bins of two
        (TENS, [0] * 20, 0),
        # Each of a few values has its own bin.
        (np.repeat(range(1, 6), 20), [0] * 60 + [1] * 20 + [-1] * 20, 0.4),
        # A decile (0, 2, … 20) begins its bin: nine of two and one of three.
        (np.arange(21), [1, -1] * 10 + [0], 0),
    ],
)
def test_the_error_is_the_mean_distance_of_the_bins(judge, gaps, error):
    found = error_of(judge + 0.0, judge + np.array(gaps, float), np.arange(len(judge)))
    assert found.value == pytest.approx(error)


def test_after_is_measured_on_cases_that_the_line_was_not_learnt_from():
    verdicts, ratings = sorted(study(30), key=lambda verdict: verdict.case_id), []
    drawn = np.random.default_rng(2).integers(1, 5, (30, 3))
    for verdict, scores in zip(verdicts, drawn.tolist()):
        ratings += rated(verdict, scores)
    after = fit(verdicts, ratings).facts["calibration_error"]["after"]
    apart = []
    for place, verdict in enumerate(verdicts):
        others = [other for at, other in enumerate(verdicts) if at % FOLDS != place % FOLDS]
        apart.append(fit(others, ratings).apply(verdict, "new").expected_scores)
    error = error_of(np.ravel(apart), np.ravel(drawn) + 0.0, np.repeat(range(30), 3))
    assert after["value"] == pytest.approx(error.value, abs=1e-6)
    assert after["low"] <= after["value"] <= after["high"]


def test_the_error_of_a_good_judge_has_an_interval_that_reaches_down():
    rng, held, within = np.random.default_rng(0), 0, 0
    case = np.repeat(range(60), 3)
    for _ in range(40):
        judge = rng.uniform(1.5, 4.5, 180)
        people = np.clip(judge + rng.normal(0, 0.4, 60)[case] + rng.normal(0, 0.5, 180), 1, 5)
        error, worse = (plain(error_of(each, people, case)) for each in (judge, judge + 0.5))
        # The error of 400,000 draws, but for clipping nothing.
        held += error["low"] <= 0.017 <= error["high"]
        assert error["low"] <= error["value"] <= error["high"]
        within += error["value"] <= error["chance"]
        assert worse["value"] > worse["chance"]
    assert min(held, within) >= 36
