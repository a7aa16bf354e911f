"""Calibration: a few rated cases put log-likelihoods on people's scale."""

from dataclasses import replace

import numpy as np
import pytest
from doubles.introspection_study import MODELS
from doubles.likelihood_verdicts import FEEDBACK, fitted, invalid_of, people, rated, study, verdict_of

from automedeval.meta_evaluation.calibration.scores import FEWEST, Calibration, LikelihoodLine
from automedeval.records import RecordError, Verdict


def features_of(verdict: Verdict) -> np.ndarray:
    return np.array(list(LikelihoodLine.features(verdict, "expected_scores").values()))


def test_a_response_is_compared_with_the_others_of_its_case() -> None:
    near, far = features_of(verdict_of(0, (-3.0, -2.0, -1.0))), features_of(verdict_of(0, (-13.0, -12.0, -11.0)))
    assert near.tolist() == [[-1.0, -2.0], [0.0, -2.0], [1.0, -2.0]]
    assert far.tolist() == [[-1.0, -12.0], [0.0, -12.0], [1.0, -12.0]]
    assert features_of(verdict_of(0, (-3.0, None, -1.0))).tolist() == [[-1.0, -2.0], [1.0, -2.0]]


# --- learning ---------------------------------------------------------------------------------------------------------


def test_known_weights_are_found_again() -> None:
    calibration = fitted()
    assert calibration.line.weights == pytest.approx((1.1, 0.6, 4.5), abs=1e-5)
    assert [calibration.facts[name] for name in ("cases", "responses", "ratings")] == [30, 90, 90]
    assert fitted(FEWEST).facts["cases"] == FEWEST


def test_a_value_that_misleads_counts_for_nothing() -> None:
    verdicts, ratings = study(20), []
    for verdict in verdicts:
        values = np.array(verdict.expected_scores)
        ratings += rated(verdict, (4 - 0.2 * (values - values.mean()) + 0.5 * values.mean()).tolist())
    assert Calibration.fit(verdicts, ratings, FEEDBACK).line.weights[0] == 0


def test_what_nobody_rated_or_could_be_judged_says_nothing() -> None:
    verdicts = study()
    ratings = people(verdicts)
    strangers = [*rated(verdict_of(900, (0.0, 0.0)), (9, 9)), replace(ratings[0], model="a stranger")]
    strangers += rated(invalid_of(50), (1, 1, 1))
    more = [*verdicts, invalid_of(50), verdict_of(51, (-9.0, -1.0, -2.0))]
    calibration = Calibration.fit(more, ratings + strangers, FEEDBACK)
    assert calibration.line.weights == pytest.approx((1.1, 0.6, 4.5), abs=1e-5)
    assert calibration.facts["cases"] == 30
    missing = [rating for rating in ratings if rating.case_id != verdicts[0].case_id or rating.model != MODELS[1]]
    calibration = Calibration.fit(verdicts, missing, FEEDBACK)
    assert calibration.line.weights == pytest.approx((1.1, 0.6, 4.5), abs=1e-5)
    assert calibration.facts["responses"] == 89


FAULTS = [
    ([*study(9), invalid_of(99)], people(study(9)) + rated(invalid_of(99), (1, 2, 3)), "^9 rated cases with a valid"),
    ([verdict_of(at, (-2.0, -2.0, -2.0)) for at in range(20)], people(study(20), 0.5), "ratings do not rise"),
    ([replace(each, scores=(1, 2, 3)) for each in study()], people(study()), "only verdicts without a scale"),
]


@pytest.mark.parametrize(("verdicts", "ratings", "error"), FAULTS)
def test_what_nothing_can_be_learnt_from_is_refused(verdicts: list, ratings: list, error: str) -> None:
    with pytest.raises(RecordError, match=error):
        Calibration.fit(verdicts, ratings, FEEDBACK)


