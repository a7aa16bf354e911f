"""The certified threshold of false alarms, beside scipy's exact binomial test and a loop over thresholds."""

import numpy as np
import pytest
from scipy.stats import binomtest

from automedeval.stats.selective import least_alarm_threshold

SEQUENCE = (0.99, 0.9, 0.8, 0.7, 0.6, 0.5)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_last_threshold_before_the_first_that_fails(seed: int) -> None:
    scores = np.random.default_rng(seed).beta(0.15, 1.5, size=150)
    right = None
    for threshold in SEQUENCE:
        alarms = sum(score >= threshold for score in scores.tolist())
        if binomtest(alarms, len(scores), 0.05, alternative="less").pvalue > 0.1:
            break
        right = threshold
    found, tested = least_alarm_threshold(scores, SEQUENCE[::-1], 0.05, 0.1)
    assert found == right
    assert [line["threshold"] for line in tested] == list(SEQUENCE[: len(tested)])


def test_a_score_equal_to_the_threshold_is_an_alarm_and_too_few_cases_certify_nothing() -> None:
    scores = np.array([0.9] + [0.0] * 99)
    assert least_alarm_threshold(scores, [0.9], 0.05, 0.1)[1][0]["alarms"] == 1
    assert least_alarm_threshold(np.zeros(10), SEQUENCE, 0.05, 0.1)[0] is None
    assert least_alarm_threshold(np.empty(0), SEQUENCE, 0.05, 0.1)[0] is None
