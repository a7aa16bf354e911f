"""Bootstrap intervals over cases: one set of resamples for all statistics, so that differences are paired.

A statistic is a function of sums over cases. A resample only changes how often each case is counted: it is a row of counts,
and its sums are a matrix product. Intervals are of 95 %. Cases are resampled with all their responses, pairs and verdicts;
raters are held fixed. Cases that depend on each other, as those on one passage, are a cluster, which is resampled whole. Below
50 cases or clusters an interval is marked approximate.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy
from numpy import ndarray

CHUNK = 32  # resamples whose counts are held at once
FEW_CASES = 50  # below, an interval is marked approximate
RESAMPLES = 2000
SEED = 0  # of all resamples, so that a report made again has the same figures
ROUNDING = 1e-12  # figures that differ by less are equal: sums in another order differ in their last digits
NO_ERROR = 1e-9  # within which a mean is at a bound
# The lowest and highest value of a unit, of a figure that is a mean over units.
Bounds = tuple[float, float] | None
Arrays = dict[str, ndarray]  # by name
SHARE = (0.0, 1.0)  # the bounds of a share
NO_SPREAD = "all cases have the same value, so that no interval can be estimated"
# An object of a JSON file with figures in it: each a `Statistic` before `estimate`, and then an `Estimate`.
Tree = dict[str, Any]


@dataclass(frozen=True)
class Statistic:
    """A figure that is a function of sums over cases."""

    # float [cases, sums], what each case adds to each sum; None if `cells` is given
    columns: ndarray | None
    # Maps sums [resamples, sums] to figures [resamples]; NaN where it is undefined.
    of: Callable[[ndarray], ndarray]
    n: int  # the number of units (pairs, responses or cases)
    reason: str = "nothing to compute it from"  # why the figure may be undefined, in words
    bounds: Bounds = None
    # int [cells], the case of each cell; the sums are then the counts of the cells' cases (ranks of single responses).
    cells: ndarray | None = None
    # Corrects the estimate of the figure by those of the statistics beside it.
    corrected: Callable[..., "Estimate"] | None = None
    beside: tuple["Statistic", ...] = ()

    def estimate(self, value: float, draws: ndarray, clusters: ndarray) -> "Estimate":
        """Return the estimate of a value with draws [resamples], by the cluster of each case."""
        there: Any = self.cells if self.columns is None else self.columns.any(axis=1)
        units = len(np.unique(clusters[there]))  # with a case that contributes
        if np.isnan(value):
            return Estimate(None, n=self.n, reason=self.reason, cases=units, draws=draws)
        return estimate_from(value, draws, units, self.n, self.bounds)


Statistics = dict[str, Statistic]


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval; `value` is None if it is undefined, and `reason` says why.

    `chance` is the upper end of what chance alone would give, of figures that it makes larger.
    `p` is two-sided, of a mean without bounds that is compared with 0, by Student's t as its interval.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str | None = None
    approximate: bool = False
    cases: int = 0
    draws: ndarray = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    chance: float | None = None
    p: float | None = None

    def to_dict(self) -> Tree:
        about = {
            "reason": self.reason,
            "approximate": self.approximate or None,
            "chance": self.chance,
        }
        known = {name: value for name, value in about.items() if value is not None}
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n, **known}


def ratio(numerators: ndarray, denominators: ndarray, reason: str = "no pair") -> Statistic:
    """Return sum(numerators) / sum(denominators), both float [cases]: a mean over units of values from 0 to 1."""
    return mean(numerators, denominators, reason, SHARE)


def mean(
    sums: ndarray, counts: ndarray, reason: str = "no value", bounds: Bounds = None
) -> Statistic:
    """Return sum(sums) / sum(counts), both float [cases]; the counts are of units."""
    columns = np.column_stack([sums, counts]).astype(float)
    n = round(counts.sum())
    return Statistic(columns, lambda sums: divide(sums[:, 0], sums[:, 1]), n, reason, bounds)


def mean_of(
    values: ndarray,
    case: ndarray,
    cases: int,
    reason: str = "no value",
    bounds: Bounds = None,
) -> Statistic:
    """Return the mean of values [units], each of the case whose number `case` has; NaN is left out."""
    total, count = sums_at(values, case, cases)
    return mean(total, count, reason, bounds)


def undefined(cases: int, n: int, reason: str) -> Statistic:
    """Return a statistic that has no value in any resample."""
    return replace(mean(np.zeros(cases), np.zeros(cases), reason), n=n)


def is_known(values: Any) -> ndarray:
    """Return where there is a value: NaN stands for none."""
    return ~np.isnan(values)


def how_many(which: ndarray) -> int:
    """Return how many are true, or the sum of counts, as a number that JSON can hold."""
    return int(which.sum())


def only(values: ndarray, which: ndarray | bool) -> ndarray:
    """Return the values where they count, NaN elsewhere."""
    return np.where(which, values, np.nan)


def divide(numerators: ndarray, denominators: ndarray) -> ndarray:
    """Divide, NaN where the denominator is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return only(numerators / denominators, denominators != 0)


