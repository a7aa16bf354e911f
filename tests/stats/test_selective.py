"""Abstention: what is kept, what is promised of it, and that the promise holds."""

import math

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from automedeval.stats import selective
from automedeval.stats.agreement import Panel
from automedeval.stats.selective import (
    betting_p_value,
    certify,
    drawn_pairs,
    least_alarm_threshold,
    thresholds,
    units_needed,
)

# --- the certificate --------------------------------------------------------------------------------------------------


def test_even_without_an_error_twenty_two_units_are_needed() -> None:
    assert units_needed(0.1, 0.1) == 22
    for risk, delta, errors in ((0.1, 0.1, 1), (0.05, 0.1, 0), (0.2, 0.05, 3)):
        number = units_needed(risk, delta, errors)
        assert binom.cdf(errors, number, risk) <= delta < binom.cdf(errors, number - 1, risk)


def test_twenty_two_units_without_an_error_certify_a_tenth_and_twenty_one_do_not() -> None:
    sure = certify(np.ones(22), np.zeros(22, bool), [1.0], 0.1, 0.1)
    assert (sure["threshold"], sure["reason"]) == (1.0, None)
    assert sure["tested"] == [{"threshold": 1.0, "units": 22, "errors": 0, "p": pytest.approx(0.9**22)}]
    few = certify(np.ones(21), np.zeros(21, bool), [1.0], 0.1, 0.1)
    assert (few["threshold"], few["tested"]) == (None, [])
    assert "21 rated cases with a pair to test; even without an error 22 are needed" in few["reason"]
    assert certify(np.ones(22), np.zeros(22, bool), [9.0], 0.1, 0.1)["tested"][0]["p"] == 1.0, "it keeps nothing"


def test_thresholds_are_laid_at_the_fresh_verdicts_strictest_first() -> None:
    fresh = np.random.default_rng(0).permutation(np.arange(100.0))
    sequence = thresholds(fresh, 200, 0.1, 0.1)
    need = units_needed(0.1, 0.1, selective.SPARE)
    assert sequence[0] == 100 - 5 * math.ceil(need / 10)
    assert thresholds(fresh, 9999, 0.1, 0.1)[0] == 100 - 5 * selective.LEAST
    assert sequence[-1] == 0.0
    assert (np.diff(sequence) == -5).all()
    assert (thresholds(fresh, 60, 0.1, 0.1)[0], len(thresholds(fresh, 22, 0.1, 0.1))) == (60.0, 1)
    assert thresholds(np.repeat([1.0, 2.0], 50), 1000, 0.1, 0.1).tolist() == [2.0, 1.0]
    assert thresholds(np.array([3.0]), 1000, 0.1, 0.1).tolist() == [3.0]


# --- one pair a case --------------------------------------------------------------------------------------------------


def test_a_case_gives_one_pair_that_neither_order_nor_other_cases_change() -> None:
    sizes, names = [3, 1, 4, 2, 3], ["a", "b", "c", "d", "e"]
    panel = Panel.of_sizes(sizes)
    case = panel.case[panel.pairs[0]]
    allowed = np.ones(len(case), bool)
    drawn = drawn_pairs(panel, allowed, names)
    assert case[drawn].tolist() == [0, 2, 3, 4]
    assert drawn_pairs(panel, allowed, names).tolist() == drawn.tolist()
    alone = Panel.of_sizes([4])
    start = int(np.flatnonzero(case == 2)[0])
    assert drawn_pairs(alone, np.ones(6, bool), ["c"])[0] == drawn[1] - start
    only = np.zeros(len(case), bool)
    only[[1, len(case) - 1]] = True
    assert drawn_pairs(panel, only, names).tolist() == [1, len(case) - 1]
    assert len(drawn_pairs(panel, np.zeros(len(case), bool), names)) == 0


def test_every_pair_of_a_case_is_as_likely() -> None:
    panel = Panel.of_sizes([3] * 1500)
    drawn = drawn_pairs(panel, np.ones(4500, bool), [f"case-{number}" for number in range(1500)])
    assert chisquare(np.bincount(drawn % 3)).pvalue > 1e-3


# --- how sure a verdict is --------------------------------------------------------------------------------------------


def test_the_gap_is_the_mean_over_pairs() -> None:
    panel = Panel.of_sizes([3, 1, 2, 2])
    scores = np.array([1.0, 2.0, 4.0, 3.0, 2.0, np.nan, 3.5, 3.0])
    assert selective.gaps(panel, scores) == pytest.approx([2.0, np.nan, np.nan, 0.5], nan_ok=True)


# --- the threshold of false alarms -------------------------------------------------------------------------------------

SEQUENCE = (0.99, 0.9, 0.8, 0.7, 0.6, 0.5)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_last_threshold_before_the_first_that_fails(seed: int) -> None:
    scores = np.random.default_rng(seed).beta(0.1, 0.9, size=(150, 2))
    right = None
    for threshold in SEQUENCE:
        if betting_p_value(np.array([sum(score >= threshold for score in two) / 2 for two in scores]), 0.05) > 0.1:
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
    assert np.mean([betting_p_value(row, 0.05) <= 0.1 for row in rng.binomial(8, 0.015, size=(200, 150)) / 8]) > 0.95
    capital = [1.0]
    for count, share in enumerate(shares[0]):  # the definition, with sums over what came before
        before = [0.025, *shares[0][:count]]
        guess = sum(before) / len(before)
        spread = 0.0125 + sum((value - sum(before[: at + 1]) / (at + 1)) ** 2 for at, value in enumerate(before[1:]))
        bet = (0.05 - guess) / (spread / len(before) + (0.05 - guess) ** 2)
        capital.append(capital[-1] * (1 - min(max(bet, 0), 0.75 / 0.95) * (share - 0.05)))
    assert betting_p_value(shares[0], 0.05) == pytest.approx(1 / max(capital))
