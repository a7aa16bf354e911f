"""Means from many verdicts and few ratings, with intervals that are valid even if the judge is biased.

The unit is the case: cases are a random draw from a population, and what belongs to one case (responses, annotators, verdicts)
is summed up before. Three estimates are returned:

- classical: from the rated cases alone;
- naive: from the judge's verdicts alone; it is wrong by the judge's bias, which its interval does not include;
- prediction-powered: from the verdicts, corrected by the rated cases.

Source: Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, "Prediction-powered inference"; the tuned weight is that of
Angelopoulos, Duchi, Zrnic 2023, "PPI++"; weights for active sampling after Zrnic and Candès 2024, "Active statistical
inference". In survey statistics it is the regression estimator under two-phase sampling (Cochran 1977, chapter 12).

**The estimate.** Case i of N has M_i units (responses of a model, pairs of models; usually one), people's sum of values Y_i if
it is among the n rated cases, and the judge's sum F_i. The target is θ = E[Y] / E[M]. With φ = ΣF / ΣM over all cases with a
valid verdict, the centred judge is g_i = F_i - φM_i, and g_i = 0 for a case without a valid verdict. Its sum over all N cases
is 0. With weights w_i of the rated cases that sum to 1, the estimate is

    θ̂ = Σ w_i (Y_i - γ g_i) / Σ w_i M_i          (sums over the rated cases).

Any γ is valid, because the sum of w_i g_i over a random draw estimates the mean of g, which is 0. γ = 0 is the classical
estimate. At M_i = 1 it is the estimate of PPI++ with λ = γ (N - n) / N. A case without a valid verdict has g_i = 0 whether it
is rated or not, and its rating counts in full; without such cases, the others would not be a draw from the same population.

**Its variance.** Linearised at θ, with residuals e_i = Y_i - θ̂M_i and r_i = e_i - γ g_i,

    V = [ Σ_rated (w_i r_i + γ g_i / N)² + Σ_unrated (γ g_i / N)² ] / (Σ w_i M_i)²,

a sum over cases, so that nothing is assumed within them (the sandwich variance of a clustered ratio). Under equal weights both
sums are taken about their means and multiplied by k / (k - 1), k their number of terms; V then equals the published closed
form, Var(Y - λf) / n + λ² Var(f) / (N - n), at M_i = 1. V is smallest at γ = Σ c_i e_i g_i / D with c_i = w_i (w_i - 1/N) and
D = Σ_rated (w_i - 1/N)² g_i² + Σ_unrated (g_i / N)²; under equal weights that is γ = Cov(Y, f) / Var(f), with all N cases in
the denominator.

**Small samples.** If γ is fitted to the cases that it corrects, their residuals are too small. So each rated case gets the
γ_i that the other rated cases determine (leave-one-out cross-fitting, in closed form). A judge without information then costs
about 0.5 % of the width at n = 100. Quantiles are Student's, with 1 / Σw² - 1 degrees of freedom (n - 1 under equal weights;
else from Kish's effective sample size).

**Assumption.** The rated cases are a random draw of all cases, independent of what people say about them. Either all had the
same probability, or each had a known inclusion probability π_i > 0: then w_i is proportional to 1 / π_i (Hájek 1971; dividing
by N in place of the sum of weights, as Horvitz and Thompson 1952 do, has a larger variance). If somebody chose the cases to
rate, the intervals are not valid, and nothing here can detect it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from automedeval.stats.bootstrap import FEW_CASES, NO_SPREAD, binomial_interval

LEAST_RATED = 10  # rated cases needed to estimate the weight of a judge
NOTHING = 1e-12  # share of a sum of squares that is rounding error


@dataclass(frozen=True)
class Interval:
    """A figure with its interval of 95 %.

    `error` is the standard error, `freedom` its degrees of freedom and `cases` the number of cases. What is undefined is None,
    and `reason` says why.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    freedom: float | None = None
    cases: int = 0
    reason: str | None = None

    @property
    def width(self) -> float | None:
        return None if self.low is None or self.high is None else self.high - self.low

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {name: getattr(self, name) for name in ("value", "low", "high", "error", "cases")}
        record |= {"reason": self.reason} if self.reason else {}
        return record | ({"approximate": True} if self.low is not None and self.cases < FEW_CASES else {})


