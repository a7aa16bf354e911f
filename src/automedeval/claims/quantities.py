"""Amounts, rates and frequencies of a sentence, in units that can be compared.

A dose per weight ("10 mg/kg"), an amount per time ("4 g in 24 hours") and how often something is done ("every 6 hours") are
three things: 4 g a day is no single dose, and 40 mg per kg is no frequency.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_NUMBERS = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "fifty": 50, "hundred": 100},
}
_UNITS = {
    "milligram": "mg milligram milligrams",
    "microgram": "mcg µg μg ug microgram micrograms",
    "gram": "g gram grams",
    "kilogram": "kg kilogram kilograms kilo kilos",
    "milliliter": "ml milliliter milliliters millilitre millilitres",
    "liter": "l liter liters litre litres",
    "minute": "minute minutes min mins",
    "hour": "hour hours hr hrs h",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "year years",
    "tablet": "tablet tablets pill pills capsule capsules",
    "puff": "puff puffs",
    "drop": "drop drops",
    "unit": "unit units iu",
}
_UNIT = {word: unit for unit, words in _UNITS.items() for word in words.split()}
COUNTED = ("tablet", "puff", "drop", "unit")  # not compared with each other
# What a unit is in kilograms, cubic metres or seconds, and its dimension; a year has 365.25 days.
_FACTORS = {
    **{"microgram": (1e-9, "mass"), "milligram": (1e-6, "mass"), "gram": (1e-3, "mass"), "kilogram": (1.0, "mass")},
    **{"milliliter": (1e-6, "volume"), "liter": (1e-3, "volume")},
    **{"minute": (60.0, "time"), "hour": (3600.0, "time"), "day": (86400.0, "time"), "week": (604800.0, "time")},
    **{"month": (2629800.0, "time"), "year": (31557600.0, "time")},
    **{unit: (1.0, unit) for unit in COUNTED},
}
_ANY_UNIT = "|".join(sorted(_UNIT, key=len, reverse=True))
_TIME = r"(?P<time>minutes?|hours?|days?|weeks?|months?|years?)"
_NUMBER = rf"(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?|{'|'.join(_NUMBERS)})"
_TO = r"\s*(?:to|-|–|or)\s*"
_ADVERBS = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "yearly": "year"}
_ADVERB = rf"(?P<adverb>{'|'.join(_ADVERBS)})\b"
_TIMES = {"once": 1, "twice": 2}
_AMOUNT = re.compile(
    rf"(?<![\w.,])(?P<low>{_NUMBER})(?:(?:{_TO}|\s+and\s+)(?P<high>{_NUMBER}))?[\s-]*(?P<unit>{_ANY_UNIT})\b"
    r"(?P<weight>\s*(?:/|per|for each|for every)\s*(?:kg|kilograms?|kilos?)(?:\s+of\s+(?:body\s+)?weight)?)?",
    re.I,
)
# What makes an amount one per time: it follows within a few words ("5 g of salt daily").
_PER = re.compile(
    r"^(?:\s+\w+){0,4}?\s*"
    rf"(?:(?:/|\b(?:a|an|per|each|every|in a|in any|in one|within|in)\s+)(?P<count>\d+|one|two)?\s*{_TIME}\b|\b{_ADVERB})",
    re.I,
)
_SINGLE = re.compile(rf"\b(?:times?|once|twice)\b|\b(?:every|each)\s+(?:{_NUMBER})\b", re.I)
_OFTEN = re.compile(
    rf"\b(?P<times>once|twice|{_NUMBER}\s+times?)?[\s-]*"
    rf"(?:(?:a|per|each|every|in a)[\s-]+(?P<count>{_NUMBER})?(?:{_TO}(?P<most>{_NUMBER}))?[\s-]*{_TIME}\b"
    rf"|(?P<part>every|each)\s+(?:morning|evening|night|noon)\b|{_ADVERB})",
    re.I,
)
_EVERY = re.compile(r"\b(?:every|each)\b", re.I)
_APART = re.compile(
    rf"\b(?P<count>{_NUMBER})(?:{_TO}{_NUMBER})?[\s-]*{_TIME}\s+(?:apart|in between|between|must pass)\b", re.I
)


class Amount(NamedTuple):
    """An amount from `low` to `high` in SI base units, those per time per day.

    Args:
        dimension: "mass", "volume" or "time", or one of `COUNTED`.
        per: "", "weight" (per kg of body weight) or "time" (per day), or both.
        text: its words.
    """

    low: float
    high: float
    dimension: str
    per: str
    text: str


def number(text: str) -> float:
    """Return the number that digits or a word say."""
    word = text.lower()
    return float(_NUMBERS[word]) if word in _NUMBERS else float(word.replace(",", ""))


def days(unit: str, count: float = 1.0) -> float:
    """Return how many days so many of a unit of time are."""
    return count * _FACTORS[_UNIT[unit.lower()]][0] / _FACTORS["day"][0]


@lru_cache(4096)  # a sentence is read beside many others
def amounts(sentence: str) -> tuple[Amount, ...]:
    """Return the amounts of a sentence, those per time in amounts per day."""
    return tuple(amount for amount, _ in _amounts(sentence))


def _amounts(sentence: str) -> Iterator[tuple[Amount, tuple[int, int]]]:
    for match in _AMOUNT.finditer(sentence):
        factor, dimension = _FACTORS[_UNIT[match["unit"].lower()]]
        low, high = number(match["low"]), number(match["high"] or match["low"])
        per, end = "weight" if match["weight"] else "", match.end()
        rest = _PER.match(sentence[end:])
        divisor = 1.0
        # "500 mg every 6 hours" and "1 g three times daily" are single doses, and say how often.
        if rest and not _SINGLE.search(rest[0]):
            time = rest["time"] or _ADVERBS[rest["adverb"].lower()]
            divisor = days(time, number(rest["count"]) if rest["count"] else 1.0)
            per, end = f"{per} time".strip(), end + rest.end()
        low, high = sorted((low * factor / divisor, high * factor / divisor))
        yield Amount(low, high, dimension, per, sentence[match.start() : end]), (match.start(), end)


@lru_cache(4096)
def frequency(sentence: str) -> tuple[float, float] | None:
    """Return how often a day something is done, from least to most; None if the sentence does not say, or says several.

    What belongs to an amount per time does not count: "150 minutes a week" does not say how often.
    """
    # "a 50 mg tablet every day" says how often; "150 minutes every week" and "5 g a day" do not.
    taken = [
        place
        for amount, place in _amounts(sentence)
        if "time" in amount.per and (amount.dimension == "time" or not _EVERY.search(amount.text))
    ]
    rates: list[tuple[float, float]] = []
    for place in _OFTEN.finditer(sentence):
        if any(place.start() < end and start < place.end() for start, end in taken):
            continue
        times = 1.0
        if place["times"]:
            words = " ".join(place["times"].lower().split())
            times = float(_TIMES.get(words) or number(words.split()[0]))
        if place["part"]:
            rates.append((times, times))
            continue
        if (
            place["count"] is None
            and place["times"] is None
            and place["time"]
            and not re.search(r"every|each", place[0], re.I)
        ):
            continue  # "a day", "per week" by itself
        unit = place["time"] or _ADVERBS[place["adverb"].lower()]
        shortest = days(unit, number(place["count"]) if place["count"] else 1.0)
        longest = days(unit, number(place["most"])) if place["most"] else shortest
        rates.append((times / longest, times / shortest))
    for place in _APART.finditer(sentence):
        rates.append((0.0, 1 / days(place["time"], number(place["count"]))))
    return rates[0] if len(set(rates)) == 1 else None
