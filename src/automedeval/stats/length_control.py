"""Who would win if all wrote at equal length: a logistic regression of preferences on models and length.

The idea of length-controlled AlpacaEval (Dubois et al. 2024, arXiv 2404.04475): a preference is explained by who wrote the two
answers and by how much longer one is, and the win rate is predicted anew with the length term set to zero. Theirs has one
baseline and a term for the difficulty of each instruction; here any two models may meet, so models have strengths as in
Bradley and Terry's model, and instructions, being the units that are resampled, have no term:

    logit P(first preferred) = strength(first) - strength(second) + tilt * tanh((words(first) - words(second)) / s)

s is the standard deviation of the differences in words. A tie is half a win of both. A ridge penalty keeps a model that always
wins finite, and fixes the strengths' mean at 0.

Intervals are by the one-step bootstrap: from the fit to all cases, a resample's fit is one step of Newton's method away, and
that step is a function of sums over cases (each case's score vector and information matrix).
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from automedeval.stats.bootstrap import Statistic, ratio

RIDGE = 0.1
MOST_MODELS = 10  # beyond, names are no models' or each has too few answers: strengths are left out
FEW = 5  # comparisons that a model needs


def length_controlled(
    first: np.ndarray,
    second: np.ndarray,
    longer: np.ndarray,
    relation: np.ndarray,
    case: np.ndarray,
    cases: int,
    models: Sequence[str],
) -> dict[str, object]:
    """Fit the model to pairs of answers.

    Args:
        first, second: int [pairs], whose the answers are, as indices of `models`.
        longer: float [pairs], by how many words the first is longer.
        relation: [pairs], 1, 0 or -1 as the first is preferred, level or not; NaN where there is no verdict.
        case: int [pairs], the case of each, of `cases`.

    Returns:
        {"longer_wins"}: the probability that of two answers of equal models the one longer by s wins, ½ being no leaning;
        {"win_rates": {model: {"raw", "controlled"}}} where there are models to compare; {"reason"} where there are not.
    """
    known = ~np.isnan(relation)
    first, second, case, longer = first[known], second[known], case[known], longer[known].astype(float)
    won = (relation[known] + 1) / 2
    spread = float(np.std(longer)) if len(longer) else 0.0
    if spread == 0:
        return {"longer_wins": _nothing(cases, "all answers are equally long" if len(longer) else "no pair was judged")}
    counts = np.bincount(np.concatenate([first, second]), minlength=len(models))
    present = np.flatnonzero(counts)
    reason = None
    if len(present) > MOST_MODELS or counts[present].min() < FEW:
        reason = f"{len(present)} model names, some on under {FEW} pairs" if counts[present].min() < FEW else (
            f"{len(present)} models: more than {MOST_MODELS}"
        )  # fmt: skip
        present = present[:0]
    design = np.zeros((len(won), len(present) + 1))
    for column, model in enumerate(present):
        design[:, column] = (first == model).astype(float) - (second == model)
    design[:, -1] = np.tanh(longer / spread)
    beta = fit(design, won)
    columns, step = _one_step(design, won, beta, case, cases)
    n = len(won)
    found: dict[str, object] = {
        "longer_wins": Statistic(columns, lambda sums: expit(step(sums)[:, -1] * np.tanh(1.0)), n, bounds=(0.0, 1.0)),
        "words": spread,
    }
    if reason:
        return found | {"reason": f"no win rates: {reason}"}
    found["win_rates"] = {}
    for column, model in enumerate(present):
        own = np.where(first == model, won, np.where(second == model, 1 - won, 0.0))
        there = (first == model) | (second == model)
        raw = [np.bincount(case, weights=values, minlength=cases) for values in (own, there.astype(float))]
        # Whom it met, and how often: predicted is its mean chance against them.
        met = np.where(first == model, second, first)[there]
        weights = np.array([(met == other).sum() for other in present]) / there.sum()

        def controlled(sums: np.ndarray, column: int = column, weights: np.ndarray = weights) -> np.ndarray:
            strengths = step(sums)[:, :-1]
            return expit(strengths[:, [column]] - strengths) @ weights

        found["win_rates"][models[model]] = {
            "raw": ratio(*raw),
            "controlled": Statistic(columns, controlled, int(there.sum()), bounds=(0.0, 1.0)),
        }
    return found


def fit(design: np.ndarray, won: np.ndarray, steps: int = 50) -> np.ndarray:
    """Return the coefficients of a logistic regression of shares won on a design [pairs, coefficients], by Newton's method."""
    beta = np.zeros(design.shape[1])
    ridge = RIDGE * np.eye(len(beta))
    for _ in range(steps):
        chance = expit(design @ beta)
        gradient = design.T @ (won - chance) - RIDGE * beta
        change = np.linalg.solve((design * (chance * (1 - chance))[:, None]).T @ design + ridge, gradient)
        beta += change
        if np.abs(change).max() < 1e-10:
            break
    return beta


def _one_step(design: np.ndarray, won: np.ndarray, beta: np.ndarray, case: np.ndarray, cases: int):
    """Return columns [cases, sums], and the function of sums that gives every resample's coefficients."""
    size = len(beta)
    chance = expit(design @ beta)
    upper = np.triu_indices(size)
    scores = design * (won - chance)[:, None]
    information = design[:, upper[0]] * design[:, upper[1]] * (chance * (1 - chance))[:, None]
    columns = np.zeros((cases, size + len(upper[0])))
    np.add.at(columns, case, np.concatenate([scores, information], axis=1))

    def step(sums: np.ndarray) -> np.ndarray:
        matrix = np.zeros((len(sums), size, size))
        matrix[:, upper[0], upper[1]] = matrix[:, upper[1], upper[0]] = sums[:, size:]
        matrix += RIDGE * np.eye(size)
        return beta + np.linalg.solve(matrix, (sums[:, :size] - RIDGE * beta)[:, :, None])[:, :, 0]

    return columns, step


def _nothing(cases: int, reason: str) -> Statistic:
    return Statistic(np.zeros((cases, 1)), lambda sums: np.full(len(sums), np.nan), 0, reason)
