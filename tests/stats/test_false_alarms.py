"""The certified threshold of false alarms, beside a loop over thresholds."""

import numpy as np
import pytest

from automedeval.stats.false_alarms import betting_p_value, least_alarm_threshold

SEQUENCE = (0.99, 0.9, 0.8, 0.7, 0.6, 0.5)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_last_threshold_before_the_first_that_fails(seed: int) -> None:
    scores = np.random.default_rng(seed).beta(0.1, 0.9, size=(150, 2))
    right = None
    for threshold in SEQUENCE:
        if (
            betting_p_value(
                np.array([sum(score >= threshold for score in two) / 2 for two in scores]), 0.05
            )
            > 0.1
        ):
            break
        right = threshold
    certified, tested = least_alarm_threshold(scores, SEQUENCE[::-1], 0.05, 0.1)
    assert certified == right
    assert [line["threshold"] for line in tested] == list(SEQUENCE[: len(tested)])


def test_a_score_equal_to_the_threshold_is_an_alarm_and_too_few_cases_certify_nothing() -> None:
    scores = np.array([0.9] + [0.0] * 99)
    assert least_alarm_threshold(scores[:, None], [0.9], 0.05, 0.1)[1][0]["alarms"] == 1
    assert least_alarm_threshold(np.zeros((10, 1)), SEQUENCE, 0.05, 0.1)[0] is None
    assert least_alarm_threshold([], SEQUENCE, 0.05, 0.1)[0] is None


def test_the_bet_is_a_p_value_and_gains_from_several_scores_of_a_case() -> None:
    """With a true mean at the bound the p-value is at most .1 in a tenth of the draws; far below it nearly always."""
    rng = np.random.default_rng(0)
    shares = rng.binomial(8, 0.05, size=(2000, 150)) / 8
    small = np.mean([betting_p_value(row, 0.05) <= 0.1 for row in shares])
    assert small <= 0.1 + 3 * (0.1 * 0.9 / 2000) ** 0.5
    assert (
        np.mean(
            [
                betting_p_value(row, 0.05) <= 0.1
                for row in rng.binomial(8, 0.015, size=(200, 150)) / 8
            ]
        )
        > 0.95
    )
    capital = [1.0]
    for count, share in enumerate(shares[0]):  # the definition, with sums over what came before
        before = [0.025, *shares[0][:count]]
        guess = sum(before) / len(before)
        spread = 0.0125 + sum(
            (value - sum(before[: at + 1]) / (at + 1)) ** 2 for at, value in enumerate(before[1:])
        )
        bet = (0.05 - guess) / (spread / len(before) + (0.05 - guess) ** 2)
        capital.append(capital[-1] * (1 - min(max(bet, 0), 0.75 / 0.95) * (share - 0.05)))
    assert betting_p_value(shares[0], 0.05) == pytest.approx(1 / max(capital))
