"""Plan how many cases people have to rate, and draw the cases to rate next.

The plan inverts the variance of `prediction_powered`. Let σ be the standard deviation over cases of people's difference of two
models, and τ that of the part that the judge does not explain. The mean of n rated out of N judged cases has the variance

    V(n) = τ² / n + (σ² - τ²) / N,          and without the judge σ² / n.

The power of a two-sided t test of level 5 % for a difference δ is that of the noncentral t distribution with n - 1 degrees of
freedom and noncentrality δ / √V(n).

A case is drawn next with a probability that grows with the judge's uncertainty, mixed with a uniform one (Zrnic and Candès
2024, "Active statistical inference"). The estimate weights by the inverse probability, so that any positive probabilities are
valid; good ones give a narrow interval. The uniform part bounds the loss if the judge's uncertainty is misleading: no
probability is below this share of the average.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import nctdtr, stdtrit

LEVEL = 0.05
MOST = 1_000_000  # ratings that a plan without a judge may need
UNIFORM = 0.5  # uniform share of the probabilities


def variance(rated: float, spread: float, rest: float | None = None, cases: int | None = None) -> float:
    """Return the variance of a mean over rated cases; with `rest` and `cases`, of the prediction-powered mean."""
    if rest is None or cases is None:
        return spread**2 / rated
    return rest**2 / rated + max(0.0, spread**2 - rest**2) / cases


def power_of(
    rated: int, difference: float, spread: float, rest: float | None = None, cases: int | None = None
) -> float:
    """Return the power of a two-sided t test of level 5 % for a difference of two models.

    Args:
        rated: the number of rated cases.
        difference: the true difference, in the unit of `spread`.
        spread: the standard deviation over cases of people's difference.
        rest: the standard deviation of the part that the judge does not explain; None without a judge.
        cases: the number of judged cases, which include the rated ones.
    """
    if rated < 2:
        return 0.0
    error = np.sqrt(variance(rated, spread, rest, cases))
    if error == 0:
        return float(difference != 0)
    freedom = rated - 1
    edge, centre = -float(stdtrit(freedom, LEVEL / 2)), abs(difference) / error
    if centre > 30:
        return 1.0
    # The distribution function is inaccurate in its far tail, where the wrong side is; its value is below 1e-10 there.
    wrong_side = float(nctdtr(freedom, centre, -edge)) if centre < 4 else 0.0
    return 1 - float(nctdtr(freedom, centre, edge)) + wrong_side


def ratings_needed(
    difference: float, power: float, spread: float, rest: float | None = None, cases: int | None = None
) -> int | None:
    """Return the least number of rated cases with this power; the arguments are those of `power_of`.

    None if no number up to `cases` (without a judge: up to `MOST`) is enough.
    """
    if not difference:
        return None

    def enough(rated: int) -> bool:
        return power_of(rated, difference, spread, rest, cases) >= power

    return least(enough, 2, MOST if rest is None or cases is None else cases)


def least(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the least number from low to high that is enough, None if none is; any number above it must be enough too."""
    if high < low or not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def chances(uncertainty: np.ndarray, open_: np.ndarray, number: int, uniform: float = UNIFORM) -> np.ndarray:
    """Return float [cases], the probability of every case to be rated next; those of open cases sum to `number`.

    A case that is rated already gets the probability that it would have beside the open ones; `together` needs it.

    Args:
        uncertainty: float [cases], 0 or more, the judge's uncertainty; NaN without a valid verdict, which counts as the
            largest uncertainty.
        open_: bool [cases], the cases that can still be drawn.
        number: the number of cases to draw.
        uniform: the uniform share of the probabilities, above 0, at most 1.

    Raises:
        ValueError: more are to be drawn than are open, or `uniform` is out of range.
    """
    if not 0 < number <= open_.sum():
        raise ValueError(f"{number} cases are to be drawn and {int(open_.sum())} are open")
    if not 0 < uniform <= 1:
        raise ValueError("the uniform share must be above 0 and at most 1")
    known = ~np.isnan(uncertainty)
    doubt = np.where(known, uncertainty, uncertainty[known].max() if known.any() else 1.0)
    average = doubt[open_].mean()
    share = np.ones(len(doubt)) if average <= 0 else uniform + (1 - uniform) * doubt / average
    # Probabilities above 1 are cut off and the others raised until they sum to `number`.
    scale = number / share[open_].sum()
    for _ in range(int(open_.sum())):
        chance = np.minimum(1.0, scale * share)
        free = open_ & (chance < 1)
        lacking = number - chance[open_].sum()
        if lacking <= 1e-9 or not free.any():
            break
        scale *= 1 + lacking / chance[free].sum()
    return np.minimum(1.0, scale * share)


def draw(chance: np.ndarray, open_: np.ndarray, seed: int = 0) -> np.ndarray:
    """Draw open cases, each with exactly its probability, as many as the probabilities sum to; return their indices.

    Systematic sampling in random order (Madow 1949; Hartley and Rao 1962): the probabilities are added up, and a case is drawn
    for every whole step from a random start.
    """
    rng = np.random.default_rng(seed)
    places = rng.permutation(np.flatnonzero(open_))
    ends = np.cumsum(chance[places])
    # The sum is a whole number but for rounding, which must not change the number of steps.
    total = round(float(ends[-1]), 6)
    steps = np.arange(rng.random(), total, 1.0)
    hit = np.minimum(np.searchsorted(ends, steps, side="right"), len(places) - 1)
    return np.sort(places[np.unique(hit)])


def together(earlier: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return the probability of a case to be in one of two draws, the later one among the cases that the earlier one left.

    It is 1 - (1 - π₁)(1 - π₂), and the ratings of both draws are pooled with its inverse as weight. π₂ depends on the verdicts
    and on the cases that the earlier draw left open, but not on ratings. The pooled mean is unbiased if a case's π₂ is the
    same whether the earlier draw took the case or not. This holds nearly: `chances` leaves rated cases out of its sums, so
    one case changes the π₂ of each by about one part in the number of open cases.
    """
    return 1 - (1 - earlier) * (1 - now)
