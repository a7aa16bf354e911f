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

from automedeval.meta_evaluation.calibration.scores import FEWEST, Calibration, rising
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


def study(number: int = 60, seed: int = 0) -> list[Verdict]:
    rng = np.random.default_rng(seed)
    return [scored(at, np.round(rng.uniform(1, 5, 3), 6).tolist()) for at in range(number)]


def people(verdicts: Sequence[Verdict], noise: float = 0.0, seed: int = 1) -> list[Rating]:
    rng, ratings = np.random.default_rng(seed), []
    for verdict in verdicts:
        means = np.interp(verdict.expected_scores, *zip(*SHAPE)) + rng.normal(0, noise, 3)
        ratings += rated(verdict, np.clip(means, 1, 4).tolist())
    return ratings


def test_the_order_of_lines_changes_no_line() -> None:
    draw = np.random.default_rng(0)
    x, weight = draw.integers(1, 6, 300).astype(float), 1 / draw.integers(1, 4, 300)
    y = np.where(x < 3, 1.1, 2.3)
    knots = rising(x, y, weight)
    for _ in range(200):
        turned = draw.permutation(300)
        assert rising(x[turned], y[turned], weight[turned]) == knots


def test_a_rising_line_is_found_again() -> None:
    verdicts = study()
    calibration = Calibration.fit(verdicts, people(verdicts), FEEDBACK)
    fresh = calibration.apply(scored(99, [1.5, 3.0, 4.5]), "new")
    assert fresh.expected_scores == pytest.approx(
        np.interp([1.5, 3.0, 4.5], *zip(*SHAPE)).tolist(), abs=0.03
    )
    assert (fresh.judge, fresh.rubric, fresh.valid) == ("new", "feedbackqa@1", True)
    assert calibration.source == "expected_scores"
    assert [calibration.facts[name] for name in ("cases", "responses", "ratings")] == [60, 180, 180]


def test_its_steps_are_those_of_an_independent_isotonic_regression() -> None:
    verdicts = study()
    ratings = people(verdicts, 0.8)
    calibration = Calibration.fit(verdicts, ratings, FEEDBACK)
    x = np.concatenate([verdict.expected_scores for verdict in verdicts])
    y = np.array([rating.score for rating in ratings])
    steps = IsotonicRegression().fit_transform(x, y)
    levels = np.unique(np.round(steps, 6))
    assert [height for _, height in calibration.knots] == pytest.approx(levels.tolist(), abs=1e-6)
    centres = [x[np.abs(steps - level) < 1e-5].mean() for level in levels]
    assert [centre for centre, _ in calibration.knots] == pytest.approx(centres, abs=1e-5)


def test_the_judges_order_stays_and_ties_are_rare() -> None:
    verdicts = study(100)
    calibration = Calibration.fit(verdicts, people(verdicts, 0.8), FEEDBACK)
    (first, low), (last, high) = calibration.knots[0], calibration.knots[-1]
    values = np.linspace(first, last, 50)
    points = [
        calibration.apply(scored(99, [value, None, None]), "new").expected_scores[0]
        for value in values.tolist()
    ]
    assert (np.diff(points) > 0).all()
    outside = calibration.apply(scored(99, [0.5, 9.0, None]), "new").expected_scores
    assert outside == pytest.approx((low, high, None))


def test_readings_of_a_response_count_together_as_one() -> None:
    verdicts, ratings = study(), people(study(), 0.5)
    again = [replace(verdict, run=1) for verdict in verdicts]
    first, second = (
        Calibration.fit(each, ratings, FEEDBACK) for each in (verdicts, verdicts + again)
    )
    assert first.knots == second.knots
    assert first.facts == second.facts
    some = [*verdicts, *again[:7]]
    assert Calibration.fit(some, ratings, FEEDBACK).knots == first.knots
    assert Calibration.fit(verdicts[::-1], ratings, FEEDBACK).to_dict() == first.to_dict()


def test_whole_scores_serve_where_a_verdict_has_no_others() -> None:
    verdicts = study()
    verdicts[3] = replace(verdicts[3], expected_scores=None)
    calibration = Calibration.fit(verdicts, people(study()), FEEDBACK)
    assert calibration.source == "scores"
    assert {centre for centre, _ in calibration.knots} <= {1.0, 2.0, 3.0, 4.0, 5.0}
    fresh = calibration.apply(scored(99, [1.2, None, 4.9]), "new")
    assert fresh.expected_scores[1] is fresh.scores is None
    assert fresh.expected_scores[0] == pytest.approx(calibration.knots[0][1])
    with pytest.raises(RecordError, match="case 'case-99': the verdict has no scores"):
        calibration.apply(replace(scored(99, [1.0, 2.0, 3.0]), scores=None), "new")


