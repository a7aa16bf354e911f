"""Means from many verdicts and few ratings, with intervals that are valid even if the judge is biased.

The unit is the case: cases are a random draw from a population, and what belongs to one case (responses, annotators, verdicts)
is summed up before. Three estimates are returned:

- classical: from the rated cases alone;
- naive: from the judge's verdicts alone; it is wrong by the judge's bias, which its interval does not include;
- prediction-powered: from the verdicts, corrected by the rated cases.

Source: Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, "Prediction-powered inference"; the tuned weight is that of
Angelopoulos, Duchi, Zrnic 2023, "PPI++". In survey statistics it is the regression estimator under two-phase sampling (Cochran
1977, chapter 12).

**The estimate.** Case i of N has M_i units (responses of a model, pairs of models; usually one), people's sum of values Y_i if
it is among the n rated cases, and the judge's sum F_i. The target is θ = E[Y] / E[M]. With φ = ΣF / ΣM over all cases with a
valid verdict, the centred judge is g_i = F_i - φM_i, and g_i = 0 for a case without a valid verdict. Its sum over all N cases
is 0. The estimate is

    θ̂ = Σ (Y_i - γ g_i) / Σ M_i          (sums over the rated cases).

Any γ is valid, because the mean of g over a random draw estimates the mean of g, which is 0. γ = 0 is the classical estimate.
At M_i = 1 it is the estimate of PPI++ with λ = γ (N - n) / N. A case without a valid verdict has g_i = 0 whether it is rated or
not, and its rating counts in full; without such cases, the others would not be a draw from the same population.

**Its variance.** Linearised at θ, with residuals e_i = Y_i - θ̂M_i and r_i = e_i - γ g_i,

    V = [ Σ_rated (r_i / n + γ g_i / N)² + Σ_unrated (γ g_i / N)² ] / (Σ M_i / n)²,

a sum over cases, so that nothing is assumed within them (the sandwich variance of a clustered ratio). Both sums are taken about
their means and multiplied by k / (k - 1), k their number of terms; V then equals the published closed form,
Var(Y - λf) / n + λ² Var(f) / (N - n), at M_i = 1. V is smallest at γ = Cov(e, g) / Var(g), with all N cases in the denominator.

**Small samples.** If γ is fitted to the cases that it corrects, their residuals are too small. So each rated case gets the
γ_i that the other rated cases determine (leave-one-out cross-fitting, in closed form). A judge without information then costs
about 0.5 % of the width at n = 100. Quantiles are Student's, with n - 1 degrees of freedom.

**Assumption.** The rated cases are a random draw of all cases, independent of what people say about them. If somebody chose the
cases to rate, the intervals are not valid, and nothing here can detect it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from automedeval.stats.bootstrap import FEW_CASES, NO_SPREAD, Bounds, Estimate, binomial_interval

LEAST_RATED = 10  # rated cases needed to estimate the weight of a judge
NOTHING = 1e-12  # a sum of squares of rounding errors


@dataclass(frozen=True)
class Powered:
    """The prediction-powered, classical and naive estimates."""

    interval: Estimate
    classical: Estimate
    naive: Estimate
    weight: float | None = None  # λ of the judge: 0, it is not used; 1, on people's scale, it counts like a person
    rated: int = 0  # cases
    unrated: int = 0
    invalid: int = 0  # rated cases without a valid verdict
    # How many rated cases without a judge would give the same width: n times the ratio of the variances.
    worth: float | None = None
    # The standard deviations over cases of people's values, and of the part that the judge does not explain, per mean unit.
    spread: float | None = None
    rest: float | None = None

    def to_dict(self) -> dict[str, Any]:
        figures = {name: getattr(self, name).to_dict() for name in ("classical", "naive")}
        record = figures | {"prediction_powered": self.interval.to_dict(), "weight": self.weight, "rated": self.rated}
        return record | {"unrated": self.unrated, "rated_without_verdict": self.invalid, "worth": self.worth}


def prediction_powered(
    people: np.ndarray, judge: np.ndarray, units: np.ndarray | None = None, bounds: Bounds = None
) -> Powered:
    """Estimate a mean over cases from few ratings and many verdicts, as the module's docstring defines it.

    Args:
        people: float [cases], people's sum of values over the units of a case, NaN if it is not rated.
        judge: float [cases], the judge's sum, on any scale; NaN without a valid verdict.
        units: float [cases], the units of each case, not all 0; 1 each by default.
        bounds: the lowest and highest possible value of the mean.
    """
    units = np.ones(len(people)) if units is None else units
    is_rated = ~np.isnan(people)
    naive = _naive(judge, units, bounds)
    rated, n = int(is_rated.sum()), len(people)
    counts: dict[str, Any] = {"rated": rated, "unrated": n - rated, "invalid": int((is_rated & np.isnan(judge)).sum())}
    if rated < 2:
        nothing = Estimate(None, n=rated, cases=rated, reason="fewer than two rated cases")
        return Powered(nothing, nothing, naive, **counts)
    y, rated_units = people[is_rated], units[is_rated]
    size = float(rated_units.mean())
    value = float(y.mean()) / size
    e = y - value * rated_units
    classical = _interval(value, e.var(ddof=1) / rated / size**2, rated, bounds)
    spread = float(e.std(ddof=1)) / size if classical.reason is None else 0.0
    if rated < LEAST_RATED:
        few = f"the weight of a judge needs {LEAST_RATED} rated cases, and there are {rated}"
        return Powered(Estimate(None, n=rated, cases=rated, reason=few), classical, naive, spread=spread, **counts)
    if classical.reason:  # people's values do not vary, so that a judge can explain nothing
        return Powered(classical, classical, naive, 0.0, spread=spread, **counts)
    g = _centred(judge, units)
    gamma = _gamma(y, rated_units, g[is_rated], n, float(g @ g))
    trust = float(gamma.mean())
    powered = float((y - gamma * g[is_rated]).mean()) / size
    r = y - powered * rated_units - gamma * g[is_rated]
    parts = r / rated + trust * g[is_rated] / n
    parts = parts - parts.mean()
    others = trust * g[~is_rated] / n
    of_others = float(others.var(ddof=1)) * len(others) if len(others) > 1 else 0.0
    factor = rated / (rated - 1)
    interval = _interval(powered, (factor * float(parts @ parts) + of_others) / size**2, rated, bounds)
    worth = float(e @ e) / rated / (float(parts @ parts) + of_others / factor)
    rest = float(np.sqrt((r @ r) / (rated - 1))) / size
    return Powered(interval, classical, naive, trust * (n - rated) / n, worth=worth, spread=spread, rest=rest, **counts)


def _centred(judge: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the judge's values less their mean, 0 without a valid verdict."""
    valid = ~np.isnan(judge)
    if not units[valid].sum():
        return np.zeros(len(judge))
    filled = np.where(valid, judge, 0.0)
    mean = filled.sum() / units[valid].sum()
    return np.where(valid, filled - mean * units, 0.0)


