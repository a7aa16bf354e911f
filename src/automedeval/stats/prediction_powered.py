"""Means from many verdicts and few ratings, with intervals that are valid even if the judge is biased.

The unit is the case: cases are a random draw from a population. Three estimates are returned:

- classical: from the rated cases alone;
- naive: from the judge's verdicts alone; it is wrong by the judge's bias, which its interval does not include;
- prediction-powered: from the verdicts, corrected by the rated cases.

Source: Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, "Prediction-powered inference"; the tuned weight is that of
Angelopoulos, Duchi, Zrnic 2023, "PPI++". In survey statistics it is the regression estimator under two-phase sampling (Cochran
1977, chapter 12).

**The estimate.** Case i of N has people's value Y_i if it is among the n rated cases, and the judge's value F_i. The target is
θ = E[Y]. The centred judge g_i is F_i less its mean over all cases with a valid verdict, and 0 for a case without one. The
estimate is the mean over the rated cases of Y_i - λ (g_i - ḡ), where ḡ is the mean of g over the unrated cases.

Any λ is valid, because g_i and ḡ have the same expectation. λ = 0 is the classical estimate. A case without a valid verdict
has g_i = 0 whether it is rated or not, and its rating counts in full; without such cases, the others would not be a draw from
the same population.

**Its variance.** With γ = λ N / (N - n), residuals e_i = Y_i - θ̂ and r_i = e_i - γ g_i,

    V = Σ_rated (r_i / n + γ g_i / N)² + Σ_unrated (γ g_i / N)²,

a sum over cases. Both sums are taken about their means and multiplied by k / (k - 1), k their number of terms; V is then the
published closed form, Var(Y - λf) / n + λ² Var(f) / (N - n). V is smallest at γ = Cov(e, g) / Var(g).

**Small samples.** If γ is fitted to the cases that it corrects, their residuals are too small, and skewed scores bias the
estimate. So γ_i of a rated case is the slope of people's values on the judge's among the other rated cases. No γ_i sees its own
case or ḡ: the estimate has no bias for any n. A judge without information costs about 0.5 % of the width at n = 100.
Quantiles are Student's, with n - 1 degrees of freedom.

**Clusters.** Where cases depend on each other, each square is that of the sum over a cluster, rated and unrated cases together;
k and the degrees of freedom count clusters; and γ_i is determined by the rated cases of other clusters.

**Assumption.** The rated cases are a random draw of all cases, independent of what people say about them. If somebody chose the
cases to rate, the intervals are not valid, and nothing here can detect it.
"""

import math

import numpy as np
import scipy
from numpy import ndarray

from automedeval.stats.agreement import centred
from automedeval.stats.bootstrap import (
    FEW_CASES,
    NO_ERROR,
    NO_SPREAD,
    Bounds,
    Estimate,
    Tree,
    binomial_interval,
    divide,
    how_many,
    in_clusters,
    is_known,
    means_at,
    only,
)

LEAST_RATED = 10  # rated cases, or clusters of them, needed to estimate the weight of a judge
NOTHING = 1e-12  # a sum of squares of rounding errors


