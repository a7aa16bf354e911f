"""How many cases people have to rate, and which ones next.

Numbers in, numbers out. The plan turns the variance of `prediction_powered` round: with σ the standard deviation over cases
of people's difference of two models, and τ that of what the judge leaves unexplained, the mean of n rated out of N judged
cases has

    V(n) = τ² / n + (σ² - τ²) / N,          and without the judge σ² / n.

A two-sided t test of level 5 % finds a difference δ with the power that the noncentral t distribution with n - 1 degrees of
freedom and noncentrality δ / √V(n) gives it.

Which cases to rate next: each with a chance that grows with how unsure the judge is of it, mixed with the same chance for
all (Zrnic and Candès 2024, "Active statistical inference"). The estimate divides by the chance, so any chances are valid; good
ones make it narrow, and the uniform part keeps a judge that is wrong about its own doubts from doing harm: no case's chance
falls below that share of the average.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import nctdtr, stdtrit

LEVEL = 0.05
UNIFORM = 0.5  # share of the chance that all cases get alike


def variance(rated: float, spread: float, rest: float | None = None, cases: int | None = None) -> float:
    """Return the variance of a mean over so many rated cases; with `rest` and `cases`, of the prediction-powered one."""
    if rest is None or cases is None:
        return spread**2 / rated
    return rest**2 / rated + max(0.0, spread**2 - rest**2) / cases


def power_of(
    rated: int, difference: float, spread: float, rest: float | None = None, cases: int | None = None
) -> float:
    """Return with what probability so many rated cases tell a difference from 0 (two-sided t test of 5 %).

    Args:
        difference: how far apart the models are, in the unit of `spread`.
        spread: the standard deviation over cases of people's difference.
        rest: that of what the judge leaves unexplained; None is without a judge.
        cases: how many cases are judged, the rated ones among them.
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
    # The distribution function gets lost in its far tail, where the wrong side is: below 1e-10 from there on.
    wrong_side = float(nctdtr(freedom, centre, -edge)) if centre < 4 else 0.0
    return 1 - float(nctdtr(freedom, centre, edge)) + wrong_side


def ratings_needed(
    difference: float,
    power: float,
    spread: float,
    rest: float | None = None,
    cases: int | None = None,
    most: int = 1_000_000,
) -> int | None:
    """Return the least number of rated cases that tells a difference from 0 with this power.

    With a judge no more cases can be rated than there are, and verdicts on so many cases may not be enough.

    Returns:
        The number, or None where no number up to `cases` (without a judge: up to `most`) will do.
    """
    if not difference:
        return None

    def enough(rated: int) -> bool:
        return power_of(rated, difference, spread, rest, cases) >= power

    return least(enough, 2, most if rest is None or cases is None else cases)


def least(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the least number from low to high that is enough, None if not even the highest is; more is never worse."""
    if high < low or not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def chances(uncertainty: np.ndarray, open_: np.ndarray, number: int, uniform: float = UNIFORM) -> np.ndarray:
    """Return the chance of every case to be rated next, such that `number` of the open ones are expected.

    A case that is rated already gets the chance that it would have had: `together` needs it.

    Args:
        uncertainty: float [cases], 0 or more, how unsure the judge is of each case; NaN where it has no valid verdict, which
            counts as unsure as the most uncertain case.
        open_: bool [cases], which cases can still be drawn.
        number: how many are to be drawn.
        uniform: share of the chance that all cases get alike, above 0 to 1.

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
    # Chances above 1 are cut off, and what is cut goes to the others, until `number` are expected.
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
    """Draw open cases, each with exactly its chance, as many as the chances sum to; return their numbers.

    Systematic sampling in a random order (Madow 1949; Hartley and Rao 1962): cases are laid end to end, each as long as its
    chance, and every whole step from a random start hits one.
    """
    rng = np.random.default_rng(seed)
    places = rng.permutation(np.flatnonzero(open_))
    ends = np.cumsum(chance[places])
    # A sum that should be whole may miss it by rounding; the last step must not be lost or gained by that.
    total = round(float(ends[-1]), 6)
    steps = np.arange(rng.random(), total, 1.0)
    hit = np.minimum(np.searchsorted(ends, steps, side="right"), len(places) - 1)
    return np.sort(places[np.unique(hit)])


def together(earlier: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return the chance of a case to be in one of two draws, the later one among what the earlier one left.

    1 - (1 - π₁)(1 - π₂): both the chances of the later draw are a function of the verdicts alone, not of what people said in
    the earlier one; so ratings of both can be pooled, each weighted with the inverse of this.
    """
    return 1 - (1 - earlier) * (1 - now)
