"""Whether the quantities of a statement and of a passage on the same subject can both be right.

Compared is the same measure of the same subject, by its own word, under the same conditions; else the rules say nothing.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from automedeval.evidence.quantities import KNOWN, Quantity, normal, quantities, words
from automedeval.evidence.statements import Evidence

# Factors above which two values contradict (people round), a limit is not kept, and a range ends far above another one.
APART, BEYOND, WIDE = 1.25, 1.05, 4.0
RULES = {"rate": "frequency", "time": "duration"}  # by measure; of any other "dose"
_PRONOUN = re.compile(r"\b(?:it|them|this|these|those|they)\b", re.I)


def contradiction(
    statement: str, passages: Sequence[Evidence], near: Collection[int] = (), question: str = "", before: str = ""
) -> tuple[str, Evidence] | None:
    """Return the rule by which a statement contradicts evidence ("dose", "frequency" or "duration"), and the passage.

    Read are the passages `near`, by index, which are known to be on its subject, and those whose text answers the question. A
    sentence may leave its subject to the question or to the sentence `before`; conditions that the question meets are met.
    """
    compared = _compared(statement, passages, near, question, before)
    # Who says as much a day in other doses, or keeps the most of a day, does not contradict.
    even = [
        passage
        for mine, each, passage in compared
        if mine.basis == each.basis == "day" and not mine.bound and each.bound != "least" and not _excludes(each, mine)
    ]
    for mine, each, passage in compared:
        doses = [pair for *pair, of in compared if of is passage and pair[0].measure == mine.measure != "rate"]
        if mine.computed and each.computed and any(not own.computed and _excludes(other, own) for own, other in doses):
            continue  # the single doses differ, which are compared by themselves
        if any(other == each and _keeps(own, mine, each) for own, other, _ in compared):
            continue
        others = [other for own, other, _ in compared if own == mine]
        is_apart = mine.conditions == each.conditions and _excludes(each, mine) and not _allowed(mine, each, others)
        if is_apart and (each.bound or mine.basis == "day" or passage not in even):
            return RULES.get(mine.measure, "dose"), passage
    return None


def agreement(
    statement: str, passages: Sequence[Evidence], near: Collection[int] = (), question: str = "", before: str = ""
) -> bool:
    """Return whether a statement has quantities, and evidence on the same subject allows each; arguments of `contradiction`."""
    compared = _compared(statement, passages, near, question, before)
    allowed = {  # a range of hours whole, and a least time between doses as how often it lets them be
        mine
        for mine, each, _ in compared
        if mine.conditions == each.conditions
        and mine.gap != "either"
        and not _excludes(each, mine._replace(gap=""))
        and not _opposite(each, mine)
    }
    stated = set(_for_patient(quantities(statement), question))
    return bool(stated) and stated <= allowed and not contradiction(statement, passages, near, question, before)


def _compared(
    statement: str, passages: Sequence[Evidence], near: Collection[int], question: str, before: str
) -> list[tuple[Quantity, Quantity, Evidence]]:
    """Return (quantity of the statement, quantity of a passage, passage) of the same measure and subject."""
    context, own = _context(statement, before, question), quantities(statement)
    return [
        (mine, each, passage)
        for mine in _for_patient(own, question)
        for index, passage in enumerate(passages)
        if index in near or passage.on_question
        for each in _for_patient(quantities(passage.text), question)
        if each.measure == mine.measure
        and (each.bound or _in_one_part(mine.measure == "time", own, quantities(passage.text)))
        and _alike(mine.subject, each.subject, context, _context(passage.text, passage.before, question))
    ]


def _in_one_part(is_time: bool, own: Sequence[Quantity], their: Sequence[Quantity]) -> bool:
    """Return whether two sentences are on the same part of a course: other parts have other doses for another time."""
    mine, theirs = ([q for q in of if (q.measure == "time") != is_time and not q.computed] for of in (own, their))
    if is_time:
        return {each[:4] for each in mine} == {each[:4] for each in theirs}
    return not (mine and theirs) or any(not _excludes(each, other) for each in theirs for other in mine)


def _keeps(own: Quantity, mine: Quantity, limit: Quantity) -> bool:
    """Return whether the `own` most of a statement holds how often doses are taken, or what they add up to, within a limit."""
    is_same = own.bound == limit.bound == "most" and own[2:4] == mine[2:4] == limit[2:4] and own.period == limit.period
    is_held = bool(mine.gap or mine.computed) and own.conditions <= mine.conditions and own != mine
    return is_held and is_same and own.high <= BEYOND * limit.high


def _for_patient(stated: Sequence[Quantity], question: str) -> Iterator[Quantity]:
    """Yield quantities without the conditions that the question meets, those per weight for the one weight that it names."""
    asked = normal(question)
    own = [(float(number), "kg" if kg else "years") for number, kg in KNOWN.findall(asked)]
    met = words(asked) | {f"={number:g} {unit}" for number, unit in own}
    weights = {number for number, unit in own if unit == "kg"}

    def is_met(condition: str) -> bool:  # ">50 kg"
        limit, _, of = condition[1:].partition(" ")
        return (condition[0] == ">") in [n > float(limit) for n, unit in own if of == unit and condition[0] in "<>"]

    for each in stated:
        each = each._replace(conditions=frozenset(word for word in each.conditions - met if not is_met(word)))
        if each.basis.endswith("weight") and len(weights) == 1:
            kg, basis = min(weights), each.basis.removesuffix("weight").strip()
            each = each._replace(low=each.low * kg, high=each.high * kg, basis=basis)
        yield each


def _context(text: str, before: str, question: str) -> frozenset[str]:
    """Return the words that can name what a sentence is about which does not say it."""
    last = words(normal(before))
    return last if last and _PRONOUN.search(text) else last | words(normal(question))


def _alike(own: frozenset[str], their: frozenset[str], context: frozenset[str], their_context: frozenset[str]) -> bool:
    """Return whether two quantities have the same subject: one names no more than the other does, or its context."""
    if own and their:
        return own <= their or their <= own
    if own or their:
        return own <= their_context if own else their <= context
    return context == their_context or bool(context & their_context)


def _opposite(given: Quantity, mine: Quantity) -> bool:
    """Return whether one quantity is the most of what the other is the least of."""
    return {given.bound, mine.bound} == {"most", "least"}


def _excludes(given: Quantity, mine: Quantity) -> bool:
    """Return whether a quantity cannot be right if the given one of the same measure is."""
    if given.basis != mine.basis:  # a single dose is not above the most of a day
        is_whole = (mine.basis, given.basis, given.bound) == ("", "day", "most") and given.period <= 1
        return is_whole and mine.bound != "least" and mine.low > BEYOND * given.high
    if given.bound and given.bound == mine.bound and given.period != mine.period:
        return False
    is_gap = bool(mine.gap and not given.gap)  # "every 4 to 6 hours" may be as seldom as every 6
    beyond = 1 / BEYOND if _opposite(given, mine) and given.period == mine.period else BEYOND
    if given.bound == "most":
        most = mine.low if mine.bound == "least" or mine.computed or is_gap else mine.high
        return most > beyond * given.high and not (is_gap and mine.gap == "least")
    if given.bound == "least":
        return beyond * (mine.low if mine.bound == "least" else mine.high) < given.low
    if mine.bound != "most" and mine.low > APART * given.high:
        return True
    is_wide = (
        given.low < given.high
        and not mine.bound
        and not mine.computed
        and mine.gap != "either"
        and mine.high > WIDE * given.high
    )
    return is_wide or (mine.bound != "least" and APART * mine.high < given.low)


def _allowed(mine: Quantity, excluding: Quantity, others: Sequence[Quantity]) -> bool:
    """Return whether evidence allows a quantity elsewhere, under whatever conditions."""
    return any(
        each.basis == mine.basis
        and (each.bound in ("", mine.bound, excluding.bound) or (each.bound == "most" and mine.low > excluding.high))
        and not (excluding.bound and each.computed)
        and not _excludes(each, mine)
        for each in others
    )
