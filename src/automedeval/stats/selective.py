"""Abstention: which verdicts can be kept so that few of their pairs are wrong, and what is promised of them.

A verdict has a confidence; those at a threshold or above are kept, the others go to people. The risk at a threshold is the
chance that a pair of a kept verdict is wrong: take a kept case at random, of it at random a pair that people put in an order;
it is wrong unless the judge puts it in that order (a judge's tie is wrong, a tie of people is no pair). Cases count alike,
however many responses they have.

Pairs of a case share their question, their responses and the judge's mood: they are not independent, and counting them all
promises more than is true. So a rated case gives one unit, a pair drawn by the seed and the case's id. Given how many units a
threshold keeps, its errors are binomial with the risk at that threshold, whatever the judge is like, if rated and fresh cases
are drawn alike. `certify` goes through thresholds from the strictest to the laxest and tests at each whether the risk is above
what is allowed, by the exact binomial p-value. It stops at the first where that cannot be ruled out; the last before is wrongly
called safe with a probability of delta at most (fixed-sequence testing, as in "Learn then Test", Angelopoulos, Bates, Candès,
Jordan and Lei 2021). For this the sequence has to be fixed before anything is known of the rated cases: it is made of the fresh
verdicts' confidences and of how many units there are, never of the rated cases' confidences or errors.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr

from automedeval.stats.agreement import Panel
from automedeval.stats.bootstrap import divide, ratio

STEPS = 20  # thresholds are laid at twentieths of the fresh verdicts
LEAST = 4  # twentieths that the strictest threshold keeps: a few units more decide less by chance whether the sequence goes on
SPARE = 2  # errors that it should be able to bear
POINTS = 10  # of a risk-coverage curve


@dataclass(frozen=True)
class Certificate:
    """What can be promised.

    Args:
        risk, delta: the share of wrong pairs that is allowed, and how often the promise may be false.
        units: rated cases with a verdict and a pair that people put in an order.
        threshold: verdicts of this confidence or more are kept; None keeps none, and `reason` says why.
        tested: the thresholds in turn, as {"threshold", "units", "errors", "p"}; the last may be the one that failed.
    """

    risk: float
    delta: float
    units: int
    threshold: float | None
    tested: tuple[Mapping[str, float], ...]
    reason: str | None = None

    @property
    def accepted(self) -> Mapping[str, float] | None:
        """The line of `tested` that the threshold stands in."""
        return next((line for line in self.tested if line["threshold"] == self.threshold), None)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        told = self.accepted or {}
        promise = (
            "of a kept case, drawn at random, a pair that people put in an order, drawn at random, is wrong with a probability "
            f"of {self.risk:g} at most; that this is false has a probability of {self.delta:g} at most"
        )
        return {
            "promise": promise if told else None,
            "risk": self.risk,
            "delta": self.delta,
            "threshold": self.threshold,
            "reason": self.reason,
            "units": self.units,
            "units_kept": told.get("units", 0),
            "errors": told.get("errors"),
            "p": told.get("p"),
            "units_needed_without_an_error": units_needed(self.risk, self.delta),
            "tested": [dict(line) for line in self.tested],
        }


def units_needed(risk: float, delta: float, errors: int = 0) -> int:
    """Return the least number of units that certify a risk although so many of them are wrong."""
    number = errors + 1
    while bdtr(errors, number, risk) > delta:
        number += 1
    return number


def thresholds(fresh: np.ndarray, units: int, risk: float, delta: float) -> np.ndarray:
    """Return the thresholds to test, strictest first: twentieths of the fresh verdicts, as far as they can be told apart.

    The strictest is laid where the units to be expected can bear `SPARE` errors, or fewer where that would take more than half
    of them, and keeps `LEAST` twentieths: one that keeps next to nothing cannot be certified, and the sequence would end there.

    Args:
        fresh: float [verdicts], the confidences of verdicts that nobody rated.
        units: how many rated cases there are to test with.
    """
    needs = [units_needed(risk, delta, errors) for errors in range(SPARE + 1)]
    need = max([each for each in needs if 2 * each <= units], default=needs[0])
    first = min(STEPS, max(LEAST, math.ceil(STEPS * need / max(units, 1))))
    ordered = np.sort(fresh)[::-1]
    places = [math.ceil(len(ordered) * step / STEPS) - 1 for step in range(first, STEPS + 1)]
    return np.unique(ordered[places])[::-1]


def certify(
    confidence: np.ndarray, wrong: np.ndarray, sequence: Sequence[float], risk: float, delta: float
) -> Certificate:
    """Test thresholds in turn, and certify the last before the first that fails.

    Args:
        confidence: float [units], of the verdicts on rated cases.
        wrong: bool [units], whether the pair drawn from the case is wrong.
        sequence: thresholds, strictest first, fixed without a look at either.
        risk: the share of wrong pairs that is allowed, above 0 and below 1.
        delta: the probability, above 0 and below 1, with which the risk at the threshold may be higher than that.
    """
    units, least = len(confidence), units_needed(risk, delta)
    if units < least:
        reason = (
            f"{units} rated cases with a pair to test; even without an error it needs {least} for a risk of {risk:g}"
        )
        return Certificate(risk, delta, units, None, (), f"{reason} at delta {delta:g}")
    tested: list[dict[str, float]] = []
    accepted = None
    for threshold in map(float, sequence):
        kept = confidence >= threshold
        count, errors = int(kept.sum()), int(wrong[kept].sum())
        p = float(bdtr(errors, count, risk)) if count else 1.0
        tested.append({"threshold": threshold, "units": count, "errors": errors, "p": p})
        if p > delta:
            break
        accepted = threshold
    reason = None
    if accepted is None:
        first = tested[0]
        reason = (
            f"at the strictest threshold {first['errors']} of {first['units']} rated cases are wrong: that the risk is above "
            f"{risk:g} cannot be ruled out at delta {delta:g} (p = {first['p']:.2g})"
        )
    return Certificate(risk, delta, units, accepted, tuple(tested), reason)


def drawn_pairs(panel: Panel, pairs: np.ndarray, names: Sequence[str], seed: int = 0) -> np.ndarray:
    """Return one pair of every case that has some, by a digest of the seed and the case's name: int [units].

    Args:
        pairs: bool [pairs], those to draw from.
        names: of the cases; neither the order of a file nor other cases change what is drawn.
    """
    places = np.flatnonzero(pairs)  # in the order of their cases
    cases, starts, counts = np.unique(panel.case[panel.pairs[0][places]], return_index=True, return_counts=True)
    digests = [hashlib.sha256(f"{seed}:{names[case]}".encode("utf-8", "backslashreplace")) for case in cases.tolist()]
    numbers = [int.from_bytes(digest.digest()[:8], "big") for digest in digests]
    drawn = [start + number % count for start, count, number in zip(starts.tolist(), counts.tolist(), numbers)]
    return places[drawn] if drawn else np.empty(0, int)


def gaps(panel: Panel, scores: np.ndarray) -> np.ndarray:
    """Return each case's confidence by the gap of the scores of two responses, its mean over the pairs: float [cases].

    NaN where no pair has two scores. The mean, because the least gap of many responses is next to nothing in any case.
    """
    first, second = panel.pairs
    distance = np.abs(scores[first] - scores[second])
    known = ~np.isnan(distance)
    return divide(panel.per_case(np.where(known, distance, 0.0)), panel.per_case(known))


def supports(panel: Panel, own: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """Return each case's confidence by how many other judges order a pair as this one does: float [cases], 0 to 1.

    Args:
        own, others: relations [pairs]; one that ties where the other does not agrees by half. NaN where none has both.
    """
    total, count = np.zeros((2, panel.cases))
    for other in others:
        both = ~np.isnan(own) & ~np.isnan(other)
        total += panel.per_case(np.where(both, 1 - np.abs(own - other) / 2, 0.0))
        count += panel.per_case(both)
    return divide(total, count)


def certainty(probabilities: Sequence[Mapping[str, float]]) -> float | None:
    """Return how sure a judge is of the values it gave: 1 less their mean entropy, as a share of the highest possible.

    Args:
        probabilities: for each value of an answer, allowed value → probability, as a verdict records them.
    """
    shares = []
    for odds in probabilities:
        p = np.array(list(odds.values()), float)
        if len(p) > 1 and p.sum() > 0:
            p = p[p > 0] / p.sum()
            shares.append(-float((p * np.log(p)).sum()) / math.log(len(odds)))
    return 1 - sum(shares) / len(shares) if shares else None


def risk_coverage(panel: Panel, people: np.ndarray, judge: np.ndarray, confidence: np.ndarray) -> list[dict[str, Any]]:
    """Return the risk at tenths of coverage, the surest verdicts first, down to keeping all there are.

    Args:
        people, judge: relations [pairs].
        confidence: float [cases], NaN where there is no verdict: that is kept nowhere, and full coverage is not reached.

    Returns:
        {"threshold", "coverage", "cases", "risk"} each: coverage is the share kept of the cases that people put a pair of in
        an order, cases their number, risk a statistic over all such pairs of the kept ones, each case counting alike.
    """
    known = ~np.isnan(people) & (people != 0)
    pairs = panel.per_case(known)
    there = (pairs > 0) & ~np.isnan(confidence)
    share = divide(panel.per_case(known & (judge != people)), pairs)
    ordered = np.sort(confidence[there])[::-1]
    rated = int((pairs > 0).sum())
    points: list[dict[str, Any]] = []
    for step in range(1, POINTS + 1):
        number = min(len(ordered), math.ceil(rated * step / POINTS))
        if not number or (points and points[-1]["threshold"] == ordered[number - 1]):
            continue
        kept = there & (confidence >= ordered[number - 1])
        count = int(kept.sum())
        risk = ratio(np.where(kept, share, 0.0), kept.astype(float), count, "no verdict is kept")
        points.append(
            {"threshold": float(ordered[number - 1]), "coverage": count / rated, "cases": count, "risk": risk}
        )
    return points