def sums_at(values: ndarray, place: ndarray, size: int) -> tuple[ndarray, ndarray]:
    """Return the sum and the number of the values [units] of each place, as of each case: two float [size]; NaN is left out."""
    there = is_known(values)
    counts = np.bincount(place[there], minlength=size)
    return np.bincount(place[there], values[there], size), counts.astype(float)


def case_sums(parts: Sequence[ndarray], case: ndarray, cases: int) -> ndarray:
    """Return what each case adds to the sums of several parts [units], as `columns` of a statistic: float [cases, parts]."""
    return np.column_stack([np.bincount(case, part, cases) for part in parts])


def means_at(values: ndarray, place: ndarray, size: int) -> ndarray:
    """Return the mean of the values of each place, see `sums_at`: float [size], NaN without any."""
    return divide(*sums_at(values, place, size))


def in_clusters(values: ndarray, clusters: ndarray) -> ndarray:
    """Return a value for each cluster that has some of the values [cases]: cases of one are not independent.

    Each is the mean over all cases, and what the cluster's cases add to it. So their mean is that of the cases, also where
    clusters differ in size, and its standard error is robust to clusters.
    """
    mean = mean_along(values, 0)
    added, count = sums_at(values - mean, clusters, 0)
    there = count > 0
    return mean + added[there] * there.sum() / count.sum()


def mean_along(values: ndarray, axis: int) -> ndarray:
    """Return the mean of the values along an axis that are not NaN; NaN where all are."""
    return divide(np.nansum(values, axis=axis), is_known(values).sum(axis=axis))


def resample_counts(clusters: ndarray, resamples: int) -> Iterator[ndarray]:
    """Yield counts [up to CHUNK, cases]: how often each resample, of as many clusters as there are, contains each case's."""
    rng = np.random.default_rng(SEED)
    size = len(np.unique(clusters))
    chunk = np.empty((CHUNK, len(clusters)), order="F")  # which the product reads by case
    for start in range(0, resamples, CHUNK):
        counts = chunk[: resamples - start]
        for row in counts:  # the draws of all rows would be as large as the counts
            drawn = rng.integers(0, size, size, dtype=np.int32)
            row[:] = np.bincount(drawn, minlength=size)[clusters]
        yield counts


def estimate(tree: Any, cases: int | ndarray, resamples: int = RESAMPLES) -> Any:
    """Return a copy of nested dicts and lists in which every `Statistic` is replaced by its `Estimate`.

    All use the same resamples, of so many cases, or of clusters by the number of that of each case; see `estimate_from`.
    """
    statistics = []
    _replaced(tree, Statistic, lambda leaf: statistics.extend([leaf, *leaf.beside]))
    estimates = iter(bootstrap(statistics, cases, resamples))

    def figure(leaf: Statistic) -> Estimate:
        own, *beside = (next(estimates) for _ in (leaf, *leaf.beside))
        return leaf.corrected(own, *beside) if leaf.corrected else own

    return _replaced(tree, Statistic, figure)


def plain(tree: Any) -> Any:
    """Return a copy of nested dicts and lists for JSON: each `Estimate` is replaced by its `to_dict`."""
    return _replaced(tree, Estimate, Estimate.to_dict)


