"""Abstention: which verdicts to keep so that the share of wrong pairs is bounded with high probability.

Verdicts whose confidence is at or above a threshold are kept; the others are sent to people. The risk at a threshold is the
probability that a random pair of a random kept case is wrong, among pairs that people ordered: the judge ties them or orders
them the other way.

Pairs of one case are correlated, so each rated case contributes one pair, drawn by a hash of the case's id: a unit. Given
the number of units that a threshold keeps, the number of errors is binomial with the risk at that threshold, if rated and fresh
cases are drawn from the same distribution. `certify` tests thresholds from the strictest to the laxest, at each the hypothesis
that the risk exceeds the allowed one, by the exact binomial p-value. It stops at the first that is not rejected and returns the
one before. The probability that the returned threshold has a higher risk is at most delta (fixed-sequence testing, as in "Learn
then Test", Angelopoulos, Bates, Candès, Jordan and Lei 2021). This requires that the sequence does not depend on the rated
cases: it is computed from the confidences of the fresh verdicts and the number of units.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy

from automedeval.stats.agreement import Panel
from automedeval.stats.bootstrap import divide, sums_at

STEPS = 20  # thresholds are at twentieths of the fresh verdicts
LEAST = 4  # twentieths that the strictest threshold keeps at least: with fewer units, chance would often end the sequence there
SPARE = 2  # errors that the strictest threshold should tolerate


def units_needed(risk: float, delta: float, errors: int = 0) -> int:
    """Return the least number of units that certify a risk with this number of errors among them."""
    return next(number for number in itertools.count(errors + 1) if scipy.special.bdtr(errors, number, risk) <= delta)


def thresholds(fresh: np.ndarray, units: int, risk: float, delta: float) -> np.ndarray:
    """Return the thresholds to test, strictest first: the distinct twentieths of the fresh verdicts.

    The strictest keeps so many that the expected units tolerate `SPARE` errors, or fewer errors if that takes more than half
    of the units, and at least `LEAST` twentieths. A threshold that keeps fewer could not be certified and would end the
    sequence.

    Args:
        fresh: float [verdicts], the confidences of the verdicts on unrated cases.
        units: the number of rated cases to test with.
    """
    needs = [units_needed(risk, delta, errors) for errors in range(SPARE + 1)]
    need = max([each for each in needs if 2 * each <= units], default=needs[0])
    first = min(STEPS, max(LEAST, math.ceil(STEPS * need / max(units, 1))))
    ordered = np.sort(fresh)[::-1]
    places = [math.ceil(len(ordered) * step / STEPS) - 1 for step in range(first, STEPS + 1)]
    return np.unique(ordered[places])[::-1]


def certify(
    confidence: np.ndarray, wrong: np.ndarray, sequence: Sequence[float], risk: float, delta: float
) -> dict[str, Any]:
    """Test thresholds in order, and certify the last one before the first that fails.

    Args:
        confidence: float [units], of the verdicts on rated cases with a pair that people ordered.
        wrong: bool [units], whether the pair drawn from the case is wrong.
        sequence: thresholds, strictest first, chosen without knowledge of `confidence` and `wrong`.
        risk: the allowed share of wrong pairs, above 0 and below 1.
        delta: the allowed probability, above 0 and below 1, that the risk at the certified threshold is higher.

    Returns:
        "risk", "delta" and "units"; "threshold": verdicts with this confidence or more are kept, None keeps none, and "reason"
        says why; "units_kept", "errors" and "p" of its test; and under "tested" all tests in order, of which the last may have
        failed.
    """
    units, least, reason = len(confidence), units_needed(risk, delta), None

    def test(threshold: float) -> dict[str, Any]:
        kept = confidence >= threshold
        count, errors = int(kept.sum()), int(wrong[kept].sum())
        p = float(scipy.special.bdtr(errors, count, risk)) if count else 1.0
        return {"threshold": threshold, "units": count, "errors": errors, "p": p}

    accepted, tested = in_sequence(test, sequence if units >= least else (), delta)
    if units < least:
        reason = f"{units} rated cases with a pair to test; even without an error {least} are needed"
        reason += f" for a risk of {risk:g} at delta {delta:g}"
    elif tested and accepted is None:
        first = tested[0]
        reason = (
            f"at the strictest threshold {first['errors']} of {first['units']} rated cases are wrong: that the risk is above "
            f"{risk:g} cannot be ruled out at delta {delta:g} (p = {first['p']:.2g})"
        )
    sure = accepted or {}
    found = {name: sure.get(name) for name in ("threshold", "errors", "p")} | {"units_kept": sure.get("units", 0)}
    return found | {"reason": reason, "risk": risk, "delta": delta, "units": units, "tested": tested}


def in_sequence(
    test: Callable[[float], dict[str, Any]], sequence: Iterable[float], delta: float
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Test thresholds in order until a "p" is above delta; return the last that passed, None if none did, and all."""
    accepted, tested = None, []
    for threshold in map(float, sequence):
        tested.append(test(threshold))
        if tested[-1]["p"] > delta:
            break
        accepted = tested[-1]
    return accepted, tested


