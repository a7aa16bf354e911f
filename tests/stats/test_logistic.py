"""Logistic regression, held against independent fits."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from automedeval.stats.logistic import RIDGE, fit_logistic, order_weights


def scikit_learn(ridge: float, *rows: np.ndarray) -> np.ndarray:
    """Return the coefficients of scikit-learn's fit of a design, its outcomes and their weights."""
    model = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=10_000)
    return model.fit(*rows).coef_[0]


def gradient(design: np.ndarray, won: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    return design.T @ (won - 1 / (1 + np.exp(-design @ coefficients)))


def data(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    columns = [np.ones(rows), rng.normal(size=(rows, 2)), rng.normal(size=rows) ** 3]
    design = np.column_stack(columns)
    won = rng.random(rows) < 1 / (1 + np.exp(-design @ [0.3, -1.0, 0.5, 0.4]))
    return design, won.astype(float)


@pytest.mark.parametrize("ridge", [1e-6, 0.7])
def test_the_fit_is_that_of_scikit_learn(ridge):
    design, won = data()
    coefficients = fit_logistic(design, won, ridge)
    assert coefficients == pytest.approx(scikit_learn(ridge, design, won), abs=1e-5)
    penalty = ridge * coefficients
    assert gradient(design, won, coefficients) == pytest.approx(penalty, abs=1e-4)


def test_half_a_win_is_a_win_and_a_loss_of_half_the_weight():
    design, won = data(40)
    won[:20] = 0.5
    twice = np.vstack([design, design[:20]])
    outcomes, weights = np.r_[np.ones(20), won[20:], np.zeros(20)], np.full(60, 0.5)
    weights[20:40] = 1
    theirs = scikit_learn(RIDGE, twice, outcomes, weights)
    assert fit_logistic(design, won, RIDGE) == pytest.approx(theirs, abs=1e-5)


def test_order_weights_are_those_of_a_logistic_regression_without_what_would_be_negative():
    rng = np.random.default_rng(0)
    gaps = rng.normal([1.0, 0.5, -0.7], 2.0, (200, 3))
    weights = order_weights(gaps)
    spread = np.sqrt((gaps[:, :2] ** 2).mean(axis=0))
    # Each pair in both directions, with half the weight.
    both = np.vstack([gaps[:, :2], -gaps[:, :2]]) / spread
    theirs = scikit_learn(RIDGE, both, np.repeat([1, 0], 200), np.full(400, 0.5))
    assert weights[:2] == pytest.approx(theirs / spread, abs=1e-5)
    assert weights[2] == 0


def test_what_is_separable_or_dependent_has_a_finite_fit():
    design = np.array([[1.0, -2.0], [1.0, -1.0], [1.0, 1.0], [1.0, 2.0]])
    won = np.array([0.0, 0.0, 1.0, 1.0])
    for columns in (design, np.column_stack([design, design[:, 0]])):
        assert np.isfinite(fit_logistic(columns, won, 0.1)).all()


def test_far_from_the_start_the_optimum_is_found():
    # Newton's steps from 0 reach coefficients at which every chance rounds to 0 or 1.
    design = np.array([[1.0, 9.1], [1.0, 0.1], [1.0, 5.3], [1.0, 11.1], [1.0, -0.2]])
    won = np.array([0.5 / 5369, 0.5 / 19694, 0.5 / 65, 0.5 / 57, 329.0 / 520])
    coefficients = fit_logistic(design, won, 1e-6)
    assert gradient(design, won, coefficients) == pytest.approx(0, abs=1e-4)