def test_an_invalid_verdict_stays_invalid_and_gets_no_score() -> None:
    calibration = Calibration.fit(study(), people(study()), FEEDBACK)
    fresh = calibration.apply(verdict_of(case_of(99), None), "new")
    assert (fresh.valid, fresh.error, fresh.scores, fresh.expected_scores) == (
        False,
        "no score line",
        None,
        None,
    )
    assert (fresh.judge, fresh.rubric) == ("new", "feedbackqa@1")
    with_invalid = [*study(), verdict_of(case_of(99), None)]
    more = people(study()) + rated(with_invalid[-1], (1, 1, 4))
    assert Calibration.fit(with_invalid, more, FEEDBACK).knots == calibration.knots


def test_other_settings_are_refused_and_the_fingerprint_follows() -> None:
    calibration = Calibration.fit(study(), people(study()), FEEDBACK)
    with pytest.raises(RecordError, match="case 'case-99': judged with other settings"):
        calibration.apply(scored(99, [1.0, 2.0, 3.0], extra={"settings": "s2"}), "new")
    assert (
        calibration.apply(scored(99, [1.0, 2.0, 3.0]), "new").extra["settings"]
        == calibration.fingerprint
    )
    changes = ({"knots": ((1.0, 2.0),)}, {"source": "scores"}, {"settings": "s2"})
    turned = [replace(calibration, **change) for change in changes]
    assert len({each.fingerprint for each in (calibration, *turned)}) == 4
    assert json.loads(json.dumps(calibration.to_dict()))["from"] == "expected_scores"


def test_what_nobody_rated_or_could_be_judged_says_nothing() -> None:
    verdicts, ratings = study(), people(study(), 0.5)
    strangers = [
        *rated(scored(900, [1.0, 2.0, 3.0]), (9, 9)),
        replace(ratings[0], model="a stranger"),
    ]
    plain = Calibration.fit(verdicts, ratings, FEEDBACK)
    more = Calibration.fit([*verdicts, scored(951, [5.0, 1.0, 2.0])], ratings + strangers, FEEDBACK)
    assert more.to_dict() == plain.to_dict()
    missing = [
        rating
        for rating in ratings
        if rating.case_id != verdicts[0].case_id or rating.model != MODELS[1]
    ]
    assert Calibration.fit(verdicts, missing, FEEDBACK).facts["responses"] == 179


def test_log_likelihoods_are_put_on_the_scale_as_scores_are() -> None:
    """Half of the verdicts leave one response out: unread, empty, or not shown. Only the empty one has a score, the lowest."""
    found = {}
    for kind in ("unread", "empty", "not shown"):
        verdicts = []
        for at, verdict in enumerate(likelihood_verdicts.study(30)):
            values = list(verdict.expected_scores)
            if at % 2:
                values[1] = None if kind == "unread" else -9.0
                verdict = replace(verdict, expected_scores=tuple(values))
                verdict = replace(verdict, order=(0, 2)) if kind == "not shown" else verdict
                verdict = replace(
                    verdict,
                    extra=verdict.extra | ({"empty": [MODELS[1]]} if kind == "empty" else {}),
                )
            verdicts.append(verdict)
        ratings = likelihood_verdicts.people(likelihood_verdicts.study(30), 0.5)
        ratings = [
            each for each in ratings if each.model != MODELS[1] or int(each.case_id[5:]) % 2 == 0
        ]
        calibration = Calibration.fit(verdicts[:20], ratings, FEEDBACK)
        fresh = [calibration.apply(verdict, "new").expected_scores for verdict in verdicts[20:]]
        found[kind] = calibration.knots, fresh
    knots, scores = found["not shown"]
    assert found["unread"] == (knots, scores)
    lowest = [
        (one, 1.0, three) if at % 2 else (one, two, three)
        for at, (one, two, three) in enumerate(scores)
    ]
    assert found["empty"] == (knots, lowest)


def test_what_the_verdict_was_made_of_stays_in_it() -> None:
    calibration, verdict = (
        Calibration.fit(study(), people(study()), FEEDBACK),
        scored(99, [1.0, 2.0, 3.0]),
    )
    applied = calibration.apply(verdict, "new")
    assert applied.extra == verdict.extra | {"settings": calibration.fingerprint}
    assert (applied.case_id, applied.order, applied.run) == (
        verdict.case_id,
        verdict.order,
        verdict.run,
    )