def prediction_powered(
    people: ndarray, judge: ndarray, bounds: Bounds = None, clusters: ndarray | None = None
) -> Tree:
    """Estimate a mean over cases from few ratings and many verdicts, as the module's docstring defines it.

    Args:
        people: float [cases], people's value of a case, NaN if it is not rated.
        judge: float [cases], the judge's value, on any scale; NaN without a valid verdict.
        bounds: the lowest and highest possible value of the mean.
        clusters: int [cases], the number of each case's cluster; by default each is one of its own.

    Returns:
        "classical", "naive" and "prediction_powered", each an `Estimate`; "weight", λ of the judge: 0, it is not used; 1, on
        people's scale, it counts like a person; the numbers of cases that are "rated", "unrated" and "rated_without_verdict";
        "worth", how many rated cases without a judge would give the same width: n times the ratio of the variances. Weight
        and worth are None where they are not known.
    """
    is_rated = is_known(people)
    valid = is_known(judge)
    y = people[is_rated]
    n = len(people)
    clusters = np.arange(n) if clusters is None else clusters
    rated = len(y)
    classical = mean_over_cases(people, clusters, bounds)
    independent = classical.cases
    result: Tree = {
        "classical": classical,
        "naive": mean_over_cases(judge, clusters, bounds),
        "prediction_powered": classical,
        "weight": None,
        "rated": rated,
        "unrated": n - rated,
        "rated_without_verdict": how_many(is_rated & ~valid),
        "worth": None,
    }
    if independent < LEAST_RATED:
        few = f"the weight of a judge needs {LEAST_RATED} rated cases or clusters, and there are {independent}"
        gap = Estimate(None, n=rated, cases=independent, reason=few)
        return result | {"prediction_powered": gap}
    if classical.reason:  # people's values do not vary, so that a judge can explain nothing
        return result | {"weight": 0.0}
    g = centred(judge, valid)
    of_rated = g[is_rated]
    gamma = _gamma(y, of_rated, clusters[is_rated]) if rated < n else np.zeros(n)
    trust = float(gamma.mean())
    # From the mean of the unrated, times (N - n) / N.
    gaps = ((n - rated) * of_rated + of_rated.sum()) / n
    value = float(np.mean(y - gamma * gaps))
    residuals = y - gamma * of_rated
    part = is_rated.astype(int)
    k = np.array([len(np.unique(clusters[~is_rated])), independent])  # by part
    terms = trust * (g - means_at(g, part, 2)[part]) / n
    terms[is_rated] += (residuals - residuals.mean()) / rated
    sums = np.bincount(clusters, terms * np.sqrt(k / np.maximum(1, k - 1))[part])
    variance = float(sums @ sums)
    interval = _interval(value, variance, rated, independent, bounds)
    weight = trust * (n - rated) / n
    worth = rated * _variance(in_clusters(people, clusters)) / variance
    return result | {"prediction_powered": interval, "weight": weight, "worth": worth}


def _variance(independent: ndarray) -> float:
    """Return the estimated variance of the mean of independent values."""
    return float(independent.var(ddof=1)) / len(independent)


def mean_over_cases(values: ndarray, clusters: ndarray, bounds: Bounds) -> Estimate:
    """Return the mean of the values of cases that have one; of one cluster without an interval."""
    n = how_many(is_known(values))
    independent = in_clusters(values, clusters)
    value = float(independent.mean()) if n > 1 else None
    count = len(independent)
    if value is None or count < 2:
        few = "fewer than two cases or clusters have a value"
        return Estimate(value, n=n, cases=count, reason=few)
    return _interval(value, _variance(independent), n, count, bounds)


def _gamma(y: ndarray, g: ndarray, clusters: ndarray) -> ndarray:
    """Return γ of every rated case: the slope of y on g in those of other clusters."""

    def elsewhere(values: ndarray) -> ndarray:  # their sum over the other clusters
        return values.sum() - np.bincount(clusters, values)[clusters]

    count = elsewhere(np.ones(len(y)))
    mean = elsewhere(g) / count
    squares = elsewhere(g * g) - mean * elsewhere(g)
    products = elsewhere(y * g) - mean * elsewhere(y)
    return np.nan_to_num(divide(products, only(squares, squares > NOTHING)))


def _interval(value: float, variance: float, n: int, cases: int, bounds: Bounds) -> Estimate:
    """Return value ± t √variance of n cases, of which so many, or their clusters, are independent; within bounds.

    Without variance it is the binomial interval, or none, and its p-value that of the sign test.
    """
    error = math.sqrt(variance)
    is_few = cases < FEW_CASES
    if error <= NO_ERROR * max(1.0, abs(value)):
        if ends := binomial_interval(value, cases, bounds):
            same = "all cases have the same value: exact binomial interval"
            return Estimate(value, *ends, n, same, is_few, cases)
        p = 0.5 ** (cases - 1) if abs(value) > NO_ERROR else 1.0
        return Estimate(value, n=n, reason=NO_SPREAD, cases=cases, p=p)
    p = float(2 * scipy.special.stdtr(cases - 1, -abs(value) / error))
    reach = scipy.special.stdtrit(cases - 1, 0.975) * error
    least, most = bounds or (-np.inf, np.inf)
    value, low, high = np.clip([value, value - reach, value + reach], least, most).tolist()
    return Estimate(value, low, high, n, None, is_few, cases, p=p)
