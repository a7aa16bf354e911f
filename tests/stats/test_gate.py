"""stats/gate.py in simulation: at the allowed difference itself the gate seldom decides, and with enough cases it decides."""

import numpy as np
import pytest
from scipy.stats import binomtest, sem, skew, t, ttest_1samp

from automedeval.stats.gate import LOWER, NOT_LOWER, UNDECIDED, gate

DRAWS, BY, SPAN = 2_000, 0.1, 4.0
MONTE_CARLO = 3 * (0.05 * 0.95 / DRAWS) ** 0.5  # three standard errors of a share of 5 %


def normal(rng: np.random.Generator, cases: int) -> np.ndarray:
    return rng.normal(-BY, 0.6, (DRAWS, cases))


def skewed(rng: np.random.Generator, cases: int) -> np.ndarray:
    """Differences as of whole scores: two of three are equal, and losses are larger than gains."""
    steps, chances = [-3, -2, -1, 0, 1, 2], [0.02, 0.05, 0.12, 0.68, 0.11, 0.02]
    drawn = rng.choice(steps, p=chances, size=(DRAWS, cases))
    return drawn - np.dot(steps, chances) - BY


@pytest.mark.parametrize("kind", [normal, skewed])
@pytest.mark.parametrize("cases", [30, 300])
def test_at_the_allowed_difference_each_wrong_word_comes_in_five_percent_of_draws(kind, cases):
    rng = np.random.default_rng(cases)
    statuses = [gate(each, BY, SPAN).status for each in kind(rng, cases)]
    assert len(statuses) == DRAWS
    assert max(statuses.count(NOT_LOWER), statuses.count(LOWER)) <= (0.05 + MONTE_CARLO) * DRAWS


def test_a_rare_total_loss_that_the_sample_does_not_have_is_not_excluded():
    # One case in forty loses the whole scale, d = -0.1: most samples of 20 cases have none, and all differences are 0.
    assert ttest_1samp(np.append(np.zeros(19), 1e-9), -BY, alternative="greater").pvalue < 0.05
    assert gate(np.zeros(20), BY, SPAN).status == UNDECIDED


@pytest.mark.filterwarnings(
    "ignore:Precision loss"
)  # of the plain test, where all differences are equal
@pytest.mark.parametrize(("share", "cases"), [(0.025, 300), (0.1, 100)])
@pytest.mark.parametrize("way", [-1, 1])
def test_rare_differences_of_the_whole_scale_give_no_more_wrong_words(way, share, cases):
    # A few cases lose (-1) or gain the whole scale, all others make up for it but for the allowed difference.
    rng = np.random.default_rng(cases)
    rest = (-BY - way * SPAN * share) / (1 - share)
    drawn = np.where(rng.random((DRAWS, cases)) < share, way * SPAN, rest)
    wrong, side = (NOT_LOWER, "greater") if way < 0 else (LOWER, "less")
    assert np.mean([gate(each, BY, SPAN).status == wrong for each in drawn]) <= 0.05 + MONTE_CARLO
    if share < 0.1:
        plain = (ttest_1samp(drawn, -BY, axis=1, alternative=side).pvalue < 0.05).mean()
        assert plain > 0.05 + MONTE_CARLO, "Student's t alone does not hold it"


@pytest.mark.parametrize("seed", range(4))
def test_a_bound_is_the_wider_one_of_student_and_hall_with_one_more_case_at_the_end_of_the_scale(
    seed,
):
    differences = np.random.default_rng(seed).normal(0.3, 0.5, 20)
    found = gate(differences, BY, SPAN)
    for bound, end in ((found.low, -SPAN), (found.high, SPAN)):
        sample = np.append(differences, end)
        z, a = (sample.mean() - bound) / sem(sample), skew(sample) * (20 / 21) ** 1.5 / 21**0.5
        hall = z + a * z**2 / 3 + a**2 * z**3 / 27 + a / 6
        assert min(abs(z), abs(hall)) == pytest.approx(t.ppf(0.95, 20))


def test_equal_differences_have_the_exact_bound_of_a_share_that_was_not_seen():
    for cases in (5, 29, 400):
        result = gate(np.full(cases, 0.02), BY, 1.0)
        unseen = binomtest(0, cases).proportion_ci(0.90, "exact").high  # one-sided 95 %
        assert result.low == pytest.approx(0.02 * (1 - unseen) - unseen)
        assert result.high == pytest.approx(0.02 * (1 - unseen) + unseen)
    needed = gate(np.zeros(10), BY, 1.0).needed
    statuses = [gate(np.zeros(cases), BY, 1.0).status for cases in (needed - 1, needed)]
    assert statuses == [UNDECIDED, NOT_LOWER]


def test_the_number_of_cases_that_it_names_decides():
    rng = np.random.default_rng(0)
    few = rng.normal(0.0, 0.6, 60)
    few -= few.mean()
    result = gate(few, BY, SPAN)
    assert result.status == UNDECIDED
    draws = rng.normal(0.0, few.std(ddof=1), (1000, result.needed))
    statuses = [gate(each, BY, SPAN).status for each in draws]
    assert statuses.count(NOT_LOWER) == pytest.approx(800, abs=100)
    assert LOWER not in statuses


def test_two_differences_are_the_least():
    assert gate(np.array([0.0]), BY, SPAN).status == UNDECIDED
    assert gate(np.full(500, -1.0), BY, SPAN).status == LOWER
    assert gate(np.full(500, 0.0), BY, SPAN).status == NOT_LOWER
    assert gate(np.array([-0.2, 0.0]), BY, SPAN).needed is None