def _replaced(node: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a copy of nested dicts and lists in which each leaf of this kind is what `change` makes of it."""
    if isinstance(node, kind):
        return change(node)
    if isinstance(node, dict):
        return {key: _replaced(child, kind, change) for key, child in node.items()}
    if isinstance(node, list):
        return [_replaced(child, kind, change) for child in node]
    return node


def bootstrap(
    statistics: Sequence[Statistic], cases: int | ndarray, resamples: int = RESAMPLES
) -> list[Estimate]:
    """Estimate statistics from the same resamples; see `estimate`."""
    if not statistics:
        return []
    clusters = np.arange(cases) if isinstance(cases, int) else cases
    # One product for all sums: the counts are read once.
    none = np.empty((len(clusters), 0))
    wide = [none if part.columns is None else part.columns for part in statistics]
    columns = np.concatenate(wide, axis=1)
    edges = np.cumsum([part.shape[1] for part in wide])

    def figures(counts: ndarray) -> ndarray:
        sums = np.split(counts @ columns, edges, axis=1)
        return np.array(
            [
                part.of(own if part.cells is None else counts[:, part.cells])
                for part, own in zip(statistics, sums)
            ]
        )

    (values,) = figures(np.ones((1, len(clusters)))).T
    resampled = [figures(counts) for counts in resample_counts(clusters, resamples)]
    drawn = zip(statistics, values.tolist(), np.hstack(resampled))
    return [statistic.estimate(value, draws, clusters) for statistic, value, draws in drawn]


def estimate_from(
    value: float, draws: ndarray, cases: int, n: int, bounds: Bounds = None
) -> Estimate:
    """Return the estimate of a figure of n units with draws [resamples], and its interval of 95 % or why there is none.

    The expanded percentile interval (Hesterberg 2015, "What teachers should know about the bootstrap"): the percentiles are
    moved outwards as Student's t requires for this number of cases. If all draws are equal to a bound, it is the exact
    binomial interval. Resamples in which the figure is undefined are left out; if they are more than 5 %, there is no
    interval.
    """
    figure = Estimate(value, n=n, approximate=cases < FEW_CASES, cases=cases, draws=draws)
    defined = draws[is_known(draws)]
    if cases < 2:
        return replace(figure, reason="one case or cluster has no interval")
    if len(defined) < 0.95 * len(draws):
        missing = 1 - len(defined) / len(draws)
        return replace(figure, reason=f"undefined in {missing:.0%} of the resamples")
    if _constant(defined):
        ends = binomial_interval(value, cases, bounds)
        if ends is None:
            return replace(figure, reason=NO_SPREAD)
    else:
        edge = scipy.special.stdtrit(cases - 1, 0.025) * np.sqrt(cases / (cases - 1))
        tail = scipy.special.ndtr(edge)
        ends = np.quantile(defined, [tail, 1 - tail]).tolist()
    low, high = ends
    return replace(figure, low=low, high=high)


def _constant(draws: ndarray) -> bool:
    """Return whether all draws are equal, up to rounding."""
    return bool(np.ptp(draws) <= ROUNDING * max(1.0, abs(draws[0])))


def binomial_interval(value: float, cases: int, bounds: Bounds) -> tuple[float, float] | None:
    """Return the exact binomial (Clopper-Pearson) interval of a mean whose cases all have one of the bounds as their value."""
    low, high = bounds or (np.nan, np.nan)
    width = (high - low) * (1 - 0.025 ** (1 / cases))
    if abs(value - low) <= NO_ERROR:
        return low, low + width
    return (high - width, high) if abs(value - high) <= NO_ERROR else None


def p_value(estimate: Estimate) -> float | None:
    """Return the two-sided p-value of the hypothesis that a figure is 0: the level at which its interval ends at 0.

    None if there is no interval. If all resamples are equal, it is 1 at 0 and else the p-value of the sign test. Resamples of 0
    count against the figure, as its interval then includes 0. With 2,000 resamples it is not below about 0.0005.
    """

    def z(draws: ndarray) -> float:
        against = min((draws <= ROUNDING).sum(), (draws >= -ROUNDING).sum())
        return scipy.special.ndtri(min(0.5, (against + 0.5) / (len(draws) + 1)))

    return _two_sided(estimate, z)


def t_test(estimate: Estimate) -> float | None:
    """Return the two-sided p-value of Student's t: the figure over its standard error, with cases − 1 degrees of freedom.

    The standard error is the standard deviation of the resamples. For a mean over cases this is the paired t-test, up to the
    chance of the resamples; it serves figures without a value per case, too, and its p-values may be as small as the data say.
    None, and what it is if all resamples are equal, as for `p_value`.
    """
    return _two_sided(estimate, lambda draws: estimate.value / draws.std())


def exact_test(signs: ndarray, clusters: ndarray) -> float:
    """Return the two-sided p-value of the sum of 1, 0 and -1 [cases]: all clusters may be turned round.

    If each is as likely to be the other way round, it is at most 0.05 in at most 5 % of samples,
    however small, with any ties. Of cases that are no clusters it is that of the sign test.
    """
    sums = np.bincount(clusters, signs).astype(int)
    sizes, counts = np.unique(np.abs(sums[sums != 0]), return_counts=True)
    chances = np.ones(1)  # of each sum, from the lowest one
    for size, count in zip(sizes, counts):
        turned = scipy.stats.binom.pmf(np.arange(count + 1), count, 0.5)
        chances = np.convolve(chances, np.kron(turned, np.eye(1, 2 * size)[0]))
    tail = chances[: sizes @ counts - abs(sums.sum()) + 1].sum()
    return min(1.0, float(2 * tail))


def _two_sided(estimate: Estimate, z: Callable[[ndarray], float]) -> float | None:
    """Return the p-value of a figure `z` standard deviations of its resamples from 0, widened as in `estimate_from`."""
    draws = estimate.draws
    cases = estimate.cases
    defined = draws[is_known(draws)]
    is_whole = estimate.value is not None and cases > 1 and len(defined) == len(draws) > 0
    if is_whole and _constant(defined):
        return 1.0 if abs(defined[0]) <= ROUNDING else 0.5 ** (cases - 1)
    if estimate.low is None:
        return None
    t = abs(z(defined)) * np.sqrt((cases - 1) / cases)
    return float(2 * scipy.special.stdtr(cases - 1, -t))


def difference(first: Estimate, second: Estimate, bounds: Bounds = (-1.0, 1.0)) -> Estimate:
    """Return the difference of two figures estimated from the same resamples.

    `bounds` are those of a difference: by default of two means of values from 0 to 1, None for other figures.
    """
    return _weighted([first, second], np.array([1.0, -1.0]), bounds)


def average(estimates: Sequence[Estimate], bounds: Bounds = SHARE) -> Estimate:
    """Return the mean of several figures estimated from the same resamples.

    `bounds` are the lowest and highest value of a unit where the figures are means over units, None for other figures.
    """
    count = len(estimates)
    return estimates[0] if count == 1 else _weighted(estimates, np.full(count, 1 / count), bounds)


def _weighted(estimates: Sequence[Estimate], weights: ndarray, bounds: Bounds) -> Estimate:
    """Return the weighted sum of figures from the same resamples; it rests on the fewest cases and units of any."""
    cases = min(figure.cases for figure in estimates)
    for figure in estimates:
        if figure.value is None:
            return Estimate(None, cases=cases, reason=figure.reason)
    value = float(weights @ [figure.value for figure in estimates])
    draws = weights @ np.array([figure.draws for figure in estimates])
    return estimate_from(value, draws, cases, min(figure.n for figure in estimates), bounds)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple tests by the step-down method (Holm 1979)."""
    order = np.argsort(p_values)
    stepped = np.arange(len(order), 0, -1) * np.take(p_values, order)
    return np.maximum.accumulate(np.minimum(1, stepped))[np.argsort(order)].tolist()


def adjust(
    records: list[Tree], name: str, test: Callable[[Estimate], float | None] = p_value
) -> None:
    """Add to each record the p-value of a figure, and the p-value adjusted for the number of records (Holm)."""
    for record in records:
        record |= {"p": test(record[name]), "p_adjusted": None}
    adjust_p(records)


def adjust_p(records: Iterable[Tree]) -> None:
    """Add to each record with a p-value the one adjusted for the number of these records (Holm)."""
    tested = [record for record in records if record["p"] is not None]
    for record, adjusted in zip(tested, holm([record["p"] for record in tested])):
        record["p_adjusted"] = adjusted
