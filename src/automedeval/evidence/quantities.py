"""What a sentence says of how much, how often and how long: each quantity with its limit, its subject and its conditions.

A sentence is first written in one way ("two 500 mg tablets" as "1000 mg", "8-hourly" as "every 8 hours"). What is found in it
is then replaced by a mark, so that the words that are left tell the subject and the conditions. Nothing is read where a number
has two readings ("1.000 mg"), where a sentence forbids, reports or warns, and where "more than" sets no limit.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

from automedeval.records.yaml_file import YamlFile

ENGLISH = resources.files("automedeval.evidence") / "templates" / "quantities.yaml"
_SAID: dict[str, Any] = YamlFile(str(ENGLISH)).read(ENGLISH)
UNITS = {
    f"{unit}{end}": (each[0], each[1])
    for unit, each in _SAID["units"].items()
    for end in ("", "s", "es")
}
DAY, LONGEST = 86400.0, 1000  # seconds; characters of a sentence that is read
_ADVERBS: dict[str, tuple[str, float]] = _SAID["adverbs"]
_NUMBERS: dict[str, int] = _SAID["numbers"] | _SAID["tens"]


def _any(known: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(known, key=len, reverse=True))})"


_STANDS_FOR: dict[str, str] = _SAID["stands_for"] | {
    measure: _any(unit for unit, (_, of) in UNITS.items() if of == measure)
    for measure in ("time", "mass", "tablet")
}
_STANDS_FOR |= {
    "unit": _any(UNITS),
    "numbers": _any(_NUMBERS),
    "tens": _any(_SAID["tens"]),
    "adverbs": _any(_ADVERBS),
}
_STANDS_FOR["kin"] = _SAID["kin"]


def _pattern(text: str) -> re.Pattern:
    while (filled := re.sub(r"(?<!\?P)<(\w+)>", lambda name: _STANDS_FOR[name[1]], text)) != text:
        text = filled
    return re.compile(text)


def _product(match: re.Match) -> str:
    """Return "1000 mg" for "2 tablets of 500 mg"."""
    counts = (
        float(count) * float(match["strength"]) for count in (match["low"], match["high"]) if count
    )
    amounts = (f"{count:.12g} {match['unit']}" for count in counts)
    return " to ".join(amounts) + (
        f" of {name}" if (name := match.groupdict().get("name")) else " "
    )


_KINDS = (
    "apart",
    "times",
    "every",
    "lasting",
    "amount",
    "open",
)  # of quantities, in the order in which they are read
_IS = {
    name: _pattern(_SAID[name])
    for name in (
        *_KINDS,
        "per",
        "person",
        "weight",
        "heavy",
        "denies",
        "denied_limit",
        "route",
        "behind",
    )
}
_REWRITTEN: list[tuple[re.Pattern, Any]] = [
    *((_pattern(each), new) for each, new in _SAID["spelling"]),
    (
        _pattern(r"\b<tens> <numbers>\b"),
        lambda match: str(sum(_NUMBERS[each] for each in match[0].split())),
    ),
    (_pattern(r"\b<numbers>\b"), lambda match: str(_NUMBERS[match[0]])),
    *((_pattern(each), new) for each, new in _SAID["wording"]),
    *((_pattern(each), _product) for each in _SAID["products"]),
    *((_pattern(each), new) for each, new in _SAID["left_out"]),
]
_BEFORE = {
    name: _pattern(rf"(?:{_SAID[name]})(?: a total of| of)?\s*$")
    for name in ("most", "least", "unread")
}
_AFTER = {name: _pattern(rf"\s*{_SAID[f'after_{name}']}") for name in ("most", "least")}
_WORDS = "tells does reports conditions people kin forms stages needed daily total empty"
_HAS = {name: re.compile(rf"\b(?:{_SAID[name]})\b") for name in _WORDS.split()}
_COMMON = re.compile(f"(?:{_SAID['common']}|{_SAID['tells']})")
_PHRASE = re.compile(rf"\b(?:{_SAID['phrases']})\b[^@]*?(?=\b(?:{_SAID['phrases']})\b|@|$)")
_CLAUSE = re.compile(r"[,;:()]|\b(?:but|and)\b")
_LEFT, CONCENTRATION = _pattern(_SAID["left"]), _pattern(_SAID["concentration"])
_WORD, _PLURAL = re.compile(r"[a-z]+\d*|\d+(?:\.\d+)?"), re.compile(r"(?<=\w{3})(?<![sui])s$")


class Quantity(NamedTuple):
    """A quantity from `low` to `high`, in SI base units; amounts per time are per day, and a rate is times a day."""

    low: float
    high: float
    measure: str  # "rate", "time" (how long), or of an amount "mass", "volume", or what is counted
    # Of an amount: "" for a single dose, "day" or "total"; "weight" after it: per kg of body weight. Of a rate: "apart" for a
    # limit of the time between doses.
    basis: str = ""
    bound: str = ""  # "" for a value or range, "most" or "least" for a limit
    period: float = (
        1.0  # in days, of a rate or an amount per time: limits of other periods are not compared
    )
    hourly: bool = False  # by hours, which may be kept only while awake
    computed: bool = False  # a day's amount from a dose and a rate; a rate "daily", which may be several times a day
    subject: frozenset[str] = (
        frozenset()
    )  # the words that name what it is a quantity of, which may stand elsewhere
    conditions: frozenset[str] = frozenset()  # the words that name what it holds for


@lru_cache(4096)  # a sentence is read beside many others
def quantities(sentence: str, kg: float | None = None) -> tuple[Quantity, ...]:
    """Return the quantities of a sentence that tells how much, how often or how long, for a patient of so many kg."""
    return tuple(_read(normal(sentence), kg)) if len(sentence) <= LONGEST else ()


def weight(question: str) -> float | None:
    """Return the patient's weight in kg; None if a question names none, another weight, or several people."""
    text = normal(question)
    found, heavy = _IS["weight"].search(text), _IS["heavy"].findall(text)
    people = (
        {each.split()[0] for each in (*_HAS["kin"].findall(text), found["who"])} if found else set()
    )
    return (
        float(found["number"])
        if found and len(heavy) == 1 and len(people - {"he", "she", "who"}) <= 1
        else None
    )


