"""The bootstrap: its intervals cover, it knows when it cannot tell, and differences are paired."""

import numpy as np
import pytest
from scipy import stats

from automedeval.stats import bootstrap


def test_the_same_seed_gives_the_same_interval() -> None:
    statistic = bootstrap.ratio(np.arange(60) % 2, np.ones(60))
    first, again, other = (bootstrap.bootstrap([statistic], 60, 200, seed)[0] for seed in (1, 1, 2))
    assert (first.low, first.high) == (again.low, again.high) != (other.low, other.high)


def test_a_cluster_is_resampled_whole_and_counts_once() -> None:
    right = np.random.default_rng(5).integers(0, 2, 60).astype(float)
    (alone,) = bootstrap.bootstrap([bootstrap.ratio(right, np.ones(60))], 60, 200)
    twice = bootstrap.ratio(np.repeat(right, 2), np.ones(120))
    cells = bootstrap.Statistic(
        None,
        lambda counts: counts @ np.repeat(right, 2) / counts.sum(axis=1),
        120,
        cells=np.arange(120),
    )
    for each in bootstrap.bootstrap([twice, cells], np.repeat(np.arange(60), 2), 200):
        assert (each.low, each.high) == pytest.approx((alone.low, alone.high))
        assert (each.cases, each.n) == (60, 120)


def test_what_is_undefined_says_so() -> None:
    (nothing,) = bootstrap.bootstrap(
        [bootstrap.ratio(np.zeros(9), np.zeros(9), reason="no pair")], 9, 200
    )
    assert nothing.to_dict() == {
        "value": None,
        "low": None,
        "high": None,
        "n": 0,
        "reason": "no pair",
    }
    (single,) = bootstrap.bootstrap([bootstrap.ratio(np.ones(1), np.ones(1))], 1, 200)
    assert (single.value, single.low, single.reason) == (1.0, None, "one case has no interval")
    assert (bootstrap.p_value(single), bootstrap.t_test(single)) == (None, None)
    rare = bootstrap.ratio(
        np.eye(40)[0] * 0.5, np.eye(40)[0]
    )  # most resamples miss the only case that counts
    (rare,) = bootstrap.bootstrap([rare], 40, 400)
    assert rare.value == 0.5
    assert rare.low is None


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(3)
    difficulty = rng.random(200)
    first, second = ((difficulty + shift > 0.5).astype(float) for shift in (0.05, 0.0))
    estimates = bootstrap.bootstrap(
        [bootstrap.ratio(right, np.ones(200)) for right in (first, second)], 200
    )
    difference = bootstrap.difference(*estimates)
    assert difference.value == pytest.approx(first.mean() - second.mean())
    apart = [each.high - each.low for each in estimates]
    assert difference.high - difference.low < min(apart) / 2  # both fail on the same cases
    assert bootstrap.p_value(difference) < 0.05
    same = bootstrap.difference(estimates[0], estimates[0])
    assert (same.value, bootstrap.p_value(same)) == (0.0, 1.0)


@pytest.mark.parametrize("cases", [3, 5, 10, 40])
def test_a_p_value_and_its_interval_agree_and_few_cases_prove_little(cases: int) -> None:
    rng = np.random.default_rng(cases)
    rejected = 0
    for _ in range(300):
        gains = rng.choice([-1.0, 0.0, 1.0], cases)
        gain = bootstrap.mean(gains, np.ones(cases), cases, bounds=(-1.0, 1.0))
        (estimate,) = bootstrap.bootstrap([gain], cases, 400)
        p = bootstrap.p_value(estimate)
        if estimate.low is None:  # all say the same
            assert p == 1.0
            assert "the same value" in estimate.reason
        elif abs(p - 0.05) > 0.02:
            assert (p < 0.05) == (estimate.low > 0 or estimate.high < 0)
        rejected += p < 0.05
    assert rejected / 300 < 0.1


