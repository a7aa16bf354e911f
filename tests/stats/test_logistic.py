"""Logistic regression, held against independent fits."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from automedeval.stats.logistic import RIDGE, fit_logistic, order_weights


def scikit_learn(ridge, *rows):
    """Return the coefficients of scikit-learn's fit of a design, its outcomes and their weights."""
    model = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=10_000)
    return model.fit(*rows).coef_[0]


def gradient(design, won, coefficients):
    chances = expit(design @ coefficients)
    return design.T @ (won - chances)


def with_constant(*columns):
    ones = np.ones(len(columns[0]))
    return np.column_stack([ones, *columns])


def data(rows=300):
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(rows, 2))
    skewed = rng.normal(size=rows) ** 3
    design = with_constant(plain, skewed)
    chances = expit(design @ [0.3, -1.0, 0.5, 0.4])
    won = rng.random(rows) < chances
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
    halves = design[:20]
    twice = np.vstack([design, halves])
    outcomes = np.concatenate([np.ones(20), won[20:], np.zeros(20)])
    weights = np.repeat([0.5, 1, 0.5], 20)
    theirs = scikit_learn(RIDGE, twice, outcomes, weights)
    assert fit_logistic(design, won, RIDGE) == pytest.approx(theirs, abs=1e-5)


def test_order_weights_are_those_of_a_logistic_regression_without_what_would_be_negative():
    rng = np.random.default_rng(0)
    gaps = rng.normal([1.0, 0.5, -0.7], 2.0, (200, 3))
    *weights, negative = order_weights(gaps)
    kept = gaps[:, :2]
    spread = np.sqrt((kept**2).mean(axis=0))
    # Each pair in both directions, with half the weight.
    both = np.vstack([kept, -kept]) / spread
    outcomes = np.repeat([1, 0], 200)
    halves = np.full(400, 0.5)
    theirs = scikit_learn(RIDGE, both, outcomes, halves)
    assert weights == pytest.approx(theirs / spread, abs=1e-5)
    assert negative == 0


def test_what_is_separable_or_dependent_has_a_finite_fit():
    column = np.array([-2.0, -1.0, 1.0, 2.0])
    separable = with_constant(column)
    dependent = with_constant(column, np.ones(4))
    won = column > 0
    for design in (separable, dependent):
        coefficients = fit_logistic(design, won.astype(float), 0.1)
        assert np.isfinite(coefficients).all()


def test_far_from_the_start_the_optimum_is_found():
    # Newton's steps from 0 reach coefficients at which every chance rounds to 0 or 1.
    design = with_constant([9.1, 0.1, 5.3, 11.1, -0.2])
    won = np.divide([0.5, 0.5, 0.5, 0.5, 329.0], [5369, 19694, 65, 57, 520])
    coefficients = fit_logistic(design, won, 1e-6)
    assert gradient(design, won, coefficients) == pytest.approx(0, abs=1e-4)
