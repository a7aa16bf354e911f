"""Fit a logistic regression, and the weights of features that put pairs in order."""

import numpy as np
import scipy
from numpy import ndarray

from automedeval.stats.agreement import SAME

RIDGE = 0.01  # of `order_weights`: bounds them where they reproduce the order without an error


def fit_logistic(design: ndarray, won: ndarray, ridge: float, least: float = -np.inf) -> ndarray:
    """Return the coefficients that maximise the binomial log-likelihood less ridge / 2 times their squared length.

    Args:
        design: float [rows, coefficients].
        won: float [rows], the success of each row, from 0 to 1; fractions are allowed.
        ridge: above 0, so that there is one maximum, and a finite one.
        least: the smallest coefficient that is allowed.
    """

    def loss(beta: ndarray) -> tuple[float, ndarray]:
        logit = design @ beta
        slope = (scipy.special.expit(logit) - won) @ design + ridge * beta
        return float((np.logaddexp(0, logit) - won * logit).sum() + ridge / 2 * beta @ beta), slope

    size = design.shape[1]
    return scipy.optimize.minimize(
        loss,
        np.zeros(size),
        jac=True,
        bounds=[(least, None)] * size,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
    ).x


def order_weights(gaps: ndarray) -> ndarray:
    """Return the weights, 0 or more, of features whose sum puts pairs in order (the Bradley-Terry model on features).

    Args:
        gaps: float [pairs, features], the features of the better one of each pair less those of the worse one.

    Returns:
        float [features], in the features' own units.
    """
    spread = np.sqrt((gaps**2).mean(axis=0)) if len(gaps) else np.zeros(gaps.shape[1])
    spread[spread < SAME] = np.inf  # what never differs orders nothing
    return fit_logistic(gaps / spread, np.ones(len(gaps)), RIDGE, least=0.0) / spread
