"""The numbers of an answer beside those of a text that says what is true: which are at least twice, or at most half, as large.

A number is read where a unit stands beside it ("500 mg"), or where it says how often ("twice a day"). It is compared only with
numbers of its kind. Words are not read, but for those that forbid: the numbers of such a sentence or list are left out, on both
sides. A mark is a place to look at, and no finding: it says nothing of what the numbers are of.
"""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from operator import attrgetter
from typing import NamedTuple

from automedeval.evidence.sentences import Span, plain, spans
from automedeval.records import JsonObject
from automedeval.records.package_data import packaged
from automedeval.records.patterns import all_filled, one_of

NEAR = 400  # characters before a number that may make it a limit: tables pad their cells
FACTOR = 2.0  # the least that is marked
SLIP = 10.0  # what is marked above a lower limit, and of doses per kg where only one says of which time
A_DAY = " a day"
# Or "every day", which may be more often than once; or "each year", which is seldom of a dose
DAILY = "daily"
ROUNDING = 1e-5  # of what is twice as often: an hour is no round part of a day
_KNOWN: JsonObject = packaged("evidence", "numbers")


class Number(NamedTuple):
    """A number of a text, from `low` to `high` in the first unit of its kind.

    As a limit it is "most", which allows all below it, or "least", which allows less than ten times as much.
    It is of the reference (`source` 0) or a passage.
    `once` is "daily" of that or "every day", "other" of "once a week" and "weekly", None of any other. Much is done daily:
    it is no measure for "twice a week".
    """

    kind: str
    low: float
    high: float
    limit: str | None
    once: str | None
    start: int
    end: int
    sentence: Span
    source: int = 0

    def parts(self, text: str) -> list[str]:
        """Return what its sentence has before the number, the number, and what is behind it."""
        start, end, _ = self.sentence
        text = text.replace("\n", " ")
        return [text[start : self.start], text[self.start : self.end], text[self.end : end]]


class Difference(NamedTuple):
    """A number of an answer that differs from all of its kind, and the nearest, in the reference or a passage."""

    factor: float
    number: Number
    nearest: Number


def _meanings(table: dict[str, dict[str, float]]) -> dict[str, tuple[str, float]]:
    """Return the kind and the factor of every unit, by its name."""
    meanings = {}
    for kind, units in table.items():
        for unit, factor in units.items():
            meanings[unit] = kind, factor
    return meanings


_UNITS = _meanings(_KNOWN["units"])
_PER = _meanings(_KNOWN["per"])
_PERIODS = _KNOWN["periods"] | _KNOWN["adverbs"]
_WORDS = {"a": 1, "½": 0.5, "¼": 0.25, "¾": 0.75, "⅓": 0.33333333, "⅔": 0.66666667}  # "a hundred"
for _table in ("ones", "teens", "tens", "shares", "times", "turns"):
    _WORDS |= _KNOWN[_table]
