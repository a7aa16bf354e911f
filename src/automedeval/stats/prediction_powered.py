"""Means from many verdicts and few ratings, with intervals that hold whether or not the judge is biased.

Numbers in, numbers out. The unit is the case: cases are a draw from those one wants to speak about, and what belongs to one
case (responses, annotators, verdicts) has been summed up before it comes here. Three estimates stand side by side:

- classical: from the rated cases alone;
- naive: from the judge's verdicts alone; it is wrong by whatever the judge is biased, and its interval does not know;
- prediction-powered: the rated cases correct the judge on the others.

Source: Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, "Prediction-powered inference"; the tuned weight is that of
Angelopoulos, Duchi, Zrnic 2023, "PPI++"; weights for active sampling after Zrnic and Candès 2024, "Active statistical
inference". In surveys the same is known as the regression estimator under two-phase sampling (Cochran 1977, chapter 12).

**The estimate.** Case i of N has M_i units (responses of a model, pairs of models; usually one), people's sum of values Y_i if
it is among the n rated ones, and the judge's sum F_i. The target is θ = E[Y] / E[M]. With φ = ΣF / ΣM over all cases that have
a valid verdict, the centred judge is g_i = F_i - φM_i, and g_i = 0 for a case without a valid verdict. Its sum over all N
cases is 0. With weights w_i of the rated cases that sum to 1 the estimate is

    θ̂ = Σ w_i (Y_i - γ g_i) / Σ w_i M_i          (sums over the rated cases).

Any γ is allowed, for the sum of w_i g_i over a random draw estimates the mean of g, which is 0: a biased judge does no harm,
and γ = 0 is the classical estimate. At M_i = 1 it is the estimate of PPI++ with λ = γ (N - n) / N. A case without a
valid verdict has g_i = 0 whether it is rated or not, so that it is a fixed function of the case that is corrected, as every
other value of the judge is; its rating counts in full. Were such cases dropped instead, the rest would be other cases.

**Its variance.** Linearised at θ, with residuals e_i = Y_i - θ̂M_i and r_i = e_i - γ g_i,

    V = [ Σ_rated (w_i r_i + γ g_i / N)² + Σ_unrated (γ g_i / N)² ] / (Σ w_i M_i)²,

a sum over cases, so that nothing is assumed within them (the sandwich of a clustered ratio). Under equal weights both sums are
taken about their means and multiplied by k / (k - 1), k their number of terms; V then equals the published closed form,
Var(Y - λf) / n + λ² Var(f) / (N - n), at M_i = 1. V is smallest at γ = Σ c_i e_i g_i / D with c_i = w_i (w_i - 1/N) and
D = Σ_rated (w_i - 1/N)² g_i² + Σ_unrated (g_i / N)²; under equal weights that is γ = Cov(Y, f) / Var(f), over all N cases in
the denominator.

**Small samples.** γ that is fitted to the very cases that it corrects makes their residuals look small. So each rated case
gets the γ_i that the other rated cases choose (cross-fitting, one case left out at a time, in closed form); the residuals are
then honest, and a judge that knows nothing costs about half a per cent of width at n = 100. Quantiles are Student's, with
1 / Σw² - 1 degrees of freedom (n - 1 under equal weights; else Kish's effective number).

**What it asks for.** The rated cases must be a random draw of all cases, decided without looking at what people said. Either
all had the same chance, or each had a known one, its inclusion probability π_i > 0: then w_i is proportional to 1 / π_i (Hájek
1971; Horvitz and Thompson 1952 divide by N in place of the sum of weights, which is wilder). A file of the cases that somebody
found worth rating is not such a draw, and no formula here can tell.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from automedeval.stats.bootstrap import FEW_CASES

LEAST_RATED = 10  # rated cases below which no weight of a judge can be told
NOTHING = 1e-12  # of a sum of squares, relative to its size: rounding


@dataclass(frozen=True)
class Interval:
    """A figure with its interval of 95 %.

    `error` is the standard error and `freedom` its degrees of freedom; `cases` counts the cases it rests on. None where there
    is none, and `reason` says why.
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
    def told_from(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low is not None and (self.low > 0 or self.high < 0)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        record = {"value": self.value, "low": self.low, "high": self.high, "error": self.error, "cases": self.cases}
        record |= {"reason": self.reason} if self.reason else {}
        return record | ({"approximate": True} if self.low is not None and self.cases < FEW_CASES else {})


@dataclass(frozen=True)
class Powered:
    """The prediction-powered estimate beside the two others.

    Args:
        interval, classical, naive: the three estimates.
        weight: λ, how far the judge is trusted: 0 not at all; 1, on people's own scale, as one of them. Negative for a judge
            that tells better from worse the wrong way round.
        rated, unrated, invalid: how many cases are rated, how many are not, and how many of the rated have no valid verdict.
        worth: how many cases, all rated and no judge, would give an interval as narrow (value, low, high): n times the ratio of
            both variances. Its interval is the delete-one jackknife's, on the logarithm.
        spread: the standard deviation over cases of people's values; rest: that of what the judge leaves unexplained. Both per
            mean unit; what a plan starts from.
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
        """Return it as JSON can hold it."""
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
    """Estimate a mean over cases from few ratings and many verdicts; see the module's text for how.

    Args:
        people: float [cases], people's sum of values over the units of a case, NaN where it is not rated.
        judge: float [cases], the judge's, on any scale; NaN where it has no valid verdict.
        units: float [cases], how many units a case has, at least one somewhere; all 1 by default.
        probabilities: float [cases], with what chance each case was to be rated; those of unrated cases do not matter. None
            where all had the same.
        bounds: the least and the most that the figure can be.
        cross_fit: False fits one weight to all rated cases, as published, for comparison.

    Raises:
        ValueError: a probability of a rated case is not above 0 and at most 1.
    """
    units = np.ones(len(people)) if units is None else units
    known = ~np.isnan(people)
    naive = _naive(judge, units, bounds)
    rated, n = int(known.sum()), len(people)
    counts = {"rated": rated, "unrated": n - rated, "invalid": int((known & np.isnan(judge)).sum())}
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
    plain = w * e  # what each rated case adds to the classical error
    classical_variance = factor * float(plain @ plain) / size**2
    even = np.ptp(w) <= 1e-9 * w.max()
    classical = _interval(value, classical_variance, freedom, rated, bounds, even)
    spread = float(np.sqrt((w @ e**2) * factor)) / size if classical.error is not None else 0.0
    if rated < LEAST_RATED:
        few = f"the weight of a judge needs {LEAST_RATED} rated cases, and there are {rated}"
        return Powered(Interval(None, cases=rated, reason=few), classical, naive, spread=spread, **counts)
    if classical.error is None:  # people never differ: there is nothing that a judge could explain
        return Powered(classical, classical, naive, 0.0, spread=spread, **counts)
    g = _centred(judge, units)
    equal = probabilities is None
    gamma = _gamma(people[known], own, g, known, w, equal, cross_fit)
    trust = float(w @ gamma)
    powered = float(w @ (people[known] - gamma * g[known])) / size
    r = people[known] - powered * own - gamma * g[known]
    parts, others = w * r + trust * g[known] / n, trust * g[~known] / n
    if equal:  # a draw of a fixed number: about the means
        parts = parts - parts.mean()
        others = others - others.mean() if len(others) else others
    rest = float(others @ others) * len(others) / max(1, len(others) - 1)
    variance = (factor * float(parts @ parts) + rest) / size**2
    interval = _interval(powered, variance, freedom, rated, bounds, even)
    return Powered(
        interval,
        classical,
        naive,
        trust * (n - rated) / n,
        worth=_worth(plain, parts, rest / factor, freedom),
        spread=spread,
        rest=float(np.sqrt((w @ r**2) * factor)) / size,
        **counts,
    )


def _weights(known: np.ndarray, probabilities: np.ndarray | None) -> np.ndarray:
    """Return the weights of the rated cases, which sum to 1."""
    if probabilities is None:
        return np.full(int(known.sum()), 1 / known.sum())
    chance = probabilities[known]
    if not ((chance > 0) & (chance <= 1)).all():
        raise ValueError("a rated case's inclusion probability must be above 0 and at most 1")
    return (1 / chance) / (1 / chance).sum()


def _centred(judge: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the judge's values less their mean, 0 where there is no valid verdict."""
    valid = ~np.isnan(judge)
    if not units[valid].sum():
        return np.zeros(len(judge))
    filled = np.where(valid, judge, 0.0)
    mean = filled.sum() / units[valid].sum()
    return np.where(valid, filled - mean * units, 0.0)


def _gamma(
    y: np.ndarray, own: np.ndarray, g: np.ndarray, known: np.ndarray, w: np.ndarray, equal: bool, cross_fit: bool
) -> np.ndarray:
    """Return γ of every rated case: what the other rated cases choose; 0 for a judge that tells no case from another."""
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
    """Return value ± t √variance, within bounds; where no case differs from another, what can be said without a spread.

    Args:
        even: whether all cases had the same chance to be rated. Where they had not, those that would have said otherwise may be
            the ones with little chance, and a binomial bound would not hold.
    """
    error = float(np.sqrt(variance))
    if error <= 1e-9 * max(1.0, abs(value)):
        if even and bounds and min(abs(value - bound) for bound in bounds) <= 1e-9:
            width = (bounds[1] - bounds[0]) * (1 - 0.025 ** (1 / cases))  # exact binomial, as in `resampling.interval`
            low = bounds[0] if abs(value - bounds[0]) <= 1e-9 else bounds[1] - width
            return Interval(
                value, low, low + width, cases=cases, reason="every case says the same: exact binomial bound"
            )
        return Interval(
            value, cases=cases, reason="every case says the same: there is no spread to tell an interval from"
        )
    reach = -float(stdtrit(max(freedom, 1.0), 0.025)) * error
    low, high = value - reach, value + reach
    if bounds:
        value = min(max(value, bounds[0]), bounds[1])
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(value, low, high, error, freedom, cases)


def _worth(plain: np.ndarray, parts: np.ndarray, rest: float, freedom: float) -> tuple[float, float, float]:
    """Return n times the ratio of the variances, and the jackknife's interval of it."""
    n = len(plain)
    one, two = plain**2, parts**2
    total = float(two.sum()) + rest
    ratio = float(one.sum()) / total
    pulls = one / one.sum() - two / total  # of each case on the logarithm
    reach = -float(stdtrit(max(freedom, 1.0), 0.025)) * float(
        np.sqrt(((pulls - pulls.mean()) ** 2).sum() * n / (n - 1))
    )
    return n * ratio, n * ratio * np.exp(-reach), n * ratio * np.exp(reach)
