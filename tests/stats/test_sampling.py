"""Plans against pingouin and simulation; chances that sum up, draws that keep them, and pooled draws that do not bias."""

from itertools import pairwise

import numpy as np
import pingouin
import pytest

from automedeval.stats.prediction_powered import prediction_powered
from automedeval.stats.sampling import chances, draw, power_of, ratings_needed, together, variance


@pytest.mark.parametrize("difference", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_without_a_judge_it_is_the_t_test_s_plan(difference: float, power: float) -> None:
    theirs = pingouin.power_ttest(d=difference, power=power, alpha=0.05, contrast="one-sample")
    assert ratings_needed(difference, power, 1.0) == np.ceil(theirs)
    assert ratings_needed(-3 * difference, power, 3.0) == ratings_needed(difference, power, 1.0)


def test_power_rises_with_every_rating_and_is_a_probability() -> None:
    for difference in (0.02, 0.2, 2.0):
        powers = [power_of(n, difference, 1.0, 0.5, 3000) for n in range(2, 3000, 13)]
        assert all(0.0 <= one <= two + 1e-12 and two <= 1.0 for one, two in pairwise(powers))


def test_a_judge_saves_ratings_and_too_few_verdicts_are_said() -> None:
    without = ratings_needed(0.2, 0.8, 1.0)
    assert ratings_needed(0.2, 0.8, 1.0, 0.5, 5000) < without / 2
    assert ratings_needed(0.2, 0.8, 1.0, 1.0, 5000) == without
    assert ratings_needed(0.2, 0.8, 1.0, 0.5, 150) is None
    assert ratings_needed(0.0, 0.8, 1.0) is None
    assert ratings_needed(0.0001, 0.8, 1.0) is None
    assert variance(100, 1.0, 0.0, 1000) == pytest.approx(1 / 1000)


def test_a_plan_comes_true() -> None:
    """So many rated cases tell the difference as often as was planned."""
    spread, rest, cases = 1.0, 0.6, 800
    planned = ratings_needed(0.25, 0.8, spread, rest, cases)
    detected = 0
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        judge = rng.normal(0, 0.8, cases)
        people = np.where(np.arange(cases) < planned, 0.25 + judge + rng.normal(0, rest, cases), np.nan)
        detected += prediction_powered(people, judge).interval.excludes_zero
    assert detected / 1500 == pytest.approx(0.8, abs=0.04)


def test_chances_sum_to_the_number_and_grow_with_doubt() -> None:
    doubt = np.random.default_rng(0).random(60)
    open_ = np.arange(60) >= 15
    chance = chances(doubt, open_, 20)
    assert chance[open_].sum() == pytest.approx(20)
    order = np.argsort(doubt)
    assert (np.diff(chance[order]) >= 0).all()
    assert chance.min() >= 0.5 * 20 / 45
    assert ((chance > 0) & (chance <= 1)).all()
    # a doubt far above the others is a certain draw, and what is cut off there goes to the rest
    wild = chances(np.where(np.arange(60) == 30, 1e4, doubt), open_, 20)
    assert wild[30] == 1
    assert wild[open_].sum() == pytest.approx(20)
    assert chances(doubt, open_, 45)[open_] == pytest.approx(1)
    assert chances(doubt, open_, 20, uniform=1.0) == pytest.approx(20 / 45)
    assert chances(np.zeros(60), open_, 20) == pytest.approx(20 / 45)


def test_what_has_no_verdict_is_as_unsure_as_the_most_unsure() -> None:
    chance = chances(np.array([0.1, 0.5, np.nan, 0.2]), np.ones(4, bool), 2)
    assert chance[2] == chance[1] == chance.max()
    assert chances(np.full(4, np.nan), np.ones(4, bool), 2) == pytest.approx(0.5)
    for number, uniform in ((0, 0.5), (5, 0.5), (2, 0.0), (2, 1.1)):
        with pytest.raises(ValueError, match=r"drawn|share"):
            chances(np.ones(4), np.ones(4, bool), number, uniform)


def test_a_draw_keeps_the_chances_and_the_number() -> None:
    open_ = np.arange(30) % 3 > 0
    chance = chances(np.linspace(0, 3, 30), open_, 8)
    drawn = np.zeros(30)
    for seed in range(3000):
        hit = draw(chance, open_, seed)
        assert len(hit) == 8 == len(set(hit.tolist()))
        drawn[hit] += 1
    assert not drawn[~open_].any()
    assert drawn[open_] / 3000 == pytest.approx(chance[open_], abs=0.04)
    assert draw(chance, open_, 5).tolist() == draw(chance, open_, 5).tolist()


def test_neighbours_are_drawn_together_as_often_as_others() -> None:
    chance, open_ = np.full(20, 0.3), np.ones(20, bool)
    together_ = np.zeros((20, 20))
    for seed in range(1500):
        hit = draw(chance, open_, seed)
        together_[np.ix_(hit, hit)] += 1
    neighbours = np.diagonal(together_, 1).mean() / 1500
    assert neighbours == pytest.approx(6 * 5 / (20 * 19), abs=0.01)


def test_two_draws_pooled_do_not_bias_and_forgetting_the_chances_does() -> None:
    """First some at random, then those of which the judge is unsure, which people like better."""
    cases, held, weighted, forgotten = 400, 0, [], []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        doubt = rng.gamma(2, 0.5, cases)
        judge = rng.normal(0, 0.4, cases)
        truth = 0.6 * (doubt - 1) + judge + 0.7 * doubt * rng.normal(size=cases)
        first = np.isin(np.arange(cases), rng.permutation(cases)[:40])
        chance = chances(doubt, ~first, 60)
        rated = first.copy()
        rated[draw(chance, ~first, seed)] = True
        people = np.where(rated, truth, np.nan)
        found = prediction_powered(people, judge, probabilities=together(np.full(cases, 0.1), chance)).interval
        held += found.low <= 0 <= found.high
        weighted.append(found.value)
        forgotten.append(prediction_powered(people, judge).interval.value)
    assert abs(np.mean(weighted)) < 0.02
    assert np.mean(forgotten) > 0.08
    assert 0.915 <= held / 600 <= 0.985