# Letters that a pattern takes for others, which the names of units have: both cases of the Greek µ, and i, s and K of others;
# the raised points of decimals; and hyphens that no line breaks at.
_ALIKE = str.maketrans("\u03bc\u039c\u0131\u0130\u017f\u212a\u2219\u22c5\u2010\u2011", "µµiIsK··--")
_WORD_LISTS = _KNOWN | {
    "unit": _UNITS,
    "per": _PER,
    "shares": [share.replace(" ", "[ -]") for share in _KNOWN["shares"]],
}
# Each may name the lists of words and the patterns above it; `period` is what a number counts, or the time between two.
_PATTERNS = {
    # "1.000 mg" has two readings and is not read; "1 000" is a thousand, and "2 500 mg tablets" are two;
    # "1 .5 mg" may be 1.5 mg, and in "a dose.5 mg" a sentence may end: neither is read.
    "digits": r"(?![1-9]\d{0,2}[.·]\d{3}\b)(?!0*[.,·]?0+(?!\d|[.,·]\d))"
    r"(?:[1-9]\d{0,2}(?:[,\u00a0\u2009\u202f]\d{3})+(?:\.\d+)?|[1-9]\d{0,2}(?: 000)+"
    r"|[1-9](?: \d{3}){2,}|[1-9]\d{1,2}(?: \d{3})+|\d{1,9}[.,·]\d{1,9}|(?<!\d )\.\d{1,9}"
    r"|(?:\d{1,3}[ -])?[1-9]/[1-9]|(?:\d{1,3}[ -]?)?[½¼¾⅓⅔]|\d{1,9}(?!-[1-9]/[1-9]))(?!\d)",
    # Atomic: "twenty-five" and "one-hundred-five" are no ranges; "one hundred and two hundred mg" are two numbers.
    # Of "one point five mg" nothing is read.
    "in_words": r"(?<!one point )(?<!two point )(?<!zero point )"
    r"(?>(?:@tens[ -]@ones|@shares|@tens|@teens|@ones)\b)",
    # "On days 1 to 3 and half a tablet" has two numbers.
    "added": r"(?!half (?:an?|of)\b)@in_words",
    "hundreds": r"(?:[ -]hundred(?: and @added|(?>(?:[ -]@added)?)))?",
    "behind_scale": r"(?: and @added@hundreds|(?>(?:[ -]@added@hundreds)?))",
    "number": r"(?:@digits|@in_words|a(?= @scales\b)|(?:(?<=for )|(?<=up to )|(?<=at least ))"
    r"a(?= (?:day|week|month|year)\b(?! or)))"
    r"(?: and (?:(?=@shares\b)@added|[1-9]/[1-9]|[½¼¾⅓⅔]))?"
    r"@hundreds(?:[ -]million@behind_scale)?(?:(?<!million)[ -]thousand@behind_scale)?",
    "scaled": r"(?:(?!@scales).)+(?:[ -]@scales)+",
    # "five (5)"
    "again": r"(?: \((?:[\d.,]+|@in_words@hundreds)\))?",
    "range": r"(?<![^\Wq])(?<![.,·/$€£^])(?<!\w[-–])"
    # Of "-5 to 5 °C" no range is read.
    r"(?!(?:(?<=[-−–])|(?<=minus ))[\d.]+ ?(?:to|and|or|[-–—]) ?[\d.]+ ?°)"
    # "Day 2 - 10 mg" is no range, nor is "over 65 - 10 mg".
    r"(?!(?:(?<=\bday )(?<![ahyr] day )|(?<=\bweek )|(?<=\bstep )|(?<=\bphase ))\d+ ?[-–—])"
    r"(?!(?:(?<=\bover )|(?<=\bunder ))\d+ [-–—])"
    r"(?:(?P<between>between )?(?!(?:(?<=[-−–])|(?<=minus ))[\d.]+ ?°)(?P<low>@number)@again[ -]?(?:(?P<lower>@unit)s?)? ?"
    r"(?(between)and|(?:-|–|—|to|or|(?<=[-−–]\d\d )and(?= [-−–]\d))) ?"
    # "-25 to -15 °C"
    r"(?:(?:(?<=[-−–]\d to )|(?<=[-−–]\d\d to )|(?<=[-−–]\d\d and )|(?<=minus \d\d to ))"
    r"(?:[-−–]|minus )(?=[\d.]+ ?(?:°|deg|celsius|f)))?)?(?P<high>@number)@again",
    # No amounts: ages, widths of needles, and equivalents of what has two charges.
    "other": r"[- ](?:old|of age|cannula|needle|catheter|below (?:zero|freezing))|(?<=eq) (?:of )?(?:magnesium|calcium)",
    # "½ of a 600 mg tablet" is 300 mg; "one and a half of a", or "in the first half a 600 mg dose", is none.
    "halved": r"(?P<half>\b(?<!\d )(?<!and a )(?:half|½|1/2)(?: of (?:(?:an?|the|one) )?"
    r"|(?<!first half)(?<!second half)(?<!last half)(?<!latter half) (?:an?|the|one) ))?",
    "gap": r"(?:\s{0,2}-?| of (?:an? )?| (?:consecutive|full|whole) )",
    # Also "10 mg paracetamol/kg", "mg kg⁻¹" and "mg/kgBW"; with the time behind a weight.
    "base": r"(?:(?:(?: (?!per\b|m?[gl]\b|mcg\b)[^\W\d]\w{0,20}+){0,4}+(?: ?/ ?| ?per ?)"
    r"| for (?:every|each) | an? (?=k|pound)|[ ·.](?=\w{1,2}(?:⁻¹|\^?[-−]1)))"
    r"(?P<count>@number ?)?(?=(?P<body>k|lb|pound)?)(?P<by>@per)s?(?:bw)?\b"
    r"(?(body)(?:⁻¹|\^?[-−]1)?(?:(?: ?/ ?| (?:(?:per|an?) )?|[·.])(?P<time>@periods|@adverbs)s?\b)?))?",
    # Behind an adverb: its clause ends, or goes on with a small word. "Daily dose" and "yearly check-up" say not how often.
    "alone": r"(?=\W*$|[^\w\s]|\s+(?:@go_on|not|rather|instead)\b)",
    # At most four times a day
    "apart": r"@range[ -]?(?P<period>@periods)s?\b(?= (?:apart|in between|between))",
    "hourly": r"@range[ -](?P<period>hourly|(?<=-)(?:weekly|monthly|yearly))\b",
    "a_period": r"(?:(?:(?: ?/ ?|[ -](?:an?|per|each|every|in(?: an?y?)?|within)[ -])(?P<count>@number[ -])?"
    r"|[ -](?=@adverbs\b))(?P<period>@periods|@adverbs)s?\b)",
    "times a period": r"(?:@range[ -]?(?:times?|x|×)|(?:(?P<few>@times) (?:or|to) )?(?P<times>@times))@a_period",
    "every": r"\b(?!(?<=days )(?:every|each) week)"
    r"(?:(?:every|each) |q ?(?=\d))(?:@range[ -]?|(?P<times>@turns) )?(?P<period>@periods)s?\b(?! counts)",
    # "Bi-monthly" has two readings.
    "adverb": r"\b(?<!\w-)(?<!\b(?-i:a) )(?<!\bthe )(?P<period>@adverbs)\b@alone",
    # How an amount may begin: at most places of a text it cannot.
    "begins": r"(?=[<≤>≥]|(?<![^\Wq])[-−–\d½¼¾⅓⅔.abefhlmnostu])",
    # A temperature has its sign, and below zero no limit: "below -20 °C" is more by its size.
    "amount": r"@begins(?P<below>(?:\b(?:below|under|up to|at (?:least|most)|(?:less|more) than) |[<≤>≥] ?)?"
    r"(?<![\w.,·°)/])(?<!° )(?:[-−–]|minus )(?=(?:[\d.,]+|@in_words@hundreds)"
    r"(?: ?(?:to|and|or|[-–—]) ?(?:[-−–]|minus )[\d.,]+)?@gap(?:°|degree|celsius|f(?:ahrenheit)?\b)))?"
    r"@halved@range@gap(?P<unit>@unit)s?(?!\w|\.s\b)(?!@other)@base(?(below)(?: or (?:less|below|above|more|higher))?)",
    "any": r"[\d½¼¾⅓⅔]|\b_{0,3}(?=[a-z])(?:for\W{1,4}(?:up to |at least )?a\b|every|each|@adverbs|@scales|@times|[btq]\.[id]\."
    r"|(?:@tens|@teens|@ones|@shares)\b)",
    # Forms that are slow to look for have one of these.
    "in apart": r"apart|between",
    "in hourly": r"hourly|-(?:week|month|year)ly",
    "in times a period": r"time|@times|\bx|\dx|×",
    "in every": r"every|each|q ?\d",
    "in adverb": r"@adverbs",
    "in amount": r"@any",
    "once": r"(?P<daily>daily|nightly|yearly|annually|(?:every|each) (?:day|morning|evening|night|year))"
    r"|(?P<other>(?:once |(?:one|1) time )?(?:(?:an?|per|every|each) @periods|\w+ly))",
    "not_less": r"(?:\bno|not|\bnever|n['’]t)(?: (?!(?:if|to)\b)[^\W\d]\w{0,20}){0,3} (?:less|fewer) than",
    "limit_before": r"(?:(?P<most>@limits)"
    # By its first letter, since most words are none of these. A Markdown quotation begins with ">".
    r"|(?=[aimnr≥>])(?:(?P<least>@not_less|\b(?:at least|minimum)|≥|(?:(?<=\w )|(?<=\())>)"
    # "10 mg, not 100 mg"
    r"|(?P<denied>\b(?:not|rather than|instead of|as opposed to)(?: (?:an?|the|it|taking|giving|using))*(?=[\s\"“]*$))"
    r"))(?: a total of| about| of)?\W*$",
    "of_a_dose": r"(?:daily|single|total|safe|recommended|dose|amount)",
    "is_most": r"(?:is|are|as)(?: the| a| your)? "
    r"(?:most you|max(?:imum)?(?! (?:strength|size|length|number)))",
    # "40 mg a day, max 5 days" limits the days alone.
    "most_alone": r"(?:@most|@is_most)\b"
    r"(?!(?:[\s.:|]+(?:@of_a_dose|for|of|is))*"
    r"[\s.:|]+(?:[\d½¼¾⅓⅔]|@in_words|@times\b))",
    "limit_after": r"(?: of \w+)?@a_period?\W*(?:(?P<most>@limits_behind\b|@most_alone)"
    r"|(?P<least>or (?:more|above|greater|higher|longer)\b|at least\W*$))",
    "lasts": r"\b@lasting(?: \w+){0,3}\W*$",
    # Limits; and who cannot do something is forbidden nothing: "if you cannot sleep, take 10 mg". But a number in such a
    # clause may be forbidden: "since you cannot take 10 mg".
    "no_ban": r"@not_less|@limits|\b(?:(?:if|when(?:ever)?|while|because|since|as|unless|until|(?:al)?though|in case) "
    r"(?:you|s?he|it|they|we|one|people|patients|(?:your|the|his|her|their|my) \w+)|(?<=\w )who|(?<!\w )(?:I|we)) "
    r"(?:(?:can|do|(?<=if you )(?:must|should))(?: ?not|n?['’]t)|never)\b"
    r"(?!(?:(?!\b(?:then|may|can|should|must)\b)[^,;:.]){0,200}?(?:@any))",
    # "It cannot do you any harm" forbids nothing, nor does "do not forget to take it"; but "do not skip one or take two" does.
    "forbidding": r"\b@forbids(?! (?:do |cause )?(?:you |any )*(?:harm|hurt)(?:s|ing)?\b)"
    r"(?!(?: (?:to|be|ever))* (?:forg[eo]t|hesitat|worr|afraid"
    r"|(?:skip|miss|stop|delay)(?!.{0,80}\b(?:n?or|and) (?:tak|us|giv|doubl|increas))))",
}
_PARTS = {name: one_of(words) for name, words in _WORD_LISTS.items()}
_FILLED = all_filled(_PATTERNS, _PARTS)
_BY_FACTOR = attrgetter("factor")
_FORMS = ("apart", "hourly", "times a period", "every", "adverb", "amount")  # how often comes first


