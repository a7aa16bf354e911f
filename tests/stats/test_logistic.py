"""Logistic regression by Newton's method, held against independent fits."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

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
