"""stats/gate.py in simulation: at the allowed difference itself the gate seldom decides, and with enough cases it decides."""

import numpy as np
import pytest
from scipy.stats import binomtest

from automedeval.stats.gate import LOWER, NOT_LOWER, UNDECIDED, _chance, gate

DRAWS = 2_000
BY = 0.1
SPAN = 4.0
STANDARD_ERROR = (0.05 * 0.95 / DRAWS) ** 0.5  # of a share of 5 %
MOST_WRONG = 0.05 + 3 * STANDARD_ERROR


def gate_of(differences, span):
    """Return the gate of cases that do not depend on each other."""
    return gate(differences, BY, span, np.arange(len(differences)))


def status_of(differences):
    return gate_of(differences, SPAN).status


def decided(draws, way):
    """Return in how many draws the bound on a side, -1 or 1, decides at `BY`."""
    return sum(_chance(way * each, SPAN, len(each), -way * BY) < 0.05 for each in draws)


def normal(rng, cases):
    return rng.normal(-BY, 0.6, (DRAWS, cases))


def skewed(rng, cases):
    """Differences as of whole scores: two of three are equal, and losses are larger than gains."""
    steps = np.arange(-3, 3)
    chances = [0.02, 0.05, 0.12, 0.68, 0.11, 0.02]
    drawn = rng.choice(steps, p=chances, size=(DRAWS, cases))
    middle = np.dot(steps, chances)
    return drawn - middle - BY


@pytest.mark.parametrize("kind", [normal, skewed])
@pytest.mark.parametrize("cases", [30, 300])
def test_at_the_allowed_difference_each_wrong_word_comes_in_five_percent_of_draws(kind, cases):
    rng = np.random.default_rng(cases)
    draws = kind(rng, cases)
    assert decided(draws, -1) <= MOST_WRONG * DRAWS
    assert decided(draws, 1) <= MOST_WRONG * DRAWS
    for each in draws[:20]:
        found = gate_of(each, SPAN)
        assert decided([each], -1) == (found.low > -BY) == (found.status == NOT_LOWER)


@pytest.mark.parametrize(("share", "cases"), [(0.025, 300), (0.1, 100)])
@pytest.mark.parametrize("way", [-1, 1])
def test_rare_differences_of_the_whole_scale_give_no_more_wrong_words(way, share, cases):
    # A few cases lose (-1) or gain the whole scale, all others make up for it but for the allowed difference.
    rng = np.random.default_rng(cases)
    whole = way * SPAN
    rest = (-BY - whole * share) / (1 - share)
    rare = rng.random((DRAWS, cases)) < share
    drawn = np.where(rare, whole, rest)
    wrong = NOT_LOWER if way < 0 else LOWER
    assert decided(drawn, way) <= MOST_WRONG * DRAWS
    sizes = 1 + np.ceil(2 * rng.pareto(1.2, cases)).astype(int)  # a few clusters hold most cases
    clusters = np.repeat(np.arange(cases), sizes)
    found = [gate(each[clusters], BY, SPAN, clusters).status for each in drawn[:100]]
    assert found.count(wrong) <= 10


@pytest.mark.parametrize("cases", [2, 20])
def test_a_bound_is_the_quantile_of_randomly_weighted_means_with_one_more_case(
    cases,
):
    rng = np.random.default_rng(cases)
    differences = rng.normal(0.3, 0.5, cases)
    weights = rng.dirichlet(np.ones(cases + 1), 200_000)
    found = gate_of(differences, SPAN)
    for bound, end, quantile in ((found.low, -SPAN, 0.05), (found.high, SPAN, 0.95)):
        means = weights @ np.append(differences, end)
        assert bound == pytest.approx(np.quantile(means, quantile), abs=0.02)


def test_one_case_that_is_worse_widens_the_bounds_by_little_and_lowers_both():
    one = -np.eye(60)[0]
    before = gate_of(np.zeros(60), SPAN)
    after = gate_of(one, SPAN)
    for lowered in (before.low - after.low, before.high - after.high):
        assert 0 < lowered < 0.02


def test_equal_differences_have_the_exact_bound_of_a_share_that_was_not_seen():
    for cases in (5, 29, 400):
        result = gate_of(np.full(cases, 0.02), 1.0)
        exact = binomtest(0, cases).proportion_ci(0.90, "exact")
        unseen = exact.high  # one-sided 95 %
        middle = 0.02 * (1 - unseen)
        assert result.low == pytest.approx(middle - unseen)
        assert result.high == pytest.approx(middle + unseen)
    needed = gate_of(np.zeros(10), 1.0).needed
    fewer = gate_of(np.zeros(needed - 1), 1.0)
    enough = gate_of(np.zeros(needed), 1.0)
    assert fewer.status == UNDECIDED
    assert enough.status == NOT_LOWER


def test_the_number_of_cases_that_it_names_decides():
    rng = np.random.default_rng(0)
    few = rng.normal(0.0, 0.6, 60)
    few -= few.mean()
    result = gate_of(few, SPAN)
    assert result.status == UNDECIDED
    spread = few.std(ddof=1)
    draws = rng.normal(0.0, spread, (1000, result.needed))
    assert decided(draws, -1) == pytest.approx(800, abs=100)
    assert not decided(draws, 1)


def test_two_differences_are_the_least():
    assert status_of(np.zeros(1)) == UNDECIDED
    assert status_of(np.full(500, -1.0)) == LOWER
    assert status_of(np.zeros(500)) == NOT_LOWER
    assert gate_of(np.array([-0.2, 0.0]), SPAN).needed is None
