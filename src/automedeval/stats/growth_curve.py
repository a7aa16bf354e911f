"""Forecast the accuracy after further rounds of introspection with the growth curve of the paper's Appendix F.

Round 0 is the judge before its first round. The curve is f(t) = a / (1 + e^(-b·t - c))³: the paper takes the accuracy of a
triple as the product of the probabilities that each of its three responses gets the right score (Eq. 3 to 6). It is fitted as
f(t)^(-1/3) = u + v·q^t, where u = a^(-1/3), q = e^(-b), v = u·e^(-c): a straight line in q^t.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy
from numpy import ndarray

from automedeval.stats.bootstrap import Tree

LEAST_ROUNDS = 3  # as many as the curve has constants
SMALL_REST = 0.005  # half a percentage point
AHEAD = 4  # rounds to forecast after the last measured one
TOO_FEW = "too few rounds for a forecast"
EXACT = "three rounds fit exactly: there are no residuals to estimate an interval from"
NO_RISE = "the measured rounds do not rise"
NO_REST = (
    "the measured rounds rise in a single step: the rate of further rounds cannot be estimated"
)
OVER_ONE = "the measured rounds slow down too little: their limit would be above 1"
# Bounds of u, v and q in the fit. u = 0.8 is a limit of 1.95, so that limits above 1 are found, and then refused.
LOWEST = (0.8, 0.0, 0.0)
HIGHEST = (np.inf, np.inf, 1.0)
RATES = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)  # values of q that the fit begins at
NEARLY = 1e-6


@dataclass(frozen=True)
class Curve:
    """Hold the curve f(t) = a / (1 + e^(-b·t - c))³ (paper Appendix F, Eq. 6); a, from 0 to 1, is its limit."""

    a: float
    b: float
    c: float

    def at(self, t: float) -> float:
        """Return the accuracy at round t, from 0 to 1."""
        return self.a / (1 + math.exp(-self.b * t - self.c)) ** 3

    def round_of_small_rest(self) -> int:
        """Return the first round, from 0, at which less than `SMALL_REST` remains."""
        if self.a <= SMALL_REST:
            return 0
        # a - f(t) < rest where e^(-b·t - c) < (1 - rest / a)^(-1/3) - 1
        t = (-math.log((1 - SMALL_REST / self.a) ** (-1 / 3) - 1) - self.c) / self.b
        return max(0, math.floor(t) + 1)


def forecast(values: Sequence[float | None]) -> Tree:
    """Fit the curve to the accuracies of rounds 0, 1, 2, …, from 0 to 1, by least squares; three rounds are met exactly.

    Returns:
        "a", "b" and "c" of the curve, "round_of_small_rest", and "next": the value of each of `AHEAD` rounds with a prediction
        interval of 95 %. More than three rounds have the interval by the delta method, with Student's t at (rounds - 3) degrees
        of freedom: the variance of the fitted curve plus that of a residual, "residual_error" squared. Residuals are taken as
        independent with equal variance, although all rounds are measured on the same cases. If the rounds do not rise, do not
        slow down, or slow down towards a limit above 1, there is only a "reason".
    """
    # Paper: does not say how its constants were found. They miss Table 5 by up to half a point. Its three values have an
    # exact solution, with a limit of 50.76 %; the paper's limit is 52.74 %.
    rounds = len(values)
    if rounds < LEAST_ROUNDS:
        return {"reason": TOO_FEW}
    if None in values:
        return {"reason": f"round {values.index(None)} has no accuracy"}
    measured = np.array(values, float)
    if measured[-1] - measured[0] < NEARLY:
        return {"reason": NO_RISE}
    times = np.arange(rounds, dtype=float)

    # Begin from curves through the first and the last round.
    first, last = np.maximum(measured[[0, -1]], NEARLY) ** (-1 / 3)
    begin = (max(last, LOWEST[0] + NEARLY), max(first - last, NEARLY))
    # The sum of squares can have several minima: begin at several rates.
    fits = [
        scipy.optimize.least_squares(
            lambda line: _values(line, times) - measured, (*begin, rate),
            "3-point", (LOWEST, HIGHEST), x_scale=(1.0, 0.1, 0.5), ftol=1e-15, xtol=1e-15, gtol=1e-15,
        )
        for rate in RATES
    ]  # fmt: skip
    best = min(fits, key=lambda fitted: fitted.cost)
    if reason := _flaw(*best.x):
        return {"reason": reason}
    u, v, q = best.x
    curve = Curve(min(1.0, float(u**-3)), float(-math.log(q)), float(math.log(u / v)))
    freedom = rounds - LEAST_ROUNDS
    error = math.sqrt(2 * best.cost / freedom) if freedom else None
    ahead = []
    inverse = np.linalg.pinv(best.jac)
    for t in range(rounds, rounds + AHEAD):
        value = curve.at(t)
        line: Tree = {"round": t, "value": value, "low": None, "high": None}
        if error is not None:
            spread = scipy.optimize.approx_fprime(best.x, _values, 1e-7, t) @ inverse
            student = float(scipy.special.stdtrit(freedom, 0.975))
            reach = student * error * math.sqrt(spread @ spread + 1)
            line |= {"low": max(0.0, value - reach), "high": min(1.0, value + reach)}
        ahead.append(line)
    return asdict(curve) | {
        "small_rest": SMALL_REST,
        "round_of_small_rest": curve.round_of_small_rest(),
        "residual_error": error,
        "no_interval": None if freedom else EXACT,
        "next": ahead,
    }


def _flaw(u: float, v: float, q: float) -> str | None:
    """Return why a fitted curve gives no forecast; None if it does."""
    if u**-3 - (u + v) ** -3 < NEARLY:
        return NO_RISE
    if q < NEARLY:
        return NO_REST
    return OVER_ONE if q > 1 - NEARLY or u**-3 > 1 + NEARLY else None


def _values(line: ndarray, times: Any) -> Any:
    u, v, q = line
    return (u + v * q**times) ** -3