def drawn_pairs(panel: Panel, pairs: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return int [units]: one pair of every case that has any, drawn by a hash of the case's name.

    The draw of a case depends neither on the order of a file nor on other cases.

    Args:
        pairs: bool [pairs], those to draw from.
        names: the names of the cases.
    """
    places = np.flatnonzero(pairs)  # in the order of their cases
    cases, starts, counts = np.unique(panel.case[panel.pairs[0][places]], return_index=True, return_counts=True)
    digests = [hashlib.sha256(f"0:{names[case]}".encode()) for case in cases.tolist()]
    numbers = [int.from_bytes(digest.digest()[:8], "big") for digest in digests]
    drawn = [start + number % count for start, count, number in zip(starts.tolist(), counts.tolist(), numbers)]
    return places[drawn] if drawn else np.empty(0, int)


def gaps(panel: Panel, scores: np.ndarray) -> np.ndarray:
    """Return float [cases], a confidence: the mean over pairs of the difference of the two responses' scores.

    NaN where no pair has two scores. It is the mean because the smallest difference among many responses is always near 0.
    """
    first, second = panel.pairs
    return divide(*sums_at(np.abs(scores[first] - scores[second]), panel.case[first], panel.cases))


def betting_p_value(shares: np.ndarray, mean: float) -> float:
    """Return a p-value of "the expected share is at least `mean`", by betting against it (Waudby-Smith and Ramdas 2024).

    Each share in turn multiplies a capital by 1 - bet (share - mean), whose expectation is at most 1 if that is true; by
    Ville's inequality the capital then reaches 1 / p with a probability of at most p. A bet depends on the shares before it.

    Args:
        shares: float [units] in [0, 1], independent, in an order that was chosen without knowledge of them.
    """
    capital = most = 1.0
    total, squares = mean / 2, mean / 4  # a prior of one unit
    for count, share in enumerate(shares.tolist(), 1):
        guess = total / count
        bet = (mean - guess) / (squares / count + (mean - guess) ** 2)
        capital *= 1 - min(max(bet, 0.0), 0.75 / (1 - mean)) * (share - mean)
        most = max(most, capital)
        total += share
        squares += (share - guess) ** 2
    return 1 / most


def least_alarm_threshold(
    scores: Sequence[np.ndarray], sequence: Sequence[float], risk: float, delta: float
) -> tuple[float | None, list[dict[str, Any]]]:
    """Return the lowest threshold whose share of false alarms is certified to be at most `risk`, and what was tested.

    Thresholds are tested from the highest, which alarms least, until one fails (fixed-sequence testing: no correction is
    needed), each by `betting_p_value` of the cases' shares.

    Args:
        scores: of each clean case, independent of the others, its scores; one of at least the threshold is a false alarm.
        sequence: thresholds, chosen without knowledge of `scores`.
        risk: the allowed share of false alarms.
        delta: the allowed probability that the share is higher at the returned threshold.
    """

    def test(threshold: float) -> dict[str, Any]:
        shares = np.array([(each >= threshold).mean() for each in scores])
        alarms = sum(int((each >= threshold).sum()) for each in scores)
        counts = {"units": len(scores), "alarms": alarms, "alarmed": int((shares > 0).sum())}
        return {"threshold": threshold, "p": betting_p_value(shares, risk)} | counts

    accepted, tested = in_sequence(test, sorted(sequence, reverse=True), delta)
    return None if accepted is None else accepted["threshold"], tested