@cache  # at first use: to compile all takes as long as to import numpy
def _pattern(name: str) -> re.Pattern:
    return re.compile(_FILLED[name], re.I)


def differences(answer: str, reference: str, passages: Sequence[str] = ()) -> list[Difference]:
    """Return the numbers of an answer that differ from every number of their kind in the reference, the largest factor first.

    Passages count for the kinds of which it has no number: they silence nothing that differs from it.
    """
    known = list(numbers(reference))
    kinds = {number.kind for number in known}
    for place, text in enumerate(passages, 1):
        read = numbers(text)
        known += [number._replace(source=place) for number in read if number.kind not in kinds]
    different = []
    for number in numbers(answer):
        beside = [allowed for allowed in known if allowed.kind == number.kind]
        least = FACTOR
        if not beside:  # per kg, and per kg a day
            kind = number.kind.removesuffix(A_DAY)
            beside = [allowed for allowed in known if allowed.kind.removesuffix(A_DAY) == kind]
            least = SLIP
        if any(allowed.limit == "most" for allowed in beside):  # it says more than the least
            beside = [
                allowed._replace(limit=None) if allowed.limit == "least" else allowed
                for allowed in beside
            ]
        measures = [allowed for allowed in beside if allowed.once != DAILY or number.once]
        for end in {number.low, number.high} if measures else ():
            if _nearest(number, end, beside).factor >= least - ROUNDING:
                different.append(_nearest(number, end, measures))
    worst = {difference.number: difference for difference in sorted(different, key=_BY_FACTOR)}
    return sorted(worst.values(), key=_BY_FACTOR, reverse=True)


