"""Whether the quantities of a statement and of a passage on the same subject can both be right.

Compared is the same measure of the same subject, by its own word, under the same conditions, in English; else nothing is said.
"""

import re
from collections.abc import Collection, Sequence
from itertools import product
from typing import NamedTuple

from automedeval.evidence.quantities import (
    CONCENTRATION,
    Quantity,
    denials,
    does,
    normal,
    quantities,
    rest,
    weight,
    words,
)
from automedeval.evidence.statements import Evidence
from automedeval.records.language import is_english

# Factors above which two values contradict (people round), and a limit is not kept.
APART, BEYOND = 1.25, 1.05
AWAKE = 0.5  # of a day: what is done "every 2 hours" may be done 6 times
RULES = {"rate": "frequency", "time": "duration"}  # by measure; of any other "dose"
_PRONOUN = re.compile(r"\b(?:it|them|this|these|those|they)\b", re.I)
_BESIDE = re.compile(r"\w+ (?:or|and|vs|versus|than) \w+")  # two medicines
_ANOTHER = re.compile(
    r"\b(?:use|try|add(?:ed)?|choose|prefer|switch|alternative|option|choice|prescribe)\b", re.I
)
TOLD = 3000  # characters by which the language of the evidence is told


def contradiction(
    statement: str,
    passages: Sequence[Evidence],
    near: Collection[int] = (),
    question: str = "",
    before: str = "",
) -> tuple[str, Evidence] | None:
    """Return the rule by which a statement contradicts evidence ("dose", "frequency" or "duration"), and the passage.

    Read are the passages `near`, by index, which are known to be on its subject, and those whose text answers the question. A
    sentence may leave its subject to the question or to the sentence `before`; conditions that the question names are met.
    """
    compared = _compared(statement, passages, near, question, before)
    # What a dose and how often it is taken make a day is compared alone: as much may be taken in other doses. Beside the most
    # of a day, how often is not compared.
    days = [(of, own.computed) for own, other, of, _ in compared if own.basis == other.basis != ""]
    for mine, each, passage, is_met in compared:
        is_part = mine.measure != "time" and each.basis in ("", "weight")
        is_held = (passage, True) in days or (mine.measure == "rate" and (passage, False) in days)
        if not is_met or (is_part and is_held):
            continue
        said = [  # a limit, and a dose without how often, may be that of a day
            (own, other._replace(basis=own.basis))
            for own, other, of, _ in compared
            if (
                (own == mine or (mine.computed and of is not passage))
                and (own.basis == other.basis or (other.bound and not other.basis))
            )
            or (
                is_part
                and of is passage
                and own.measure == mine.measure
                and own.computed != other.computed
            )
        ]
        if all(_excludes(other, own) for own, other in [(mine, each), *said]):
            return RULES.get(mine.measure, "dose"), passage
    return None


def agreement(
    statement: str,
    passages: Sequence[Evidence],
    near: Collection[int] = (),
    question: str = "",
    before: str = "",
) -> bool:
    """Return whether one passage on the same subject says all of a statement that has quantities, or allows these.

    No word of the statement but the name of its subject stands elsewhere. The arguments are those of `contradiction`.
    """
    compared = _compared(statement, passages, near, question, before)
    stated = set(quantities(statement, weight(question)))
    named = words(normal(question)) & frozenset().union(*(each.subject for each in stated))
    for passage in passages:
        allowed = {  # of a range both ends
            mine
            for mine, each, of, is_met in compared
            if is_met
            and of is passage
            and mine.basis == each.basis
            and {mine.bound, each.bound} != {"most", "least"}
            and not any(
                _excludes(each, mine._replace(low=end, high=end, hourly=each.hourly))
                for end in mine[:2]
            )
        }
        says_all = rest(statement) <= rest(passage.text) | named and denials(statement) == denials(
            passage.text
        )
        if stated and stated <= allowed and says_all:
            return not contradiction(statement, passages, near, question, before)
    return False


