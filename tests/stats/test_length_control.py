"""The effect of length at equal models, beside a plain minimisation of the penalised likelihood, and beside fitting anew."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from automedeval.stats.bootstrap import bootstrap, value_of
from automedeval.stats.length_control import RIDGE, longer_wins

MODELS = 4


def pairs_of(cases: int, seed: int) -> list[tuple[int, int, float, float, int]]:
    """Return (first, second, words more, relation, case): three models a case, some pairs tied, some not judged."""
    generator = np.random.default_rng(seed)
    pairs = []
    for case in range(cases):
        shown = sorted(generator.choice(MODELS, 3, replace=False).tolist())
        for at, first in enumerate(shown):
            for second in shown[at + 1 :]:
                longer = float(generator.integers(-80, 80))
                leaning = 0.6 * (second - first) + 0.02 * longer + generator.logistic()
                relation = float(np.sign(leaning)) if abs(leaning) > 0.2 else 0.0
                pairs.append((first, second, longer, np.nan if generator.random() < 0.1 else relation, case))
    return pairs


def arrays(pairs: list[tuple]) -> list[np.ndarray]:
    return [np.array(column) for column in zip(*pairs)]


@pytest.mark.parametrize("fewest", [5, 0])
def test_the_longer_wins_as_often_as_a_plain_minimisation_says(fewest: int) -> None:
    """With models of few pairs, all count as equally strong."""
    pairs = pairs_of(60 if fewest else 3, 1)
    first, second, longer, relation, case = arrays(pairs)
    judged = [pair for pair in pairs if not np.isnan(pair[3])]
    spread = float(np.std([pair[2] for pair in judged]))
    strong = 1.0 if fewest else 0.0

    def loss(beta: np.ndarray) -> float:
        total = RIDGE / 2 * float(beta @ beta)
        for first_model, second_model, words, preferred, _ in judged:
            leaning = strong * (beta[first_model] - beta[second_model]) + beta[-1] * np.tanh(words / spread)
            won = (preferred + 1) / 2
            total -= won * np.log(expit(leaning)) + (1 - won) * np.log(expit(-leaning))
        return total

    beta = minimize(loss, np.zeros(MODELS + 1), method="BFGS", options={"gtol": 1e-7}).x
    figure = longer_wins(first, second, longer, relation, case, 60, MODELS)
    assert figure.n == len(judged)
    assert value_of(figure, 60) == pytest.approx(expit(beta[-1] * np.tanh(1.0)), abs=1e-4)


def test_the_one_step_bootstrap_is_close_to_fitting_anew() -> None:
    first, second, longer, relation, case = arrays(pairs_of(150, 3))
    (figure,) = bootstrap([longer_wins(first, second, longer, relation, case, 150, MODELS)], 150, 400)
    rng, refitted, spread = np.random.default_rng(5), [], np.std(longer[~np.isnan(relation)])
    for _ in range(150):
        rows = np.concatenate([np.flatnonzero(case == each) for each in rng.integers(0, 150, 150)])
        scaled = longer[rows] / np.std(longer[rows][~np.isnan(relation[rows])]) * spread
        again = longer_wins(first[rows], second[rows], scaled, relation[rows], case[rows], 150, MODELS)
        refitted.append(value_of(again, 150))
    assert figure.low < figure.value < figure.high
    assert figure.high - figure.low == pytest.approx(4 * np.std(refitted), rel=0.25)


def test_without_a_difference_or_a_verdict_the_reason_is_given() -> None:
    first, second, longer, relation, case = arrays(pairs_of(3, 2))
    alike = longer_wins(first, second, np.zeros(len(first)), relation, case, 3, MODELS)
    assert alike.reason == "all answers are equally long"
    unread = longer_wins(first, second, longer, np.full(len(first), np.nan), case, 3, MODELS)
    assert unread.reason == "no pair was judged"


def test_many_names_count_as_one_model() -> None:
    """Names of passages are no models: with more than ten of them, none has a strength."""
    first, second, longer, relation, case = arrays(pairs_of(60, 4))
    names = 20 * case + first, 20 * case + second
    same = longer_wins(0 * first, 0 * second, longer, relation, case, 60, 1)
    assert value_of(longer_wins(*names, longer, relation, case, 60, 1200), 60) == value_of(same, 60)