@dataclass(frozen=True)
class Powered:
    """The prediction-powered, classical and naive estimates.

    Args:
        interval, classical, naive: the three estimates.
        weight: λ, the weight of the judge: 0, it is not used; 1, on people's scale, it counts like a person.
        rated, unrated, invalid: the number of rated cases, of unrated cases, and of rated cases without a valid verdict.
        worth: the effective sample size (value, low, high): how many rated cases without a judge would give the same width.
            It is n times the ratio of the variances; its interval is by the delete-one jackknife of the logarithm.
        spread, rest: the standard deviations over cases of people's values and of the part that the judge does not explain,
            per mean unit; `sampling` plans with them.
    """

    interval: Interval
    classical: Interval
    naive: Interval
    weight: float | None = None
    rated: int = 0
    unrated: int = 0
    invalid: int = 0
    worth: tuple[float, float, float] | None = None
    spread: float | None = None
    rest: float | None = None

    def to_dict(self) -> dict[str, Any]:
        figures = {name: getattr(self, name).to_dict() for name in ("classical", "naive")}
        record = figures | {"prediction_powered": self.interval.to_dict(), "weight": self.weight, "rated": self.rated}
        record |= {"unrated": self.unrated, "rated_without_verdict": self.invalid, "worth": None, "saved": None}
        if self.worth:
            record["worth"] = dict(zip(("value", "low", "high"), self.worth))
            record["saved"] = {name: value - self.rated for name, value in record["worth"].items()}
        return record


def prediction_powered(
    people: np.ndarray,
    judge: np.ndarray,
    units: np.ndarray | None = None,
    probabilities: np.ndarray | None = None,
    bounds: tuple[float, float] | None = None,
    cross_fit: bool = True,
) -> Powered:
    """Estimate a mean over cases from few ratings and many verdicts, as the module's docstring defines it.

    Args:
        people: float [cases], people's sum of values over the units of a case, NaN if it is not rated.
        judge: float [cases], the judge's sum, on any scale; NaN without a valid verdict.
        units: float [cases], the units of each case, not all 0; 1 each by default.
        probabilities: float [cases], the inclusion probabilities; only those of rated cases are used. None if all are equal.
        bounds: the lowest and highest possible value of the mean.
        cross_fit: False fits one weight to all rated cases, as published, for comparison.

    Raises:
        ValueError: a probability of a rated case is not above 0 and at most 1.
    """
    units = np.ones(len(people)) if units is None else units
    known = ~np.isnan(people)
    naive = _naive(judge, units, bounds)
    rated, n = int(known.sum()), len(people)
    counts: dict[str, Any] = {"rated": rated, "unrated": n - rated, "invalid": int((known & np.isnan(judge)).sum())}
    if rated < 2:
        nothing = Interval(None, cases=rated, reason="fewer than two rated cases")
        return Powered(nothing, nothing, naive, **counts)
    w = _weights(known, probabilities)
    own = units[known]
    size = float(w @ own)
    value = float(w @ people[known]) / size
    e = people[known] - value * own
    factor = rated / (rated - 1)
    freedom = 1 / float(w @ w) - 1
    plain = w * e  # each rated case's contribution to the classical error
    classical_variance = factor * float(plain @ plain) / size**2
    even = np.ptp(w) <= 1e-9 * w.max()
    classical = _interval(value, classical_variance, freedom, rated, bounds, even)
    spread = float(np.sqrt((w @ e**2) * factor)) / size if classical.error is not None else 0.0
    if rated < LEAST_RATED:
        few = f"the weight of a judge needs {LEAST_RATED} rated cases, and there are {rated}"
        return Powered(Interval(None, cases=rated, reason=few), classical, naive, spread=spread, **counts)
    if classical.error is None:  # people's values do not vary, so that a judge can explain nothing
        return Powered(classical, classical, naive, 0.0, spread=spread, **counts)
    g = _centred(judge, units)
    equal = probabilities is None
    gamma = _gamma(people[known], own, g, known, w, equal, cross_fit)
    trust = float(w @ gamma)
    powered = float(w @ (people[known] - gamma * g[known])) / size
    r = people[known] - powered * own - gamma * g[known]
    parts, others = w * r + trust * g[known] / n, trust * g[~known] / n
    if equal:  # the number of rated cases is fixed: sums about the means
        parts = parts - parts.mean()
        others = others - others.mean() if len(others) else others
    rest = float(others @ others) * len(others) / max(1, len(others) - 1)
    variance = (factor * float(parts @ parts) + rest) / size**2
    interval = _interval(powered, variance, freedom, rated, bounds, even)
    worth = _worth(plain, parts, rest / factor, freedom)
    rest = float(np.sqrt((w @ r**2) * factor)) / size
    weight = trust * (n - rated) / n
    return Powered(interval, classical, naive, weight, worth=worth, spread=spread, rest=rest, **counts)


