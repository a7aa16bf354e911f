"""Amounts and frequencies, beside what a reader says of the same sentences."""

import pint
import pytest

from automedeval.claims.quantities import _FACTORS, COUNTED, amounts, frequency

GRAM = 1e-3  # kg


@pytest.mark.parametrize("unit", sorted(_FACTORS.keys() - set(COUNTED)))
def test_a_unit_beside_pint(unit: str) -> None:
    factor, dimension = _FACTORS[unit]
    quantity = pint.application_registry.Quantity(1.0, unit).to_base_units()
    assert quantity.to(
        "kg" if dimension == "mass" else "m^3" if dimension == "volume" else "s"
    ).magnitude == pytest.approx(factor)


@pytest.mark.parametrize(
    ("sentence", "low", "high", "per"),
    [
        ("Take 500 mg with water.", 0.5 * GRAM, 0.5 * GRAM, ""),
        ("Take 500 mg to 1 g.", 0.5 * GRAM, 0.5 * GRAM, ""),
        ("You may use 200-400 mg.", 0.2 * GRAM, 0.4 * GRAM, ""),
        ("Never above 4 g in any 24 hours.", 4 * GRAM, 4 * GRAM, "time"),
        ("Not more than 3,000 mg a day.", 3 * GRAM, 3 * GRAM, "time"),
        ("No more than 14 g per week.", 2 * GRAM, 2 * GRAM, "time"),
        ("Give 10 mg/kg.", 0.01 * GRAM, 0.01 * GRAM, "weight"),
        ("At most 40 mg per kg in a day.", 0.04 * GRAM, 0.04 * GRAM, "weight time"),
        ("Take 100 mcg at night.", 1e-4 * GRAM, 1e-4 * GRAM, ""),
        ("Take 1 g three times daily.", 1 * GRAM, 1 * GRAM, ""),
        ("Take 400 mg every 6 hours.", 0.4 * GRAM, 0.4 * GRAM, ""),
    ],
)
def test_an_amount_in_kilograms(sentence: str, low: float, high: float, per: str) -> None:
    first = amounts(sentence)[0]
    assert (first.low, first.high) == pytest.approx((low, high))
    assert (first.dimension, first.per) == ("mass", per)


@pytest.mark.parametrize(
    ("sentence", "times"),
    [
        ("Take it once a day.", (1, 1)),
        ("Take it every morning.", (1, 1)),
        ("Use it twice daily.", (2, 2)),
        ("One tablet every 8 hours.", (3, 3)),
        ("Every 4 to 6 hours.", (4, 6)),
        ("It is a once-a-week medicine.", (1 / 7, 1 / 7)),
        ("Take it weekly.", (1 / 7, 1 / 7)),
        ("Take one 50 mg tablet every day.", (1, 1)),
        ("Wait with doses at least 6 hours apart.", (0, 4)),
    ],
)
def test_how_often_a_day(sentence: str, times: tuple[float, float]) -> None:
    assert frequency(sentence) == pytest.approx(times)


@pytest.mark.parametrize(
    "sentence",
    [
        "Drink water.",
        "Walk 150 minutes a week.",
        "Walk 150 minutes every week.",
        "Not more than 4 g a day.",
        "Daily at first, then weekly.",
    ],
)
def test_a_sentence_that_does_not_say_how_often(sentence: str) -> None:
    assert frequency(sentence) is None