def _nearest(number: Number, end: float, known: Sequence[Number]) -> Difference:
    """Return how an end of a number differs from the nearest of others."""
    return min(
        (Difference(_factor(number, end, allowed), number, allowed) for allowed in known),
        key=_BY_FACTOR,
    )


def _factor(number: Number, end: float, allowed: Number) -> float:
    """Return by how much an end of a number is above what another allows, or below it where that counts; 1 if it is not."""
    above = end / allowed.high
    if allowed.limit == "least" and above < SLIP - ROUNDING:
        above = 1.0
    below = 1.0 if allowed.limit == "most" or number.once == DAILY else allowed.low / end
    return max(above, below, 1.0)


@lru_cache(4096)  # a reference is read beside every answer
def numbers(text: str) -> tuple[Number, ...]:
    """Return the numbers of a text, but for those of sentences and lists that forbid."""
    text = text.translate(_ALIKE)
    read: list[Number] = []
    for span in spans(text):
        written = text[span.start : span.end]
        if not _pattern("any").search(written):
            continue
        sentence, places = plain(written)
        if not forbids(f"{span.above}: {sentence}"):
            read += _read(sentence, places, span)
    return tuple(read)


def forbids(sentence: str) -> bool:
    """Return whether a sentence forbids something, beyond a limit ("no more than 4 g") and what one cannot do."""
    forbidding = _pattern("forbidding").search
    # What is no ban is slow to look for, and in most sentences there is nothing to take for one.
    return bool(forbidding(sentence) and forbidding(_pattern("no_ban").sub(" ", sentence)))


