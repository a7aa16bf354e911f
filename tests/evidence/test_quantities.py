"""Quantities, beside what a reader says of the same sentences."""

import pint
import pytest
from tables import rows_of

from automedeval.evidence.quantities import UNITS, Quantity, quantities

TABLE = rows_of(__file__)
GRAM = 1e-3  # kg
SI = {"mass": "kg", "volume": "m^3", "time": "s"}


def of(sentence: str, *measures: str) -> list[Quantity]:
    return [each for each in quantities(sentence) if each.measure in measures]


@pytest.mark.parametrize(
    "unit",
    [
        unit
        for unit in UNITS
        if f"{unit}s" in UNITS and UNITS[unit][1] in SI and unit not in ("mcg", "night")
    ],
)
def test_a_unit_beside_pint(unit: str) -> None:
    factor, measure = UNITS[unit]
    assert factor == pytest.approx(
        pint.application_registry.Quantity(1.0, unit).to(SI[measure]).magnitude
    )
    assert UNITS[f"{unit}s"] == UNITS[unit]


@pytest.mark.parametrize(
    ("sentence", "low", "high", "basis", "bound"), TABLE["test_an_amount_in_kilograms"]
)
def test_an_amount_in_kilograms(
    sentence: str, low: float, high: float, basis: str, bound: str
) -> None:
    first = of(sentence, "mass")[0]
    assert (first.low, first.high) == pytest.approx((low * GRAM, high * GRAM))
    assert (first.basis, first.bound) == (basis, bound)


@pytest.mark.parametrize(("sentence", "times", "bound"), TABLE["test_how_often_a_day"])
def test_how_often_a_day(sentence: str, times: list[float], bound: str) -> None:
    (rate,) = of(sentence, "rate")
    assert (rate.low, rate.high) == pytest.approx(times)
    assert rate.bound == bound


def test_what_follows_of_a_dose_and_how_often_and_how_long_in_seconds() -> None:
    dose, day = of("Take 1 to 2 tablets every 4 to 6 hours.", "tablet")
    assert (dose.low, dose.high, dose.basis) == (1, 2, "")
    assert (day.low, day.high, day.basis, day.computed) == (4, 12, "day", True)

    assert [each[:2] for each in of("Take it for 5 to 7 days.", "time")] == [(5 * 86400, 7 * 86400)]
    assert of("Walk for 20 minutes.", "time") == []


@pytest.mark.parametrize(
    ("sentence", "subject", "conditions"),
    TABLE["test_the_words_of_the_subject_and_of_the_conditions"],
)
def test_the_words_of_the_subject_and_of_the_conditions(
    sentence: str, subject: list, conditions: list
) -> None:
    first = quantities(sentence)[0]
    assert (sorted(first.subject), sorted(first.conditions)) == (subject, conditions)


@pytest.mark.parametrize(
    "sentence",
    [
        *TABLE["test_a_sentence_that_says_nothing_to_compare"],
        "Do not take 5 mg and take 5 mg " * 400,
    ],
)
def test_a_sentence_that_says_nothing_to_compare(sentence: str) -> None:
    assert quantities(sentence) == ()