def _gamma(y: np.ndarray, units: np.ndarray, g: np.ndarray, n: int, squares: float) -> np.ndarray:
    """Return γ of every rated case, fitted to the other rated cases; 0 for a judge with constant values.

    `squares` is the sum of g² over all n cases.
    """
    rated = len(y)
    if n == rated or squares <= NOTHING:
        return np.zeros(rated)
    values = (y.sum() - y) / np.maximum(units.sum() - units, NOTHING)  # θ̂ without the case
    products = (y @ g - y * g) - values * (units @ g - units * g)
    return products / (rated - 2) / (squares / (n - 1))


def _naive(judge: np.ndarray, units: np.ndarray, bounds: Bounds) -> Estimate:
    valid = ~np.isnan(judge)
    n, size = int(valid.sum()), float(units[valid].sum())
    if n < 2 or not size:
        return Estimate(None, n=n, cases=n, reason="fewer than two cases have a valid verdict")
    g = _centred(judge, units)
    return _interval(float(judge[valid].sum()) / size, float(g @ g) / size**2 * n / (n - 1), n, bounds)


def _interval(value: float, variance: float, cases: int, bounds: Bounds) -> Estimate:
    """Return value ± t √variance, within bounds; without variance, the binomial interval or none."""
    error = float(np.sqrt(variance))
    if error <= 1e-9 * max(1.0, abs(value)):
        if bounds and min(abs(value - bound) for bound in bounds) <= 1e-9:
            low, high = binomial_interval(bounds[abs(value - bounds[1]) <= 1e-9], cases, bounds)
            same = "all cases have the same value: exact binomial interval"
            return Estimate(value, low, high, cases, same, cases < FEW_CASES, cases)
        return Estimate(value, n=cases, reason=NO_SPREAD, cases=cases)
    reach = float(scipy.special.stdtrit(cases - 1, 0.975)) * error
    low, high = value - reach, value + reach
    if bounds:
        value = min(max(value, bounds[0]), bounds[1])
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Estimate(value, low, high, cases, None, cases < FEW_CASES, cases)
