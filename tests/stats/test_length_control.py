"""Win rates at equal length, beside a plain minimisation of the penalised likelihood and loops over the pairs."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from automedeval.stats.bootstrap import estimate
from automedeval.stats.length_control import RIDGE, length_controlled

MODELS = ("ash", "birch", "cedar", "dogwood")


def pairs_of(cases: int, seed: int) -> list[tuple[int, int, float, float, int]]:
    """Return (first, second, words more, relation, case): three models a case, some pairs tied, some not judged."""
    generator = np.random.default_rng(seed)
    pairs = []
    for case in range(cases):
        shown = sorted(generator.choice(len(MODELS), 3, replace=False).tolist())
        for at, first in enumerate(shown):
            for second in shown[at + 1 :]:
                longer = float(generator.integers(-80, 80))
                leaning = 0.6 * (second - first) + 0.02 * longer + generator.logistic()
                relation = float(np.sign(leaning)) if abs(leaning) > 0.2 else 0.0
                pairs.append((first, second, longer, np.nan if generator.random() < 0.1 else relation, case))
    return pairs


def test_win_rates_are_those_of_a_plain_minimisation() -> None:
    pairs = pairs_of(60, 1)
    first, second, longer, relation, case = (np.array(column) for column in zip(*pairs))
    figures = estimate(length_controlled(first, second, longer, relation, case, 60, MODELS), 60, 200)
    judged = [pair for pair in pairs if not np.isnan(pair[3])]
    spread = float(np.std([pair[2] for pair in judged]))

    def loss(beta: np.ndarray) -> float:
        total = RIDGE / 2 * float(beta @ beta)
        for first_model, second_model, words, preferred, _ in judged:
            chance = expit(beta[first_model] - beta[second_model] + beta[-1] * np.tanh(words / spread))
            won = (preferred + 1) / 2
            total -= won * np.log(chance) + (1 - won) * np.log(1 - chance)
        return total

    beta = minimize(loss, np.zeros(len(MODELS) + 1), method="BFGS", options={"gtol": 1e-7}).x
    assert figures["words"] == pytest.approx(spread)
    assert figures["longer_wins"].value == pytest.approx(expit(beta[-1] * np.tanh(1.0)), abs=1e-4)
    for number, model in enumerate(MODELS):
        wins, chances = [], []
        for first_model, second_model, _, preferred, _ in judged:
            if number in (first_model, second_model):
                wins.append((preferred + 1) / 2 if number == first_model else (1 - preferred) / 2)
                chances.append(expit(beta[number] - beta[second_model if number == first_model else first_model]))
        rates = figures["win_rates"][model]
        assert rates["raw"].value == pytest.approx(np.mean(wins))
        assert rates["controlled"].value == pytest.approx(np.mean(chances), abs=1e-4)
        assert rates["controlled"].low < rates["controlled"].value < rates["controlled"].high


def test_without_win_rates_the_reason_is_given() -> None:
    first, second, longer, relation, case = (np.array(column) for column in zip(*pairs_of(3, 2)))
    figures = length_controlled(first, second, longer, relation, case, 3, MODELS)
    assert "win_rates" not in figures
    assert "on under 5 pairs" in figures["reason"]
    alike = length_controlled(first, second, np.zeros(len(first)), relation, case, 3, MODELS)
    assert alike["longer_wins"].reason == "all answers are equally long"
