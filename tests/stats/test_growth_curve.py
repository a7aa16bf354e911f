"""The curve of Appendix F: the paper's own figures, exact and least-squares fits, their intervals, and refusals."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tables import each_row, rows_of

from automedeval.stats import growth_curve
from automedeval.stats.growth_curve import Curve, forecast

TABLE_5 = [0.4461, 0.4713, 0.4865]  # triple accuracy after rounds 0, 1 and 2
# Appendix F. At t = 6 the curve is 0.5213; the paper prints 52.21 %.
PAPER = Curve(a=0.5274, b=0.453, c=2.83)


def curve_of(record):
    return Curve(*(record[name] for name in "abc"))


def test_the_papers_constants_leave_less_than_half_a_point_from_round_7():
    values = [PAPER.at(t) for t in (0, 1, 2, 6, 7)]
    assert values == pytest.approx([0.4441, 0.4722, 0.4914, 0.5213, 0.5235], abs=5e-5)
    assert PAPER.round_of_small_rest() == 7
    # the printed constants are not a fit through the table
    gaps = np.subtract(values[:3], TABLE_5)
    assert np.abs(gaps).max() > 0.004


def test_three_rounds_are_met_exactly_and_have_no_interval():
    record = forecast(TABLE_5)
    curve = curve_of(record)
    assert [curve.at(t) for t in range(3)] == pytest.approx(TABLE_5, abs=1e-9)
    assert curve.a == pytest.approx(0.5076, abs=5e-5)
    assert "three rounds fit exactly" in record["no_interval"]
    assert record["round_of_small_rest"] == 5
    assert [each["round"] for each in record["next"]] == [3, 4, 5, 6]
    third = record["next"][0]
    assert third == {"round": 3, "value": curve.at(3), "low": None, "high": None}


CURVES = [Curve(*constants) for constants in rows_of(__file__)["curves"]]


@pytest.mark.parametrize("rounds", [3, 4, 6, 10])
@pytest.mark.parametrize("curve", CURVES)
def test_noiseless_rounds_give_their_constants_back(curve, rounds):
    values = [curve.at(t) for t in range(rounds)]
    record = forecast(values)
    for name in "abc":
        assert record[name] == pytest.approx(getattr(curve, name), abs=1e-6)
    if rounds > 3:
        assert record["residual_error"] == pytest.approx(0, abs=1e-9)


def test_least_squares_are_no_worse_than_any_curve_near_by():
    values = [0.40, 0.50, 0.60, 0.70, 0.75, 0.77]
    record = forecast(values)
    best = curve_of(record)

    def squares(curve):
        gaps = [curve.at(t) - value for t, value in enumerate(values)]
        return np.dot(gaps, gaps)

    least = squares(best)
    assert record["residual_error"] == pytest.approx(math.sqrt(least / 3))
    for name, step in product("abc", (-1e-3, 1e-3)):
        constant = getattr(best, name) + step
        near = replace(best, **{name: constant})
        assert squares(near) > least


def test_the_interval_is_that_of_linear_regression_by_another_route():
    values = [0.40, 0.45, 0.47, 0.485, 0.488]
    record = forecast(values)
    constants = np.array([record[name] for name in "abc"])

    def at(change):
        """Return the curve in rounds 0 to 6 by constants that are changed a little."""
        curve = Curve(*(constants + change))
        return np.array([curve.at(t) for t in range(7)])

    slopes = [(at(step) - at(-step)) / 2e-6 for step in 1e-6 * np.eye(3)]
    *measured, _, sixth = np.transpose(slopes)
    information = np.transpose(measured) @ measured
    spread = 1 + sixth @ np.linalg.inv(information) @ sixth
    shown = record["next"][1]
    # Student's t, 2 degrees of freedom.
    expected = 4.302653 * record["residual_error"] * math.sqrt(spread)
    width = shown["high"] - shown["low"]
    assert width / 2 == pytest.approx(expected, rel=1e-4)


@each_row("values, reason")
def test_what_the_curve_says_nothing_about_gets_a_reason(values, reason):
    record = forecast(values)
    assert reason in record["reason"]
    assert record.keys() == {"reason"}


@pytest.mark.parametrize("curve", CURVES)
def test_the_round_of_a_small_rest_is_the_first(curve):
    t = curve.round_of_small_rest()
    assert curve.a - curve.at(t) < growth_curve.SMALL_REST
    assert t == 0 or curve.a - curve.at(t - 1) >= growth_curve.SMALL_REST
    assert Curve(0.004, 0.1, 0.0).round_of_small_rest() == 0