def _read(text: str, kg: float | None) -> list[Quantity]:
    if _HAS["reports"].search(text) or not (
        _HAS["tells"].search(text) or _HAS["does"].search(text)
    ):
        return []
    text, needed = _HAS["needed"].subn(" ", text)
    held: set[str] = set()  # the conditions of the whole sentence
    for who in _IS["person"].finditer(text):
        number, is_limit = who["number"] or who["old"], who["over"] or who["under"]
        if (
            kg
            and who["kg"]
            and ((float(number) < kg) == bool(who["over"]) if is_limit else float(number) == kg)
        ):
            continue  # the patient is so heavy
        held.add(who[0] if is_limit else f"{number} kg" if who["kg"] else number)
    held |= {
        word
        for kind in ("route", "behind")
        for each in _IS[kind].findall(text)
        for word in words(each) or {each}
    }
    text = _IS["person"].sub(" @ ", text)
    subject, found, is_sure = frozenset[str](), list[Quantity](), True
    for clause in _CLAUSE.split(text):
        left, own = _read_clause(clause, kg)
        named, under, whole = _names(left, bool(own))
        if (
            named and not found
        ):  # what an earlier clause names, "Shingles:", is what the quantities hold for
            held |= subject - named
        subject = named or subject
        held |= whole
        is_sure = is_sure and not _LEFT.search(left)
        found += [each._replace(subject=subject, conditions=under) for each in own]
    # Of two of a kind it is not sure which is whose: they are stages, alternatives, or those of two medicines.
    values = {each[:4] for each in found if not each.computed and not each.bound}
    limits = {each[:4] for each in found if not each.computed and each.bound} - values
    kinds = [each[2:] for each in limits] + [
        (measure, basis) for *_, measure, of in values for basis in {of, ""}
    ]
    single = {
        each.measure
        for each in found
        if not each.basis and (each.measure, each.high) != ("tablet", 1)
    }
    # "500 mg: take 2 tablets" may be what one of them holds.
    if len(set(kinds)) < len(kinds) or {"tablet", "mass"} <= single or not is_sure:
        held.add(
            text
        )  # what it holds for, no other sentence says: it may allow a quantity, and contradicts none
    rates = [each for each in found if each.measure == "rate" and not each.computed]
    found = [
        each for each in found if each in rates or each.measure != "rate" or not rates
    ]  # "twice a day, every day"
    if len({each[:2] for each in rates}) == 1 and rates[0].bound != "least":
        stated = {each.measure for each in found if each.basis.startswith("day")}
        doses = [
            q
            for q in found
            if q.measure not in stated | {"rate", "time"} and q.basis in ("", "weight")
        ]
        for dose, rate in ((each, rates[0]) for each in doses if each.bound != "least"):
            amount = dose._replace(
                low=dose.low * rate.low, high=dose.high * rate.high, bound=dose.bound or rate.bound
            )
            found.append(
                amount._replace(
                    basis=f"day {dose.basis}".strip(), hourly=rate.hourly, computed=True
                )
            )
    if needed:  # at most so often
        found = [
            q._replace(bound=q.bound or "most" * (q.measure == "rate" or q.computed)) for q in found
        ]
    return [each._replace(conditions=each.conditions | held) for each in found]


