"""Quantities, beside what a reader says of the same sentences."""

import pint
import pytest

from automedeval.claims.quantities import UNITS, Quantity, quantities

GRAM = 1e-3  # kg
SI = {"mass": "kg", "volume": "m^3", "time": "s"}


def of(sentence: str, *measures: str) -> list[Quantity]:
    return [each for each in quantities(sentence) if each.measure in measures]


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if f"{unit}s" in UNITS and UNITS[unit][1] in SI and unit not in ("mcg", "night")]
)
def test_a_unit_beside_pint(unit: str) -> None:
    factor, measure = UNITS[unit]
    assert factor == pytest.approx(pint.application_registry.Quantity(1.0, unit).to(SI[measure]).magnitude)
    assert UNITS[f"{unit}s"] == UNITS[unit]


@pytest.mark.parametrize(
    ("sentence", "low", "high", "basis", "bound"),
    [
        ("Take 500 mg with water.", 0.5 * GRAM, 0.5 * GRAM, "", ""),
        ("Take 500 mg to 1 g.", 0.5 * GRAM, 1 * GRAM, "", ""),
        ("You may use 200-400 mg.", 0.2 * GRAM, 0.4 * GRAM, "", ""),
        ("Take 2.5mg–10mg.", 2.5e-3 * GRAM, 10e-3 * GRAM, "", ""),
        ("Take 0,5 mg.", 0.5e-3 * GRAM, 0.5e-3 * GRAM, "", ""),
        ("Take 1 1/2 g.", 1.5 * GRAM, 1.5 * GRAM, "", ""),
        ("Take two 500 mg tablets.", 1 * GRAM, 1 * GRAM, "", ""),
        ("Take 1 to 2 tablets of 500 mg.", 0.5 * GRAM, 1 * GRAM, "", ""),
        ("Never take more than 4 g in any 24 hours.", 4 * GRAM, 4 * GRAM, "day", "most"),
        ("Take not more than 3,000 mg a day.", 3 * GRAM, 3 * GRAM, "day", "most"),
        ("The maximum daily dose is 3 000 mg.", 3 * GRAM, 3 * GRAM, "day", "most"),
        ("Take no more than 14 g per week.", 2 * GRAM, 2 * GRAM, "day", "most"),
        ("Take at least 2 g a day.", 2 * GRAM, 2 * GRAM, "day", "least"),
        ("Take 100 mg in total.", 0.1 * GRAM, 0.1 * GRAM, "total", ""),
        ("Give 10 mg/kg.", 0.01 * GRAM, 0.01 * GRAM, "weight", ""),
        ("Give at most 40 mg per kg in a day.", 0.04 * GRAM, 0.04 * GRAM, "day weight", "most"),
        ("Take 100 mcg at night.", 1e-4 * GRAM, 1e-4 * GRAM, "", ""),
        ("Take 1 g three times daily.", 1 * GRAM, 1 * GRAM, "", ""),
        ("Take 400 mg every 6 hours.", 0.4 * GRAM, 0.4 * GRAM, "", ""),
    ],
)
def test_an_amount_in_kilograms(sentence: str, low: float, high: float, basis: str, bound: str) -> None:
    first = of(sentence, "mass")[0]
    assert (first.low, first.high) == pytest.approx((low, high))
    assert (first.basis, first.bound) == (basis, bound)


@pytest.mark.parametrize(
    ("sentence", "times", "bound"),
    [
        ("Take it once a day.", (1, 1), ""),
        ("Take it every morning.", (1, 1), ""),
        ("Take it every morning and at bedtime.", (2, 2), ""),
        ("Use it twice daily.", (2, 2), ""),
        ("Use it once or twice daily.", (1, 2), ""),
        ("Use it b.i.d.", (2, 2), ""),
        ("Take one tablet every 8 hours.", (3, 3), ""),
        ("Take it 8-hourly.", (3, 3), ""),
        ("Take it every 4 to 6 hours.", (4, 6), ""),
        ("Take it every 4 to 6 hours if needed.", (4, 6), "most"),
        ("Take it every other day.", (1 / 2, 1 / 2), ""),
        ("It is a once-a-week medicine.", (1 / 7, 1 / 7), ""),
        ("Have it monthly.", (1 / 30.4375, 4 / 30.4375), ""),
        ("Take it daily.", (1, 24), ""),
        ("Take it up to 4 times a day.", (4, 4), "most"),
        ("Wait with doses at least 6 hours apart.", (4, 4), "most"),
        ("Take it no more often than every 6 hours.", (4, 4), "most"),
    ],
)
def test_how_often_a_day(sentence: str, times: tuple[float, float], bound: str) -> None:
    (rate,) = of(sentence, "rate")
    assert (rate.low, rate.high) == pytest.approx(times)
    assert rate.bound == bound


def test_what_follows_of_a_dose_and_how_often_it_is_taken() -> None:
    dose, day = of("Take 1 to 2 tablets every 4 to 6 hours.", "tablet")
    assert (dose.low, dose.high, dose.basis) == (1, 2, "")
    assert (day.low, day.high, day.basis, day.computed) == (4, 12, "day", True)


def test_how_long_in_seconds_and_no_part_of_a_day() -> None:
    assert [each[:2] for each in of("Take it for 5 to 7 days.", "time")] == [(5 * 86400, 7 * 86400)]
    assert of("Walk for 20 minutes.", "time") == []


@pytest.mark.parametrize(
    ("sentence", "subject", "conditions"),
    [
        ("Take 400 mg of ibuprofen with food.", {"ibuprofen"}, set()),
        ("If you have kidney disease, take 2 g of paracetamol.", {"paracetamol"}, {"kidney", "disease"}),
        ("For a headache, take 2 g of paracetamol.", {"paracetamol"}, {"headache"}),
        ("Children under 12 years take 5 ml.", set(), {"child", "<12 years"}),
        ("Use the ibuprofen gel 3 times a day.", {"ibuprofen"}, {"gel"}),
        ("Start to take 500 mg of metformin.", {"metformin"}, {"start"}),
        ("Take 10 mg of vitamin B6.", {"vitaminb6"}, set()),
    ],
)
def test_the_words_of_the_subject_and_of_the_conditions(sentence: str, subject: set, conditions: set) -> None:
    first = quantities(sentence)[0]
    assert (set(first.subject), set(first.conditions)) == (subject, conditions)


def test_an_amount_belongs_to_the_drug_of_its_clause() -> None:
    first, second = of("Take 1 g of paracetamol and 400 mg of ibuprofen.", "mass")
    assert (first.subject, second.subject) == ({"paracetamol"}, {"ibuprofen"})


@pytest.mark.parametrize(
    "sentence",
    [
        "Drink water.",
        "Walk 150 minutes a week.",
        "Take 1.000 mg.",  # one, or a thousand
        "Do not take 800 mg.",
        "Take more than 4 g a day.",
        "10 g of paracetamol can be fatal.",
        "Give a syrup of 24 mg/ml.",
        "Take the 500 mg tablets.",
        "She took 20 mg.",
        "The infection clears in 5 to 7 days.",
        "Do not take 5 mg and take 5 mg " * 400,
    ],
)
def test_a_sentence_that_says_nothing_to_compare(sentence: str) -> None:
    assert quantities(sentence) == ()
