"""Whether the quantities of a statement and of a passage on the same subject can both be right.

Compared is the same measure of the same subject, by its own word, under the same conditions, in English; else nothing is said.
"""

import re
from collections.abc import Collection, Sequence

from automedeval.evidence.quantities import Quantity, normal, quantities, weight, words
from automedeval.evidence.statements import Evidence
from automedeval.records.language import is_english

# Factors above which two values contradict (people round), and a limit is not kept.
APART, BEYOND = 1.25, 1.05
AWAKE = 0.5  # of a day: what is done "every 2 hours" may be done 6 times
RULES = {"rate": "frequency", "time": "duration"}  # by measure; of any other "dose"
_PRONOUN = re.compile(r"\b(?:it|them|this|these|those|they)\b", re.I)
TOLD = 3000  # characters by which the language of the evidence is told


def contradiction(
    statement: str, passages: Sequence[Evidence], near: Collection[int] = (), question: str = "", before: str = ""
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
        said = [  # a dose without how often may be that of a day
            (own, other._replace(basis=own.basis))
            for own, other, of, _ in compared
            if (own.basis == other.basis and (own == mine or (mine.computed and of is not passage)))
            or (is_part and of is passage and own.measure == mine.measure and own.computed != other.computed)
        ]
        if all(_excludes(other, own) for own, other in [(mine, each), *said]):
            return RULES.get(mine.measure, "dose"), passage
    return None


def agreement(
    statement: str, passages: Sequence[Evidence], near: Collection[int] = (), question: str = "", before: str = ""
) -> bool:
    """Return whether a statement has quantities, and evidence on the same subject allows each; arguments of `contradiction`."""
    compared = _compared(statement, passages, near, question, before)
    allowed = {  # of a range both ends
        mine
        for mine, each, _, is_met in compared
        if is_met
        and mine.basis == each.basis
        and {mine.bound, each.bound} != {"most", "least"}
        and not any(_excludes(each, mine._replace(low=end, high=end, hourly=each.hourly)) for end in mine[:2])
    }
    stated = set(quantities(statement, weight(question)))
    return bool(stated) and stated <= allowed and not contradiction(statement, passages, near, question, before)


def _compared(
    statement: str, passages: Sequence[Evidence], near: Collection[int], question: str, before: str
) -> list[tuple[Quantity, Quantity, Evidence, bool]]:
    """Return (quantity of the statement, of a passage, passage, for the same patient) of the same measure and subject."""
    evidence = " ".join(each.text for each in passages)[:TOLD]
    if any(is_english(text) is False for text in (f"{question} {before} {statement}", evidence)):
        return []
    context, met, kg = _context(statement, before, question), words(normal(question)), weight(question)
    return [
        (mine, each, passage, mine.conditions | met == each.conditions | met)
        for index, passage in enumerate(passages)
        if index in near or passage.on_question
        for mine in quantities(statement, kg)
        for each in quantities(passage.text, kg)
        if each.measure == mine.measure
        and (each.bound or _in_one_part(mine.measure, quantities(statement, kg), quantities(passage.text, kg)))
        and _alike(mine.subject, each.subject, context, _context(passage.text, passage.before, question))
    ]


def _in_one_part(measure: str, own: Sequence[Quantity], their: Sequence[Quantity]) -> bool:
    """Return whether two sentences are on the same part of a course: other parts have other doses for another time.

    How long is compared where all else is the same, how much and how often where nothing else differs.
    """
    mine, theirs = ([q for q in of if q.measure != measure and not q.computed] for of in (own, their))
    if measure == "time":
        return {each[:4] for each in mine} == {each[:4] for each in theirs}
    shared = [(each, q) for each in theirs for q in mine if each.measure == q.measure != "rate"]
    return not any(each.basis != other.basis or _excludes(each, other) for each, other in shared)


def _context(text: str, before: str, question: str) -> frozenset[str]:
    """Return the words that can name what a sentence is about which does not say it."""
    last = words(normal(before))
    return last if last and _PRONOUN.search(text) else last | words(normal(question))


def _alike(own: frozenset[str], their: frozenset[str], context: frozenset[str], their_context: frozenset[str]) -> bool:
    """Return whether two quantities have the same subject: one names no more than the other does, or its context."""
    if not own and not their:
        return context == their_context or bool(context & their_context)
    return bool(own and own <= (their or their_context)) or bool(their and their <= (own or context))


def _excludes(given: Quantity, mine: Quantity) -> bool:
    """Return whether a quantity cannot be right if the given one of the same measure is."""
    if given.hourly != mine.hourly:
        given, mine = (each._replace(low=each.low * AWAKE) if each.hourly else each for each in (given, mine))
    if given.basis != mine.basis:  # one dose is not above the most of a day, nor closer to the next than the least time
        is_within = not mine.basis and given.basis in ("day", "apart") and given.period <= 1
        return is_within and given.bound == "most" and mine.bound != "least" and mine.low > BEYOND * given.high
    if given.bound and given.bound == mine.bound and given.period != mine.period:
        return False
    is_opposite = {given.bound, mine.bound} == {"most", "least"} and given.period == mine.period
    beyond = 1 / BEYOND if is_opposite else BEYOND if given.bound and given.measure != "time" else APART
    is_above = mine.low > beyond * given.high and (given.bound == "most" or mine.bound != "most")
    is_below = beyond * mine.high < given.low and (given.bound == "least" or mine.bound != "least")
    return (is_above and given.bound != "least") or (is_below and given.bound != "most")