@lru_cache(4096)
def normal(sentence: str) -> str:
    """Return a sentence in the one way in which its quantities are read."""
    text = sentence.lower()
    for each, new in _REWRITTEN:
        text = each.sub(new, text)
    return text


def _read_clause(clause: str, kg: float | None) -> tuple[str, list[Quantity]]:
    """Return a clause with marks in place of its quantities, and these."""
    found: list[Quantity] = []
    basis = (
        "day" if _HAS["daily"].search(clause) else "total" if _HAS["total"].search(clause) else ""
    )
    clause = _HAS["daily"].sub(" ", clause)
    for kind in _KINDS:
        place = 0
        while match := _IS[kind].search(clause, place):
            if kind == "amount" and UNITS[match["unit"]][1] == "time":  # it tells when, or an age
                place = match.end()
                continue
            start = match.start(
                0 if kind in ("every", "open") else "low" if match["low"] else "high"
            )
            before, after, between = clause[:start], clause[match.end() :], ""
            limit, per = _limit(before, after), None
            if kind == "amount" and (per := _IS["per"].match(after)):
                between, after = per["between"], after[per.end() :]
                limit = limit or _limit(before, after)
            own = (
                list(_amounts(match, per, basis, kg)) if kind == "amount" else [_rate(kind, match)]
            )
            if (
                kind == "apart"
            ):  # at least 6 hours apart is at most 4 times a day; "6 hours apart" is no rate
                limit = {"most": "least", "least": "most"}.get(limit or "")
            if limit and kind in ("apart", "every"):
                own = [each._replace(basis="apart") for each in own]
            if limit is None:  # the number stays unread
                place = match.end()
                continue
            found += [q._replace(bound=limit) for q in own if not (limit and q.computed)]
            clause, place = f"{before} @ {between}{after}", start + 2
    return clause, found


def _limit(before: str, after: str) -> str | None:
    """Return the limit that a quantity is, by the words around it; "" for none, and None if it is not read."""
    limits = (
        name
        for name in ("most", "least")
        if _BEFORE[name].search(before) or _AFTER[name].match(after)
    )
    return next(limits, None if _BEFORE["unread"].search(before) else "")


