"""The bootstrap: its intervals cover, it knows when it cannot tell, and differences are paired."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from automedeval.stats import bootstrap


def shares(*columns, resamples=200):
    """Return an estimate of the mean of each column, with one value a case."""
    cases = len(columns[0])
    return bootstrap.bootstrap(
        [bootstrap.ratio(each, np.ones(cases)) for each in columns], cases, resamples
    )


def means(*columns, bounds=None, resamples=200):
    """Return an estimate of the mean of each column, which is not taken for a share."""
    cases = len(columns[0])
    figures = [bootstrap.mean(each, np.ones(cases), cases, bounds=bounds) for each in columns]
    return bootstrap.bootstrap(figures, cases, resamples)


def test_what_is_undefined_says_so():
    none = bootstrap.ratio(np.zeros(9), np.zeros(9), reason="no pair")
    (nothing,) = bootstrap.bootstrap([none], 9, 200)
    undefined = dict.fromkeys(("value", "low", "high"))
    assert nothing.to_dict() == undefined | {"n": 0, "reason": "no pair"}
    (single,) = shares(np.ones(1))
    assert single.value == 1.0
    assert single.low is None
    assert single.reason == "one case or cluster has no interval"
    assert bootstrap.p_value(single) is None
    assert bootstrap.t_test(single) is None
    # Most resamples miss the only case that counts.
    rare = bootstrap.ratio(np.eye(40)[0] * 0.5, np.eye(40)[0])
    (rare,) = bootstrap.bootstrap([rare], 40, 400)
    assert rare.value == 0.5
    assert rare.low is None


def test_differences_are_paired():
    rng = np.random.default_rng(3)
    difficulty = rng.random(200)
    first, second = ((difficulty + shift > 0.5).astype(float) for shift in (0.05, 0.0))
    one, other = shares(first, second, resamples=1000)
    difference = bootstrap.difference(one, other)
    assert difference.value == pytest.approx(first.mean() - second.mean())
    apart = min(one.high - one.low, other.high - other.low)
    assert difference.high - difference.low < apart / 2  # both fail on the same cases
    assert bootstrap.p_value(difference) < 0.05
    same = bootstrap.difference(one, one)
    assert same.value == 0.0
    assert bootstrap.p_value(same) == 1.0


@pytest.mark.parametrize("cases", [3, 5, 10, 40])
def test_a_p_value_and_its_interval_agree_and_few_cases_prove_little(cases):
    rng = np.random.default_rng(cases)
    rejected = 0
    for _ in range(300):
        gains = rng.choice([-1.0, 0.0, 1.0], cases)
        (estimate,) = means(gains, bounds=(-1.0, 1.0), resamples=400)
        p = bootstrap.p_value(estimate)
        if estimate.low is None:  # all say the same
            assert p == 1.0
            assert "the same value" in estimate.reason
        elif abs(p - 0.05) > 0.02:
            assert (p < 0.05) == (estimate.low > 0 or estimate.high < 0)
        if p < 0.05 and estimate.low is not None:  # what is claimed is not in the interval
            assert estimate.low > 0 or estimate.high < 0
        rejected += p < 0.05
    assert rejected / 300 < 0.1


def test_the_exact_test_counts_every_way_in_which_clusters_may_be_turned_round():
    rng = np.random.default_rng(0)
    for _ in range(100):
        signs = rng.integers(-1, 2, 9)
        clusters = rng.integers(0, 6, 9)
        sums = np.bincount(clusters, signs)
        turned = np.array([*product((1, -1), repeat=len(sums))]) @ sums
        p = np.mean(np.abs(turned) >= abs(sums.sum()))
        assert bootstrap.exact_test(signs, clusters) == pytest.approx(p)


def test_cases_that_all_say_the_same_have_no_spread():
    """Nobody may read an interval without width as certainty: a rare event is not in most small samples."""
    none = np.zeros(8)
    half = np.full(8, 0.5)
    full = np.ones(8)
    for estimate in (*means(none, bounds=(-1.0, 1.0)), *means(half), *shares(half)):
        assert estimate.value is not None
        assert estimate.low is estimate.high is None
        assert "the same value" in estimate.reason
    # At the end of what a figure can be, the exact binomial bound says how much eight cases leave open.
    never, always = shares(none, full)
    bound = pytest.approx(0.025 ** (1 / 8))
    assert always.low == bound
    assert always.high == 1.0
    assert always.approximate
    assert never.low == 0.0
    assert 1 - never.high == bound


def test_rounding_is_neither_spread_nor_a_difference():
    """Sums of thirds in another order differ in their last digits."""
    ones = np.ones(60)
    figures = [bootstrap.mean(ones / 3, ones, 60), bootstrap.mean(ones / 10, ones * 0.3, 60)]
    third, tenths = bootstrap.bootstrap(figures, 60)
    assert 0 < np.ptp(third.draws) < 1e-15  # what the test is about
    assert third.low is None
    assert third.reason == bootstrap.NO_SPREAD
    none = bootstrap.difference(third, tenths)
    assert none.low is None
    assert none.reason == bootstrap.NO_SPREAD
    assert bootstrap.p_value(none) == 1.0
    sums = bootstrap.ratio(ones / 3 + ones / 7, ones / 7 + ones / 3)
    full = bootstrap.bootstrap([sums, bootstrap.ratio(0 * ones, ones)], 60)
    sure = bootstrap.difference(*full)
    assert sure.value == 1.0
    assert sure.high == 1.0
    assert 0.85 < sure.low < 1  # by the exact binomial interval


@pytest.mark.parametrize("cases", [12, 60, 1130])
@pytest.mark.parametrize("shift", [0.0, 0.1, 0.6])
def test_the_t_test_of_a_mean_is_scipys_paired_one(cases, shift):
    rng = np.random.default_rng(cases)
    gains = rng.normal(shift, 1.0, cases)
    (estimate,) = means(gains, resamples=20_000)
    expected = stats.ttest_1samp(gains, 0.0)
    # The t value within the chance of 20,000 resamples: the relative error of a standard deviation of them is 0.005.
    p = bootstrap.t_test(estimate)
    assert stats.t.isf(p / 2, cases - 1) == pytest.approx(abs(expected.statistic), rel=0.02)


def test_a_t_test_without_spread_is_the_sign_test():
    never, always = shares(np.zeros(8), np.ones(8))
    assert bootstrap.t_test(never) == 1.0
    assert bootstrap.t_test(always) == pytest.approx(stats.binomtest(8, 8).pvalue)
    assert bootstrap.t_test(bootstrap.Estimate(None, reason="nothing to compute it from")) is None


def test_intervals_of_a_mean_measure_cover():
    """Nominal 95 %: 93 to 97 % of intervals over 200 cases hold the truth, in 2,000 draws of clustered pairs."""
    rng = np.random.default_rng(11)
    draws = 2000
    cases = 200
    # Cases differ: pairs of a case are alike; the mean is 3/4.
    easy = rng.beta(3, 1, size=(draws, cases, 1))
    right = (rng.random((draws, cases, 3)) < easy).mean(axis=2)
    estimates = shares(*right, resamples=1000)
    covered = np.mean([each.low <= 0.75 <= each.high for each in estimates])
    assert 0.93 <= covered <= 0.97