def _weights(known: np.ndarray, probabilities: np.ndarray | None) -> np.ndarray:
    """Return the weights of the rated cases, which sum to 1."""
    if probabilities is None:
        return np.full(int(known.sum()), 1 / known.sum())
    chance = probabilities[known]
    if not ((chance > 0) & (chance <= 1)).all():
        raise ValueError("a rated case's inclusion probability must be above 0 and at most 1")
    return (1 / chance) / (1 / chance).sum()


def _centred(judge: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the judge's values less their mean, 0 without a valid verdict."""
    valid = ~np.isnan(judge)
    if not units[valid].sum():
        return np.zeros(len(judge))
    filled = np.where(valid, judge, 0.0)
    mean = filled.sum() / units[valid].sum()
    return np.where(valid, filled - mean * units, 0.0)


def _gamma(
    y: np.ndarray, own: np.ndarray, g: np.ndarray, known: np.ndarray, w: np.ndarray, equal: bool, cross_fit: bool
) -> np.ndarray:
    """Return γ of every rated case, fitted to the other rated cases; 0 for a judge with constant values."""
    n, rated, inside = len(g), len(y), g[known]
    squares = float(g @ g)
    if n == rated or squares <= NOTHING:
        return np.zeros(rated)
    if equal:
        c = np.full(rated, (1 / rated) * (1 / rated - 1 / n))
        denominator = squares / (n - 1) * (n - rated) / (n * rated)
    else:
        c = w * (w - 1 / n)
        denominator = float((w - 1 / n) ** 2 @ inside**2 + (g[~known] ** 2).sum() / n**2)
    if denominator <= NOTHING * squares / n**2:
        return np.zeros(rated)
    sums = float(c @ (y * inside)), float(c @ (own * inside))
    if not cross_fit:
        value = float(w @ y / (w @ own))
        return np.full(rated, (sums[0] - value * sums[1]) * rated / (rated - 1) / denominator)
    values = (w @ y - w * y) / np.maximum(w @ own - w * own, NOTHING)  # θ̂ without the case
    without = (sums[0] - c * y * inside) - values * (sums[1] - c * own * inside)
    return without * rated / (rated - 2) / denominator


def _naive(judge: np.ndarray, units: np.ndarray, bounds: tuple[float, float] | None) -> Interval:
    valid = ~np.isnan(judge)
    n, size = int(valid.sum()), float(units[valid].sum())
    if n < 2 or not size:
        return Interval(None, cases=n, reason="fewer than two cases have a valid verdict")
    g = _centred(judge, units)
    variance = float(g @ g) / size**2 * n / (n - 1)
    return _interval(float(judge[valid].sum()) / size, variance, n - 1.0, n, bounds)


def _interval(
    value: float, variance: float, freedom: float, cases: int, bounds: tuple[float, float] | None, even: bool = True
) -> Interval:
    """Return value ± t √variance, within bounds; without variance, the binomial interval or none.

    Args:
        even: whether all cases had the same probability to be rated; else the binomial interval would not be valid.
    """
    error = float(np.sqrt(variance))
    if error <= 1e-9 * max(1.0, abs(value)):
        if even and bounds and min(abs(value - bound) for bound in bounds) <= 1e-9:
            low, high = binomial_interval(bounds[abs(value - bounds[1]) <= 1e-9], cases, bounds)
            same = "all cases have the same value: exact binomial interval"
            return Interval(value, low, high, cases=cases, reason=same)
        return Interval(value, cases=cases, reason=NO_SPREAD)
    reach = -float(stdtrit(max(freedom, 1.0), 0.025)) * error
    low, high = value - reach, value + reach
    if bounds:
        value = min(max(value, bounds[0]), bounds[1])
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(value, low, high, error, freedom, cases)


def _worth(plain: np.ndarray, parts: np.ndarray, rest: float, freedom: float) -> tuple[float, float, float]:
    """Return n times the ratio of the variances, with its jackknife interval."""
    n = len(plain)
    one, two = plain**2, parts**2
    total = float(two.sum()) + rest
    ratio = float(one.sum()) / total
    pulls = one / one.sum() - two / total  # influence of each case on the logarithm
    error = float(np.sqrt(((pulls - pulls.mean()) ** 2).sum() * n / (n - 1)))
    reach = -float(stdtrit(max(freedom, 1.0), 0.025)) * error
    return n * ratio, n * ratio * np.exp(-reach), n * ratio * np.exp(reach)