def _rate(kind: str, match: re.Match) -> Quantity:
    """Return how often a day something is done, or how long."""
    unit = match["time"] or _ADVERBS[match["adverb"]][0]
    days = UNITS[unit][0] / DAY * float(match.groupdict().get("count") or 1)
    if kind == "open":
        often = dict(_ADVERBS.values()).get(unit.removesuffix("s"), 1.0)
        return Quantity(1 / days, often / days, "rate", period=days, hourly=days < 1, computed=True)
    low, high = float(match["low"] or match["high"]), float(match["high"])
    if kind == "lasting":
        return Quantity(low * days * DAY, high * days * DAY, "time")
    if kind == "times":
        return Quantity(low / days, high / days, "rate", period=days, hourly=days < 1)
    most = high * days
    return Quantity(1 / most, 1 / (low * days), "rate", period=max(1.0, most), hourly=most < 1)


def _amounts(
    match: re.Match, per: re.Match | None, basis: str, kg: float | None
) -> Iterator[Quantity]:
    """Yield an amount, and that it is taken "daily" if it is; nothing of a concentration."""
    factor, measure = UNITS[match["unit"]]
    if match["in"] or UNITS[match["lower"] or match["unit"]][1] != measure:
        return
    high = float(match["high"]) * factor
    low = float(match["low"]) * UNITS[match["lower"] or match["unit"]][0] if match["low"] else high
    period = 1.0
    if per:
        period, basis = (
            UNITS[per["time"] or _ADVERBS[per["adverb"]][0]][0] / DAY * float(per["count"] or 1),
            "day",
        )
        if per["each"] or per["adverb"]:
            yield _rate("open", per)
    scale = (period if basis == "day" else 1.0) / (kg if kg and match["weight"] else 1.0)
    basis = basis if kg or not match["weight"] else f"{basis} weight".strip()
    low, high = min(low, high) / scale, max(low, high) / scale
    yield Quantity(low, high, measure, basis, period=period, hourly=period < 1)


def rest(sentence: str) -> frozenset[str]:
    """Return the words of a sentence that are no part of a quantity, but for those of `empty`."""
    left = (_read_clause(clause, None)[0] for clause in _CLAUSE.split(normal(sentence)))
    return frozenset(
        word
        for each in left
        for word in re.findall(r"[a-z']+", each)
        if not _HAS["empty"].fullmatch(word)
    )


def denials(sentence: str) -> int:
    """Return how often a sentence denies or excepts something, limits of quantities aside."""
    return len(_IS["denies"].findall(_IS["denied_limit"].sub(" ", normal(sentence))))


def does(word: str) -> bool:
    """Return whether a word is a verb of what one does, which names a subject too."""
    return bool(_HAS["does"].fullmatch(word))


def _names(clause: str, has_quantity: bool) -> tuple[frozenset[str], frozenset[str], set[str]]:
    """Return the words of a clause that name its subject, its own conditions, and those of the whole sentence."""
    whole: set[str] = set()
    if match := _HAS["conditions"].search(clause):
        whole |= words(clause[match.start() :])
        clause = clause[: match.start()]
    phrases = [match[0] for match in _PHRASE.finditer(clause)]
    under = frozenset(word for phrase in phrases for word in words(phrase))
    if not has_quantity and phrases and clause.lstrip(" @").startswith(phrases[0]):
        whole |= words(
            phrases[0]
        )  # what a clause begins with, "For a headache,", holds for the sentence
    named = words(_PHRASE.sub(" ", clause))
    special = {
        word
        for word in named
        if any(_HAS[kind].fullmatch(word) for kind in ("people", "forms", "stages"))
    }
    return (
        frozenset(word for word in named - special if not word[0].isdigit()),
        under,
        whole | special,
    )


@lru_cache(4096)
def words(text: str) -> frozenset[str]:
    """Return the words of a text in the one way, in the singular, but for those that name nothing."""
    found = (
        _SAID["plurals"].get(word, word)
        for word in _WORD.findall(text)
        if not _COMMON.fullmatch(word)
    )
    return frozenset(word for each in found if not _COMMON.fullmatch(word := _PLURAL.sub("", each)))
