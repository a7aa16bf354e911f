"""The lowest threshold of scores whose share of false alarms is certified to be small, on cases without anything to find."""

from collections.abc import Sequence
from typing import Any

import numpy as np


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

    accepted, tested = None, list[dict[str, Any]]()
    for threshold in sorted(map(float, sequence), reverse=True):
        shares = np.array([(each >= threshold).mean() for each in scores])
        alarms = sum(int((each >= threshold).sum()) for each in scores)
        counts = {"units": len(scores), "alarms": alarms, "alarmed": int((shares > 0).sum())}
        tested.append({"threshold": threshold, "p": betting_p_value(shares, risk)} | counts)
        if tested[-1]["p"] > delta:
            break
        accepted = threshold
    return accepted, tested