VERDICTS = study()
RATINGS = people(VERDICTS)
NO_RISE = "people's ratings do not rise with what the judge gives"
FAULTS = [
    (VERDICTS[:9], RATINGS, f"^9 rated cases .* needs {FEWEST} at least"),
    (VERDICTS, [], "^0 rated cases with a valid verdict"),
    (
        VERDICTS,
        [replace(each, score=3) for each in RATINGS],
        "every response is rated 3: there is nothing to learn",
    ),
    (VERDICTS, [replace(each, score=5 - each.score) for each in RATINGS], NO_RISE),
    ([scored(at, [2.0, 2.0, 2.0]) for at in range(60)], RATINGS, NO_RISE),
    (
        VERDICTS,
        [replace(RATINGS[0], score=5)],
        "case 'case-0': the rating 5 is off feedbackqa@1's scale 1 to 4",
    ),
    (
        VERDICTS,
        RATINGS * 2,
        f"the ratings: 'ann' rated '{MODELS[0]}' of case 'case-0' on 'overall' before",
    ),
    (
        [*VERDICTS, scored(99, [1.0, 2.0, 3.0], extra={"settings": "s2"})],
        RATINGS,
        "or of one with several settings",
    ),
    (
        [replace(each, scores=None, expected_scores=None) for each in VERDICTS],
        RATINGS,
        "the verdict has no scores",
    ),
    (
        [scored(at, [1.0, 2.0, 3.0], extra={"models": []}) for at in range(20)],
        RATINGS,
        "does not name the models",
    ),
]


@pytest.mark.parametrize(("verdicts", "ratings", "fault"), FAULTS)
def test_what_nothing_can_be_learnt_from_is_refused(
    verdicts: list, ratings: list, fault: str
) -> None:
    with pytest.raises(RecordError, match=fault):
        Calibration.fit(verdicts, ratings, FEEDBACK)


@pytest.mark.parametrize(
    ("judge", "gaps", "error"),
    [
        (
            np.repeat(range(10), 2),
            [-2, 0, *[1, 0] * 9],
            (9 * 0.5 + 1.0) / 10,
        ),  # the mean distance of ten bins of two
        (np.repeat(range(10), 2), [0] * 20, 0),
        (
            np.repeat(range(1, 6), 20),
            [0] * 60 + [1] * 20 + [-1] * 20,
            0.4,
        ),  # each of a few values has its own bin
        (
            np.arange(21),
            [1, -1] * 10 + [0],
            0,
        ),  # a decile (0, 2, … 20) begins its bin: nine of two and one of three
    ],
)
def test_the_error_is_the_mean_distance_of_the_bins(
    judge: np.ndarray, gaps: list[int], error: float
) -> None:
    case = np.arange(len(judge))
    (found,) = estimate(
        [calibration_error(judge + 0.0, judge + np.array(gaps, float), case, len(case))], len(case)
    )
    assert found.value == pytest.approx(error)


def test_after_is_measured_on_cases_that_the_line_was_not_learnt_from() -> None:
    verdicts, rng = study(30), np.random.default_rng(2)
    ratings = [
        rating for verdict in verdicts for rating in rated(verdict, rng.integers(1, 5, 3).tolist())
    ]
    after = Calibration.fit(verdicts, ratings, FEEDBACK).facts["calibration_error"]["after"]
    names = sorted(verdict.case_id for verdict in verdicts)
    by_name = {verdict.case_id: verdict for verdict in verdicts}
    apart, said, case = [], [], []
    for place, name in enumerate(names):
        others = [by_name[other] for at, other in enumerate(names) if at % FOLDS != place % FOLDS]
        line = Calibration.fit(others, ratings, FEEDBACK)
        apart += line.apply(by_name[name], "new").expected_scores
        said += [rating.score for rating in ratings if rating.case_id == name]
        case += [place] * 3
    error = estimate(
        calibration_error(np.array(apart), np.array(said, float), np.array(case), 30), 30
    )
    assert after["value"] == pytest.approx(error.value, abs=1e-6)
    assert after["low"] <= after["value"] <= after["high"]


def test_the_error_of_a_good_judge_has_an_interval_that_reaches_down() -> None:
    rng, held, within = np.random.default_rng(0), [], []
    for _ in range(40):
        case = np.repeat(np.arange(60), 3)
        judge = rng.uniform(1.5, 4.5, 180)
        people = np.clip(judge + rng.normal(0, 0.4, 60)[case] + rng.normal(0, 0.5, 180), 1, 5)
        error, worse = (
            plain(estimate(calibration_error(each, people, case, 60), 60))
            for each in (judge, judge + 0.5)
        )
        held.append(
            error["low"] <= 0.017 <= error["high"]
        )  # of 400,000 draws, but for clipping nothing
        assert error["low"] <= error["value"] <= error["high"]
        within.append(error["value"] <= error["chance"])
        assert worse["value"] > worse["chance"]
    assert min(sum(held), sum(within)) >= 36
