"""stats/votes.py in simulation, beside the variance of a mean of judges and beside NumPy's correlations."""

import numpy as np
import pytest

from automedeval.stats.votes import correlations, effective_votes

DRAWS = 10_000


@pytest.mark.parametrize("judges", [3, 9])
@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
def test_effective_votes_are_those_of_the_variance_of_the_mean(judges: int, shared: float) -> None:
    rng = np.random.default_rng(judges)
    common, individual = rng.normal(size=DRAWS), rng.normal(size=(judges, DRAWS))
    errors = np.sqrt(shared) * common + np.sqrt(1 - shared) * individual
    truth = judges / (1 + (judges - 1) * shared)
    # The standard error of a variance from DRAWS normal draws is sqrt(2 / DRAWS) of it; four of them.
    room = 4 * np.sqrt(2 / DRAWS)
    assert effective_votes(errors) == pytest.approx(truth, rel=room)
    assert errors.var(axis=1).mean() / errors.mean(axis=0).var() == pytest.approx(truth, rel=2 * room)


def test_three_equal_judges_are_one_vote() -> None:
    errors = np.tile(np.random.default_rng(0).normal(size=50), (3, 1))
    assert effective_votes(errors) == pytest.approx(1)
    assert effective_votes(errors + np.array([[0.0], [1.0], [-2.0]])) == pytest.approx(1), (
        "a judge's strictness is no other error"
    )


def test_correlations_are_over_common_responses() -> None:
    values = np.random.default_rng(0).normal(size=(2, 20))
    values[0, :5], values[1, 15:] = np.nan, np.nan
    assert correlations(values)[0, 1] == pytest.approx(np.corrcoef(values[:, 5:15])[0, 1])
    values[1, 7:] = np.nan
    assert np.isnan(correlations(values)[0, 1])
    assert effective_votes(values) is None
