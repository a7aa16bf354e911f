"""The effect of length on preferences, at equal models: a logistic regression of preferences on models and length.

After length-controlled AlpacaEval (Dubois et al. 2024, arXiv 2404.04475): a preference is explained by the models of the two
answers and by their difference in length. Unlike there, any two models may be compared, so models have Bradley-Terry strengths;
and the questions, which are the resampled units, have no term:

    logit P(first preferred) = strength(first) - strength(second) + tilt * tanh((words(first) - words(second)) / s)

s is the standard deviation of the differences in words. A tie is half a win for both. A ridge penalty keeps the strength of a
model that always wins finite, and the mean strength at 0.

Intervals use the one-step bootstrap: the fit of a resample is one Newton step from the fit of all cases, and that step is a
function of sums over cases (each case's gradient and information matrix).
"""

import numpy as np
import scipy

from automedeval.stats.bootstrap import Statistic, undefined
from automedeval.stats.logistic import fit_logistic

RIDGE = 0.1
MOST_MODELS = 10  # with more names, models have no strengths: they may not name models, or each has few answers
FEW = 5  # comparisons that each model needs


def longer_wins(
    first: np.ndarray, second: np.ndarray, gaps: np.ndarray, way: np.ndarray, case: np.ndarray, cases: int, models: int
) -> Statistic:
    """Return the probability that an answer longer by s wins against one of an equally strong model; 1/2: no effect of length.

    Args:
        first, second: int [pairs], the models of the two answers.
        gaps: float [pairs], words of the first answer less those of the second.
        way: float [pairs], 1, 0 or -1 if the first is preferred, tied or not preferred; NaN without a verdict.
        case: int [pairs], the case of each pair.
        cases, models: their numbers. Models of which there are too many, or too few pairs, count as equally strong.
    """
    judged = ~np.isnan(way)
    first, second, case, gaps = first[judged], second[judged], case[judged], gaps[judged].astype(float)
    spread = float(np.std(gaps)) if len(gaps) else 0.0
    if spread == 0:
        return undefined(cases, 0, "all answers are equally long" if len(gaps) else "no pair was judged")
    counts = np.bincount(np.concatenate([first, second]), minlength=models)
    present = np.flatnonzero(counts)
    if len(present) > MOST_MODELS or counts[present].min() < FEW:
        present = present[:0]
    design = np.zeros((len(first), len(present) + 1))
    for column, model in enumerate(present):
        design[:, column] = (first == model).astype(float) - (second == model)
    design[:, -1] = np.tanh(gaps / spread)
    won = (way[judged] + 1) / 2
    columns, step = _one_step(design, won, fit_logistic(design, won, RIDGE), case, cases)

    def chance(sums: np.ndarray) -> np.ndarray:
        return scipy.special.expit(step(sums)[:, -1] * np.tanh(1.0))

    return Statistic(columns, chance, len(won), bounds=(0.0, 1.0))


def _one_step(design: np.ndarray, won: np.ndarray, beta: np.ndarray, case: np.ndarray, cases: int):
    """Return columns [cases, sums], and the function of sums that returns every resample's coefficients."""
    size = len(beta)
    chance = scipy.special.expit(design @ beta)
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