def _read(sentence: str, places: Sequence[int], span: Span) -> Iterator[Number]:
    """Yield the numbers of a plain sentence: first how often, since "every 2 days" is no duration."""
    rest = sentence
    for form in _FORMS:
        if not _pattern(f"in {form}").search(rest):
            continue
        for match in list(_pattern(form).finditer(rest)):
            start, end = match.span()
            rest = rest[:start] + "\0" * len(match[0]) + rest[end:]  # struck out
            before = sentence[:start][-NEAR:]
            limit = _pattern("limit_before").search(before) or _pattern("limit_after").match(
                sentence, end
            )
            once = _pattern("once").fullmatch(match[0])
            side = "most" if form == "apart" else limit and limit.lastgroup
            if side == "denied":
                continue
            place = (span.start + places[start], span.start + places[end - 1] + 1, span)
            for kind, *ends in _amounts(match) if form == "amount" else [_rate(form, match)]:
                is_age = kind == "duration" and not _pattern("lasts").search(before)
                if not is_age and ends[0] > 0:
                    yield Number(kind, min(ends), max(ends), side, once and once.lastgroup, *place)


def _amounts(match: re.Match) -> Iterator[tuple[str, float, float]]:
    """Yield the kind and the ends of an amount; of "800 mg or 4 ml" those of both."""
    kind, scale = _UNITS[match["unit"].lower()]
    lower_kind, lower_scale = _UNITS[(match["lower"] or match["unit"]).lower()]
    low, high = _ends(match)
    low *= lower_scale
    high *= scale
    if lower_kind != kind:
        yield lower_kind, low, low
        low = high
    if match["below"]:
        kind += " below zero"
    if kind == "fahrenheit":
        yield "temperature", (low - 32) / 1.8, (high - 32) / 1.8
    elif match["by"]:
        per, size = _PER[match["by"].lower()]
        size *= _value(match["count"] or "1")
        if match["time"]:
            per += A_DAY
            size *= _PERIODS[match["time"].lower()]
        yield f"{kind} {per}", low / size, high / size
    else:
        share = 0.5 if match["half"] and kind != "per cent" else 1
        yield kind, low * share, high * share


def _rate(form: str, match: re.Match) -> tuple[str, float, float]:
    """Return how often a day."""
    groups = match.groupdict()
    low, high = _ends(match)
    days = _PERIODS[groups["period"].lower()]
    if form == "times a period":
        days *= _value(groups["count"] or "1")
        return "how often", low / days, high / days
    return "how often", 1 / (high * days), 1 / (low * days)


def _ends(match: re.Match) -> tuple[float, float]:
    """Return the least and the largest number of a match; 1 if it has none."""
    groups = match.groupdict()
    high = groups.get("times") or groups.get("high") or "1"
    low = _value(groups.get("few") or groups.get("low") or high)
    scaled = _pattern("scaled").match(high)
    if scaled and not groups.get("lower"):  # "two to three hundred and fifty"
        for word, factor in _KNOWN["scales"].items():
            if word in scaled[0].lower() and low * factor < _value(scaled[0]):
                low *= factor
    return low, _value(high)


def _value(text: str) -> float:
    """Return the value of a number in digits or words."""
    text = text.lower().replace("-", " ").strip().removeprefix("and ")
    for word, factor in _KNOWN["scales"].items():
        whole, found, rest = text.partition(word)
        if found:  # "two hundred and fifty"
            return factor * _value(whole) + _value(rest or "0")
    whole, _, rest = text.partition(" and ")
    if rest:  # "one and a half"
        return _value(whole) + _value(rest)
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(r"[1-9]\d{0,2}(?:[,\s]\d{3})+(?:\.\d+)?", text):
        return float(re.sub(r"[,\s]", "", text))
    words = re.sub("[½¼¾⅓⅔]", r" \g<0>", re.sub("[,·]", ".", text)).split()
    return float(sum(_WORDS.get(word) or Fraction(word) for word in words))  # "1½", "twenty-five"
