"""Fit a logistic regression by Newton's method: one fit, or many with the same design at once; and weights of features."""

import numpy as np
import scipy

from automedeval.stats.agreement import SAME

STEPS = 100
TOLERANCE = 1e-8  # largest entry of the gradient, in trials, from which one more step is taken and the fit ends
SETTLED = 1e-3  # a larger step at a gradient of 0 means that the coefficients grow without end
RIDGE = 0.01  # of `order_weights`: bounds them where they reproduce the order without an error


def fit_logistic(
    design: np.ndarray, won: np.ndarray, played: np.ndarray | None = None, ridge: float = 0.0
) -> np.ndarray:
    """Return the coefficients that maximise the binomial log-likelihood less ridge / 2 times their squared length.

    Newton's method (iteratively reweighted least squares), with a step halved until it does not lower the objective.

    Args:
        design: float [rows, coefficients].
        won: float [..., rows], the successes of each row, 0 to `played`; fractions are allowed.
        played: float [..., rows], the trials of each row; 1 everywhere by default.

    Returns:
        float [..., coefficients]; NaN for a fit without a finite maximum (separable data, ridge 0) or one that does not
        converge within `STEPS` steps.

    Raises:
        ValueError: with ridge 0, columns of the design are linearly dependent on the rows that have trials.
    """
    played = np.ones(won.shape) if played is None else played
    identity = np.eye(design.shape[1])
    beta = np.zeros((*won.shape[:-1], design.shape[1]))
    settled = endless = np.zeros(won.shape[:-1], bool)

    def loss(beta: np.ndarray) -> np.ndarray:
        logit = beta @ design.T
        return (played * np.logaddexp(0, logit) - won * logit).sum(-1) + ridge / 2 * (beta**2).sum(-1)

    for _ in range(STEPS):
        chance = scipy.special.expit(beta @ design.T)
        gradient = (won - played * chance) @ design - ridge * beta
        gradient[endless] = 0.0
        information = (design.T * (played * chance * (1 - chance))[..., None, :]) @ design + ridge * identity
        information[endless] = identity
        try:
            change = np.linalg.solve(information, gradient[..., None])[..., 0]
        except np.linalg.LinAlgError:
            problem = "columns of the design are linearly dependent; a ridge above 0 makes the fit unique"
            raise ValueError(problem) from None
        flat = np.abs(gradient).max(-1, initial=0.0) <= TOLERANCE
        endless = endless | (flat & (np.abs(change).max(-1, initial=0.0) > SETTLED))
        settled = flat | endless
        size = np.ones((*settled.shape, 1))
        limit = loss(beta) * (1 + 1e-12)  # equal up to rounding is not worse
        while ((worse := loss(beta + size * change) > limit) & ~settled).any() and size.min() > 1e-9:
            size[worse] /= 2
        beta = beta + size * change
        if settled.all():
            break
    return np.where((settled & ~endless)[..., None], beta, np.nan)


def order_weights(gaps: np.ndarray) -> np.ndarray:
    """Return the weights, 0 or more, of features whose sum puts pairs in order (the Bradley-Terry model on features).

    Args:
        gaps: float [pairs, features], the features of the better one of each pair less those of the worse one.

    Returns:
        float [features], in the features' own units.
    """
    spread = np.sqrt((gaps**2).mean(axis=0)) if len(gaps) else np.zeros(gaps.shape[1])
    spread[spread < SAME] = np.inf  # what never differs orders nothing
    scaled = gaps / spread

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logit = scaled @ weights
        slope = RIDGE * weights - scipy.special.expit(-logit) @ scaled
        return float(np.logaddexp(0, -logit).sum() + RIDGE / 2 * weights @ weights), slope

    features = gaps.shape[1]
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000}
    optimum = scipy.optimize.minimize(
        loss, np.zeros(features), jac=True, bounds=[(0, None)] * features, options=options
    )
    return optimum.x / spread
