"""Logistic regression by Newton's method, and Bradley–Terry strengths, held against independent fits and published ones."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from automedeval.stats.bradley_terry import bradley_terry
from automedeval.stats.logistic import RIDGE, fit_logistic, order_weights


def data(rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(rows), rng.normal(size=(rows, 2)), rng.normal(size=rows) ** 3])
    won = rng.random(rows) < 1 / (1 + np.exp(-design @ [0.3, -1.0, 0.5, 0.4]))
    return design, won.astype(float)


def test_the_fit_is_that_of_scikit_learn_with_and_without_a_ridge() -> None:
    design, won = data()
    for ridge in (0.0, 0.7):
        theirs = LogisticRegression(C=1 / ridge if ridge else np.inf, fit_intercept=False, tol=1e-12, max_iter=10_000)
        coefficients = fit_logistic(design, won, ridge=ridge)
        assert coefficients == pytest.approx(theirs.fit(design, won).coef_[0], abs=1e-5)
        gradient = design.T @ (won - 1 / (1 + np.exp(-design @ coefficients))) - ridge * coefficients
        assert np.abs(gradient).max() < 1e-10


def test_rows_with_several_trials_count_as_often() -> None:
    design, _ = data(40)
    rng = np.random.default_rng(1)
    played = rng.integers(0, 6, 40)
    won = rng.binomial(played, 0.4)
    single = np.concatenate([np.tile(row, (n, 1)) for row, n in zip(design, played)])
    outcomes = np.concatenate([np.r_[np.ones(w), np.zeros(n - w)] for w, n in zip(won, played)])
    assert fit_logistic(design, won, played) == pytest.approx(fit_logistic(single, outcomes), abs=1e-10)


def test_many_fits_at_once_are_those_one_by_one() -> None:
    design, _ = data(60)
    won = np.random.default_rng(2).random((5, 2, 60))
    together = fit_logistic(design, won)
    assert together.shape == (5, 2, 4)
    for place in np.ndindex(5, 2):
        assert together[place] == pytest.approx(fit_logistic(design, won[place]), abs=1e-10)


def test_order_weights_are_those_of_a_logistic_regression_without_what_would_be_negative() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.normal([1.0, 0.5, -0.7], 2.0, (200, 3))
    weights = order_weights(gaps)
    spread = np.sqrt((gaps[:, :2] ** 2).mean(axis=0))
    theirs = LogisticRegression(C=1 / RIDGE, fit_intercept=False, tol=1e-12, max_iter=10_000)
    both = np.vstack([gaps[:, :2], -gaps[:, :2]]) / spread  # each pair in both directions, with half the weight
    theirs.fit(both, np.repeat([1, 0], 200), np.full(400, 0.5))
    assert weights[:2] == pytest.approx(theirs.coef_[0] / spread, abs=1e-5)
    assert weights[2] == 0


def test_separable_data_has_no_finite_maximum_without_a_ridge() -> None:
    design = np.array([[1.0, -2.0], [1.0, -1.0], [1.0, 1.0], [1.0, 2.0]])
    won = np.array([[0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]])
    coefficients = fit_logistic(design, won)
    assert np.isnan(coefficients[0]).all()
    assert np.isfinite(coefficients[1]).all()
    assert np.isfinite(fit_logistic(design, won, ridge=0.1)).all()


def test_dependent_columns_are_refused_without_a_ridge() -> None:
    design, won = data(30)
    doubled = np.column_stack([design, design[:, 0]])
    with pytest.raises(ValueError, match="linearly dependent"):
        fit_logistic(doubled, won)
    assert np.isfinite(fit_logistic(doubled, won, ridge=0.1)).all()


def test_steps_that_would_overshoot_are_halved() -> None:
    # Without halving, the steps from 0 reach coefficients at which every chance rounds to 0 or 1.
    design = np.array([[1.0, 9.1], [1.0, 0.1], [1.0, 5.3], [1.0, 11.1], [1.0, -0.2]])
    won, played = np.array([0.5, 0.5, 0.5, 0.5, 329.0]), np.array([5369.0, 19694.0, 65.0, 57.0, 520.0])
    coefficients = fit_logistic(design, won, played)
    assert np.isfinite(coefficients).all()
    assert np.abs(design.T @ (won - played / (1 + np.exp(-design @ coefficients)))).max() < 1e-8


# Agresti 2002, Categorical Data Analysis, Table 10.10: wins of American League teams over each other in 1987, and their
# strengths against the last, Baltimore.
WINS = "0 7 9 7 7 9 11|6 0 7 5 11 9 9|4 6 0 7 7 8 12|6 8 6 0 6 7 10|6 2 6 7 0 7 12|4 4 5 6 6 0 6|2 4 1 3 1 7 0"
STRENGTHS = [1.581, 1.436, 1.294, 1.248, 1.108, 0.684, 0.0]


def test_strengths_of_agrestis_baseball_teams() -> None:
    wins = np.array([row.split() for row in WINS.split("|")], float)
    strengths = bradley_terry(wins)
    assert strengths - strengths[-1] == pytest.approx(STRENGTHS, abs=0.002)
    assert strengths.mean() == pytest.approx(0)
    assert bradley_terry(np.stack([wins, wins.T])) == pytest.approx(np.stack([strengths, -strengths]), abs=1e-5)


def clusters(games: int) -> np.ndarray:
    """Return the wins of two clusters of five candidates, joined by four games of which the first wins three."""
    rng = np.random.default_rng(0)
    wins, strength = np.zeros((10, 10)), rng.normal(size=10)
    for start in (0, 5):
        for i in range(start, start + 5):
            for j in range(i + 1, start + 5):
                won = rng.binomial(games, 1 / (1 + math.exp(strength[j] - strength[i])))
                wins[i, j], wins[j, i] = won, games - won
    wins[0, 5], wins[5, 0] = 3, 1
    return wins


@pytest.mark.parametrize("games", [40, 200, 2000])
def test_strengths_of_two_clusters_joined_by_four_games_are_the_most_likely(games: int) -> None:
    wins = clusters(games)
    strengths = bradley_terry(wins)
    # Four games alone decide how far apart the clusters are: odds of 3 to 1 between the two that met.
    assert strengths[0] - strengths[5] == pytest.approx(math.log(3), abs=1e-8)
    assert strengths.mean() == pytest.approx(0, abs=1e-12)
    for candidate in range(10):  # at the maximum, each candidate wins as many games as its strength predicts
        expected = 0.0
        for other in range(10):
            played = wins[candidate, other] + wins[other, candidate]
            expected += played / (1 + math.exp(strengths[other] - strengths[candidate]))
        assert expected == pytest.approx(wins[candidate].sum(), abs=1e-8)


def test_candidates_without_finite_strengths_are_nan_and_leave_the_other_tables_alone() -> None:
    wins = clusters(40)
    swept, apart = wins.copy(), wins.copy()
    swept[5, 0] = 0  # all games between the clusters go one way
    apart[0, 5] = apart[5, 0] = 0
    strengths = bradley_terry(np.stack([swept, wins, apart]))
    assert np.isnan(strengths[[0, 2]]).all()
    assert strengths[1] == pytest.approx(bradley_terry(wins), abs=1e-12)