def test_cases_that_all_say_the_same_have_no_spread() -> None:
    """Nobody may read an interval without width as certainty: a rare event is not in most small samples."""
    same = np.ones(8)
    for figure in (
        bootstrap.mean(0 * same, same, 8, bounds=(-1.0, 1.0)),
        bootstrap.mean(0.25 * same, same, 8),
        bootstrap.ratio(0.5 * same, same),
    ):
        (estimate,) = bootstrap.bootstrap([figure], 8, 200)
        assert estimate.value is not None
        assert (estimate.low, estimate.high) == (None, None)
        assert "the same value" in estimate.reason
    # At the end of what a figure can be, the exact binomial bound says how much eight cases leave open.
    none, full = bootstrap.bootstrap(
        [bootstrap.ratio(0 * same, same), bootstrap.ratio(same, same)], 8, 200
    )
    assert (full.low, full.high, full.approximate) == (pytest.approx(0.025 ** (1 / 8)), 1.0, True)
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 8)))


def test_rounding_is_neither_spread_nor_a_difference() -> None:
    """Sums of thirds in another order differ in their last digits."""
    ones = np.ones(60)
    figures = [bootstrap.mean(ones / 3, ones, 60), bootstrap.mean(ones / 10, ones * 0.3, 60)]
    third, tenths = bootstrap.bootstrap(figures, 60)
    assert 0 < np.ptp(third.draws) < 1e-15  # what the test is about
    assert (third.low, third.reason) == (None, bootstrap.NO_SPREAD)
    none = bootstrap.difference(third, tenths)
    assert (none.low, none.reason, bootstrap.p_value(none)) == (None, bootstrap.NO_SPREAD, 1.0)
    sums = ones / 3 + ones / 7, ones / 7 + ones / 3
    full = bootstrap.bootstrap([bootstrap.ratio(*sums), bootstrap.ratio(0 * ones, ones)], 60)
    sure = bootstrap.difference(*full)
    assert (sure.value, sure.high) == (1.0, 1.0)
    assert 0.85 < sure.low < 1  # by the exact binomial interval


@pytest.mark.parametrize("cases", [12, 60, 1130])
@pytest.mark.parametrize("shift", [0.0, 0.1, 0.6])
def test_the_t_test_of_a_mean_is_scipys_paired_one(cases: int, shift: float) -> None:
    rng = np.random.default_rng(cases)
    gains = rng.normal(shift, 1.0, cases)
    (estimate,) = bootstrap.bootstrap([bootstrap.mean(gains, np.ones(cases), cases)], cases, 20_000)
    expected = stats.ttest_1samp(gains, 0.0)
    # The t value within the chance of 20,000 resamples: the relative error of a standard deviation of them is 0.005.
    p = bootstrap.t_test(estimate)
    assert stats.t.isf(p / 2, cases - 1) == pytest.approx(abs(expected.statistic), rel=0.02)


def test_a_t_test_without_spread_is_the_sign_test() -> None:
    ones = np.ones(8)
    (never, always) = bootstrap.bootstrap(
        [bootstrap.ratio(0 * ones, ones), bootstrap.ratio(ones, ones)], 8, 200
    )
    assert bootstrap.t_test(never) == 1.0
    assert bootstrap.t_test(always) == pytest.approx(stats.binomtest(8, 8).pvalue)
    assert bootstrap.t_test(bootstrap.Estimate(None, reason="nothing to compute it from")) is None


def test_holm_adjusts_as_published() -> None:
    # Holm's procedure by hand.
    assert bootstrap.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert bootstrap.holm([]) == []


def test_intervals_of_a_mean_measure_cover() -> None:
    """Nominal 95 %: 93 to 97 % of intervals over 200 cases hold the truth, in 2,000 draws of clustered pairs."""
    rng = np.random.default_rng(11)
    truth, draws, cases = 0.75, 2000, 200
    easy = rng.beta(
        3, 1, size=(draws, cases, 1)
    )  # cases differ: pairs of a case are alike; the mean is 3/4
    right = (rng.random((draws, cases, 3)) < easy).sum(axis=2)
    statistics = [bootstrap.ratio(one, np.full(cases, 3.0)) for one in right]
    estimates = bootstrap.bootstrap(statistics, cases, 1000)
    covered = np.mean([each.low <= truth <= each.high for each in estimates])
    assert 0.93 <= covered <= 0.97
