"""Intervals by resampling cases: one bootstrap for every figure, so that differences of figures are paired.

A statistic is a function of sums over cases. Resampling cases only changes how often each case is counted, so a resample is
a row of counts, its sums are one matrix product, and thousands of resamples of dozens of statistics take seconds. Raters are
held fixed; responses, pairs and verdicts of a case stay together (ARCHITECTURE: intervals are over cases).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

CHUNK = 64  # resamples whose counts are held at once
FEW_CASES = 50  # below, an interval is marked approximate
RESAMPLES = 2000


@dataclass(frozen=True)
class Statistic:
    """A figure that is a function of sums over cases.

    Args:
        columns: float [cases, sums], what each case adds to each sum. Or None where `cells` says it.
        of: maps sums [resamples, sums] to figures [resamples]; NaN where the figure is undefined.
        n: how many units (pairs, responses, cases) it is about.
        reason: why it may be undefined, in words.
        bounds: the least and the most that a case can say, where the figure is a mean of such.
        cells: int [cells], the case of each cell: the sums are then one per cell, its case's count (rank statistics, whose
            cells are single responses).
    """

    columns: np.ndarray | None
    of: Callable[[np.ndarray], np.ndarray]
    n: int
    reason: str = "nothing to compute it from"
    bounds: tuple[float, float] | None = None
    cells: np.ndarray | None = None

    def sums(self, counts: np.ndarray) -> np.ndarray:
        """Return the sums [resamples, sums] under counts [resamples, cases]."""
        return counts[:, self.cells] if self.columns is None else counts @ self.columns

    @property
    def cases(self) -> int:
        """Return how many cases contribute."""
        return len(np.unique(self.cells)) if self.columns is None else int(self.columns.any(axis=1).sum())


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval; `value` is None where it is undefined, and `reason` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str | None = None
    approximate: bool = False
    cases: int = 0
    draws: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False, compare=False)

    def to_dict(self) -> dict[str, float | int | str | bool | None]:
        """Return the record of `agreement.json`."""
        record = {"value": self.value, "low": self.low, "high": self.high, "n": self.n}
        if self.reason:
            record["reason"] = self.reason
        return record | ({"approximate": True} if self.approximate else {})


def ratio(numerators: np.ndarray, denominators: np.ndarray, n: int | None = None, reason: str = "no pair") -> Statistic:
    """Return the statistic sum(numerators) / sum(denominators), a mean over units of values in 0 to 1; one entry per case."""
    n = round(denominators.sum()) if n is None else n
    return mean(numerators, denominators, n, reason, (0.0, 1.0))


def mean(
    numerators: np.ndarray,
    denominators: np.ndarray,
    n: int,
    reason: str = "no value",
    bounds: tuple[float, float] | None = None,
) -> Statistic:
    """Return the statistic sum(numerators) / sum(denominators); one entry per case."""
    columns = np.column_stack([numerators, denominators]).astype(float)
    return Statistic(columns, lambda sums: divide(sums[:, 0], sums[:, 1]), n, reason, bounds)


def divide(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Divide, NaN where the denominator is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominators == 0, np.nan, numerators / denominators)


def resample_counts(cases: int, resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield counts [up to CHUNK, cases]: how often each case stands in each resample of as many cases."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, CHUNK):
        rows = min(CHUNK, resamples - start)
        drawn = rng.integers(0, cases, size=(rows, cases), dtype=np.int32)
        drawn += (np.arange(rows, dtype=np.int32) * cases)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * cases).reshape(rows, cases).astype(float)


def estimate(tree: Any, cases: int, resamples: int = RESAMPLES, seed: int = 0) -> Any:
    """Return a copy of nested dicts and lists in which every `Statistic` has become an `Estimate`, all from one bootstrap.

    Percentile intervals of 95 %, with percentiles moved outwards as Student's t asks at this number of cases (Hesterberg
    2015, "What teachers should know about the bootstrap": the expanded percentile interval). Where all cases agree on 0 or
    1, no resample differs and the bound is the exact binomial one. Resamples in which a figure is undefined are left out;
    if they are more than one in twenty, there is no interval.
    """
    statistics: list[Statistic] = []

    def collect(node: Any) -> Any:
        if isinstance(node, Statistic):
            statistics.append(node)
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            collect(child)

    collect(tree)
    estimates = iter(bootstrap(statistics, cases, resamples, seed))

    def replace(node: Any) -> Any:
        if isinstance(node, Statistic):
            return next(estimates)
        if isinstance(node, dict):
            return {key: replace(child) for key, child in node.items()}
        return [replace(child) for child in node] if isinstance(node, list) else node

    return replace(tree)


def bootstrap(statistics: Sequence[Statistic], cases: int, resamples: int = RESAMPLES, seed: int = 0) -> list[Estimate]:
    """Estimate statistics from the same resamples; see `estimate`."""
    wide = [number for number, statistic in enumerate(statistics) if statistic.columns is not None]
    # One product for all sums: the counts are read once.
    columns = np.concatenate([np.empty((cases, 0)), *(statistics[number].columns for number in wide)], axis=1)
    edges = np.cumsum([0, *(statistics[number].columns.shape[1] for number in wide)])
    place = {number: slice(edges[at], edges[at + 1]) for at, number in enumerate(wide)}

    def figures(counts: np.ndarray) -> np.ndarray:
        sums = counts @ columns
        return np.array(
            [
                statistic.of(sums[:, place[number]] if number in place else statistic.sums(counts))
                for number, statistic in enumerate(statistics)
            ]
        ).reshape(len(statistics), len(counts))

    values = figures(np.ones((1, cases)))[:, 0]
    parts = [figures(counts) for counts in resample_counts(cases, resamples, seed)]
    draws = np.concatenate([np.empty((len(statistics), 0)), *parts], axis=1)
    return [_estimate(statistic, float(value), own) for statistic, value, own in zip(statistics, values, draws)]


def _estimate(statistic: Statistic, value: float, draws: np.ndarray) -> Estimate:
    cases = statistic.cases
    if np.isnan(value):
        return Estimate(None, n=statistic.n, reason=statistic.reason, cases=cases, draws=draws)
    low, high, reason = interval(value, draws, cases, statistic.bounds)
    return Estimate(value, low, high, statistic.n, reason, cases < FEW_CASES, cases, draws)


def interval(
    value: float, draws: np.ndarray, cases: int, bounds: tuple[float, float] | None = None
) -> tuple[float | None, float | None, str | None]:
    """Return (low, high, reason): the expanded percentile interval of draws over so many cases, or why there is none."""
    if cases < 2:
        return None, None, "one case has no interval"
    known = draws[~np.isnan(draws)]
    if len(known) < 0.95 * len(draws):
        return None, None, f"undefined in {1 - len(known) / len(draws):.0%} of the resamples"
    if np.ptp(known) == 0:
        if not bounds or value not in bounds:
            return None, None, "every case says the same: there is no spread to tell an interval from"
        width = (bounds[1] - bounds[0]) * (1 - 0.025 ** (1 / cases))
        return (bounds[1] - width, bounds[1], None) if value == bounds[1] else (bounds[0], bounds[0] + width, None)
    tail = float(ndtr(stdtrit(cases - 1, 0.025) * np.sqrt(cases / (cases - 1))))
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high), None


def p_value(estimate: Estimate) -> float | None:
    """Return the two-sided p-value of a figure being 0: the level at which its interval would end there.

    None where there is no interval, unless all resamples are alike: at 0 nothing speaks against it, and elsewhere it is the
    sign test's.
    """
    known = np.empty(0) if estimate.value is None else estimate.draws[~np.isnan(estimate.draws)]
    if estimate.cases > 1 and len(known) == len(estimate.draws) > 0 and np.ptp(known) == 0:
        return 1.0 if known[0] == 0 else float(min(1.0, 2 * 0.5**estimate.cases))
    if estimate.low is None:
        return None
    below = ((known < 0).sum() + 0.5 * (known == 0).sum() + 0.5) / (len(known) + 1)
    shrunk = np.sqrt((estimate.cases - 1) / estimate.cases)
    return float(min(1.0, 2 * stdtr(estimate.cases - 1, -abs(ndtri(below)) * shrunk)))


def value_of(statistic: Statistic, cases: int) -> float:
    """Return the figure itself, without an interval; NaN where it is undefined."""
    return float(statistic.of(statistic.sums(np.ones((1, cases))))[0])


def plain(node: Any) -> Any:
    """Return a copy of nested dicts and lists in which every `Estimate` has become a record for JSON."""
    if isinstance(node, Estimate):
        return node.to_dict()
    if isinstance(node, dict):
        return {key: plain(child) for key, child in node.items()}
    return [plain(child) for child in node] if isinstance(node, list) else node


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two means of values from 0 to 1 that come from one bootstrap, paired over cases."""
    cases = min(first.cases, second.cases)
    if first.value is None or second.value is None:
        return Estimate(None, cases=cases, reason=first.reason or second.reason)
    value, draws = first.value - second.value, first.draws - second.draws
    low, high, reason = interval(value, draws, cases, (-1.0, 1.0))
    return Estimate(value, low, high, min(first.n, second.n), reason, cases < FEW_CASES, cases, draws)


def average(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of means of values from 0 to 1 that come from one bootstrap; the interval is over cases."""
    cases = min(each.cases for each in estimates)
    if without := next((each for each in estimates if each.value is None), None):
        return Estimate(None, cases=cases, reason=without.reason)
    value = sum(each.value for each in estimates) / len(estimates)
    draws = np.mean([each.draws for each in estimates], axis=0)
    low, high, reason = interval(value, draws, cases, (0.0, 1.0))
    return Estimate(value, low, high, min(each.n for each in estimates), reason, cases < FEW_CASES, cases, draws)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979)."""
    order = np.argsort(p_values)
    adjusted = np.empty(len(p_values))
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted.tolist()