def test_an_unread_or_empty_response_counts_as_one_that_was_not_shown() -> None:
    """Half of the verdicts leave one response out: unread, empty, or not shown. Only the empty one has a score, the lowest."""
    lines = {}
    for kind in ("unread", "empty", "not shown"):
        verdicts = []
        for at, verdict in enumerate(study(30)):
            values = list(verdict.expected_scores)
            if at % 2:
                values[1] = None if kind == "unread" else -9.0
                verdict = replace(verdict, expected_scores=tuple(values))
                verdict = replace(verdict, order=(0, 2)) if kind == "not shown" else verdict
                verdict = replace(verdict, extra=verdict.extra | ({"empty": [MODELS[1]]} if kind == "empty" else {}))
            verdicts.append(verdict)
        ratings = [each for each in people(study(30), 0.5) if each.model != MODELS[1] or int(each.case_id[5:]) % 2 == 0]
        calibration = Calibration.fit(verdicts[:20], ratings, FEEDBACK)
        lines[kind] = (
            calibration.line,
            [calibration.apply(verdict, "new").expected_scores for verdict in verdicts[20:]],
        )
    line, scores = lines["not shown"]
    assert lines["unread"] == (line, scores)
    lowest = [(one, 1.0, three) if at % 2 else (one, two, three) for at, (one, two, three) in enumerate(scores)]
    assert lines["empty"] == (line, lowest)


# --- applying ---------------------------------------------------------------------------------------------------------


def test_a_score_that_nobody_gave_is_never_given() -> None:
    verdicts, rng = study(300), np.random.default_rng(3)
    ratings = [rating for verdict in verdicts[:100] for rating in rated(verdict, rng.choice([2, 4], 3).tolist())]
    calibration = Calibration.fit(verdicts[:100], ratings, FEEDBACK)
    assert calibration.levels == (2, 4)
    scores = {score for verdict in verdicts[100:] for score in calibration.apply(verdict, "judge").scores}
    assert scores == {2, 4}


def test_a_higher_point_never_has_the_lower_score() -> None:
    calibration = fitted(noise=0.5)
    verdict = calibration.apply(verdict_of(99, (-4.0, -3.0, -2.0)), "new")
    assert list(verdict.scores) == sorted(verdict.scores)
    assert list(verdict.expected_scores) == sorted(set(verdict.expected_scores))
    points = calibration.line.points(features_of(verdict_of(99, (-4.0, -3.0, -2.0))))
    assert verdict.expected_scores == pytest.approx(points.tolist(), abs=1e-6)
    assert [1 + sum(point > cut for cut in calibration.cuts) for point in points] == list(verdict.scores)


def test_expected_scores_stay_on_the_scale() -> None:
    verdict = fitted(noise=0.5).apply(verdict_of(99, (-90.0, 90.0, 0.0)), "new")
    assert verdict.expected_scores[:2] == (1.0, 4.0)
    assert verdict.scores[:2] == (1, 4)


def test_a_response_that_was_not_shown_gets_no_score() -> None:
    calibration = fitted()
    verdict = calibration.apply(verdict_of(99, (-3.0, None, -2.0)), "new")
    assert verdict.scores[1] is verdict.expected_scores[1] is None
    alone = calibration.apply(verdict_of(99, (-3.0, -2.0)), "new")
    assert (verdict.scores[0], verdict.scores[2]) == alone.scores


def test_what_the_verdict_was_made_of_stays_in_it() -> None:
    calibration, verdict = fitted(), verdict_of(99, (-3.0, -2.0, -1.0))
    applied = calibration.apply(verdict, "new")
    assert applied.extra == verdict.extra | {"settings": calibration.fingerprint}
    assert (applied.case_id, applied.order, applied.run) == (verdict.case_id, verdict.order, verdict.run)


def test_another_judges_verdict_is_refused() -> None:
    with pytest.raises(RecordError, match="case 'case-99': only verdicts without a scale are calibrated here"):
        fitted().apply(verdict_of(99, (1.0, 2.0), scores=(1, 2)), "new")
