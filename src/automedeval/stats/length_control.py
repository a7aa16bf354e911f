"""Win rates at equal length: a logistic regression of preferences on models and length.

After length-controlled AlpacaEval (Dubois et al. 2024, arXiv 2404.04475): a preference is explained by the models of the two
answers and by their difference in length; the win rate is predicted with the length term set to 0. Unlike there, any two models
may be compared, so models have Bradley-Terry strengths; and the questions, which are the resampled units, have no term:

    logit P(first preferred) = strength(first) - strength(second) + tilt * tanh((words(first) - words(second)) / s)

s is the standard deviation of the differences in words. A tie is half a win for both. A ridge penalty keeps the strength of a
model that always wins finite, and the mean strength at 0.

Intervals use the one-step bootstrap: the fit of a resample is one Newton step from the fit of all cases, and that step is a
function of sums over cases (each case's gradient and information matrix).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from automedeval.stats.bootstrap import Statistic, ratio, undefined
from automedeval.stats.logistic import fit_logistic

RIDGE = 0.1
MOST_MODELS = 10  # with more names, there are no win rates: they may not name models, or each has few answers
FEW = 5  # comparisons that each model needs


def length_controlled(
    first: np.ndarray,
    second: np.ndarray,
    longer: np.ndarray,
    relation: np.ndarray,
    case: np.ndarray,
    cases: int,
    models: Sequence[str],
) -> dict[str, object]:
    """Return win rates of models at equal length, and the effect of length.

    Args:
        first, second: int [pairs], the models of the two answers, as indices of `models`.
        longer: float [pairs], words of the first answer less those of the second.
        relation: float [pairs], 1, 0 or -1 if the first is preferred, tied or not preferred; NaN without a verdict.
        case: int [pairs], the case of each pair.
        cases: the number of cases.

    Returns:
        {"longer_wins", "words"}: the probability that the answer longer by s wins against one of an equally strong model (1/2:
        no effect of length), and s; with {"win_rates": {model: {"raw", "controlled"}}} or the {"reason"} why there are none.
    """
    judged = ~np.isnan(relation)
    first, second, case, longer = first[judged], second[judged], case[judged], longer[judged].astype(float)
    won = (relation[judged] + 1) / 2
    spread = float(np.std(longer)) if len(longer) else 0.0
    if spread == 0:
        reason = "all answers are equally long" if len(longer) else "no pair was judged"
        return {"longer_wins": undefined(cases, 0, reason)}
    counts = np.bincount(np.concatenate([first, second]), minlength=len(models))
    present = np.flatnonzero(counts)
    reason = f"{len(present)} models: more than {MOST_MODELS}" if len(present) > MOST_MODELS else ""
    if counts[present].min() < FEW:
        reason = f"{len(present)} model names, some on under {FEW} pairs"
    present = present[:0] if reason else present
    design = np.zeros((len(won), len(present) + 1))
    for column, model in enumerate(present):
        design[:, column] = (first == model).astype(float) - (second == model)
    design[:, -1] = np.tanh(longer / spread)
    beta = fit_logistic(design, won, ridge=RIDGE)
    columns, step = _one_step(design, won, beta, case, cases)
    n = len(won)
    figures: dict[str, Any] = {
        "longer_wins": Statistic(
            columns, lambda sums: scipy.special.expit(step(sums)[:, -1] * np.tanh(1.0)), n, bounds=(0.0, 1.0)
        ),
        "words": spread,
    }
    if reason:
        return figures | {"reason": f"no win rates: {reason}"}
    figures["win_rates"] = {}
    for column, number in enumerate(present.tolist()):
        wins = np.where(first == number, won, np.where(second == number, 1 - won, 0.0))
        there = (first == number) | (second == number)
        won_of_case, count = (np.bincount(case, weights=each, minlength=cases) for each in (wins, there.astype(float)))
        # The controlled rate is the mean over its opponents, weighted by how often it met them.
        met = np.where(first == number, second, first)[there]
        weights = np.array([(met == other).sum() for other in present]) / there.sum()

        def controlled(sums: np.ndarray, column: int = column, weights: np.ndarray = weights) -> np.ndarray:
            strengths = step(sums)[:, :-1]
            return scipy.special.expit(strengths[:, [column]] - strengths) @ weights

        figures["win_rates"][models[number]] = {
            "raw": ratio(won_of_case, count),
            "controlled": Statistic(columns, controlled, int(there.sum()), bounds=(0.0, 1.0)),
        }
    return figures


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