def _compared(
    statement: str, passages: Sequence[Evidence], near: Collection[int], question: str, before: str
) -> list[tuple[Quantity, Quantity, Evidence, bool]]:
    """Return (quantity of the statement, of a passage, passage, for the same patient) of the same measure and subject."""
    evidence, asked = " ".join(each.text for each in passages), f"{question} {before} {statement}"
    if is_english(asked) is False or is_english(evidence[:TOLD]) is False:
        return []
    context, met, kg = (
        _Context.of(statement, before, question),
        words(normal(question)),
        weight(question),
    )
    own, is_diluted = quantities(statement, kg), bool(CONCENTRATION.search(f"{asked} {evidence}"))
    compared = []
    for passage in (
        each for index, each in enumerate(passages) if index in near or each.on_question
    ):
        their, their_context = (
            quantities(passage.text, kg),
            _Context.of(passage.text, passage.before, question),
        )
        for mine, each in product(own, their):
            is_alike = mine.measure == each.measure and _alike(mine, each, context, their_context)
            if is_alike and not (is_diluted and mine.measure == "volume"):
                is_met = mine.conditions | met == each.conditions | met
                is_met = is_met and (bool(each.bound) or _in_one_part(mine.measure, own, their))
                compared.append((mine, each, passage, is_met))
    return compared


def _in_one_part(measure: str, own: Sequence[Quantity], their: Sequence[Quantity]) -> bool:
    """Return whether two sentences are on the same part of a course: other parts have other doses for another time.

    How long is compared where all else is the same, how much and how often where nothing else differs.
    """
    mine, theirs = (
        [q for q in of if q.measure != measure and not q.computed] for of in (own, their)
    )
    if measure == "time":
        return {each[:4] for each in mine} == {each[:4] for each in theirs}
    shared = [(each, q) for each in theirs for q in mine if each.measure == q.measure != "rate"]
    return not any(each.basis != other.basis or _excludes(each, other) for each, other in shared)


class _Context(NamedTuple):
    """What can name the subject of a sentence which does not say it, as words.

    `last` are those of the sentence before, `asked` of the question, `among` those that it names beside each other; `other`
    says that the sentence before tells to take something.
    """

    last: frozenset[str]
    asked: frozenset[str]
    among: frozenset[str]
    other: bool

    @classmethod
    def of(cls, text: str, before: str, question: str) -> "_Context":
        last, among = words(normal(before)), words(" ".join(_BESIDE.findall(normal(question))))
        asked = frozenset() if last and _PRONOUN.search(text) else words(normal(question))
        return cls(last, asked, among, bool(_ANOTHER.search(before)) and before != question)

    def names(self, subject: frozenset[str]) -> bool:
        """Return whether it names the subject, and the sentence before no other one."""
        is_other = self.other and not subject & self.last
        return subject <= self.last | self.asked and not (
            is_other or (self.last & self.among) - subject
        )


def _alike(own: Quantity, their: Quantity, context: _Context, their_context: _Context) -> bool:
    """Return whether two quantities have the same subject: one names no more than the other does, or its context.

    How often or how long something is done has to be of the same thing: one does not change a lens as often as its case.
    """
    mine, theirs = own.subject, their.subject
    if not mine and not theirs:
        either, other = context.last - context.asked, their_context.last - their_context.asked
        every, their_every = (each.last | each.asked for each in (context, their_context))
        return (either <= other or other <= either) and (
            every == their_every or bool(every & their_every)
        )
    if mine and theirs:
        more, of = (mine - theirs, their_context) if theirs <= mine else (theirs - mine, context)
        is_same = (
            all(word in of.last | of.asked or does(word) for word in more)
            or own.measure not in RULES
        )
        return (mine <= theirs or theirs <= mine) and is_same
    return their_context.names(mine) if mine else context.names(theirs)


def _excludes(given: Quantity, mine: Quantity) -> bool:
    """Return whether a quantity cannot be right if the given one of the same measure is."""
    if given.hourly != mine.hourly:
        given, mine = (
            each._replace(low=each.low * AWAKE) if each.hourly else each for each in (given, mine)
        )
    if (
        given.basis != mine.basis
    ):  # one dose is not above the most of a day, nor closer to the next than the least time
        is_within = not mine.basis and given.basis in ("day", "apart") and given.period <= 1
        return (
            is_within
            and given.bound == "most"
            and mine.bound != "least"
            and mine.low > BEYOND * given.high
        )
    if given.bound and given.bound == mine.bound and given.period != mine.period:
        return False
    is_opposite = {given.bound, mine.bound} == {"most", "least"} and given.period == mine.period
    is_alike = (
        given.measure != "time" and given.period == mine.period
    )  # months are no number of weeks
    beyond = 1 / BEYOND if is_opposite else BEYOND if given.bound and is_alike else APART
    is_above = mine.low > beyond * given.high and (given.bound == "most" or mine.bound != "most")
    is_below = beyond * mine.high < given.low and (given.bound == "least" or mine.bound != "least")
    return (is_above and given.bound != "least") or (is_below and given.bound != "most")
