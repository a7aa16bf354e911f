"""What rules see in a statement and a passage on the same subject: amounts, frequencies, and opposite advice.

Rules read only what they can compare. Where they say nothing, the model decides.
"""

import math
import re
from collections.abc import Collection, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from automedeval.claims.quantities import COUNTED, Amount, amounts, frequency
from automedeval.claims.statements import Passage
from automedeval.records.yaml_file import YamlFile

RULES = resources.files("automedeval.claims") / "templates" / "rules.yaml"
APART = 1.5  # a factor between two amounts or frequencies from which they contradict; below, people round
SAME = (
    1.05  # and from which they are not the same; people leave out "a day" beside an amount that stands in the evidence
)
COMPARED = ("mass", "volume", *COUNTED)  # dimensions of doses
BODY = 1.0  # kg; from here on a mass is a body's weight and no dose
DRINK = 2e-4  # cubic metres; from here on a volume is a drink and no dose
_WORD = re.compile(r"[a-z]{5,}")
_WEIGHT = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d+)?)\s*(?:kg|kilos?|kilograms?)\b(?!\s*/)", re.I)
_CLAUSE_MARKS = (",", ";", ":")
_FORBIDDEN = re.compile(
    r"\b(?:do not|don['’]t|never|must not|mustn['’]t|should not|shouldn['’]t)\s+(?:\w+ly\s+)?(?P<verb>[a-z]+)", re.I
)
_INSTRUCTED = re.compile(
    r"(?:^|[,;:]\s+|\b(?:and|then|so|please|can|may|could|should|must|simply|just)\s+)(?:\w+ly\s+)?(?P<verb>[a-z]+)",
    re.I,
)
_PRONOUN = re.compile(r"\s*(?:it|them|this|these|they)\b", re.I)
_once = lru_cache(4096)  # every statement meets every passage: what depends on one of the two alone is read once


@cache
def _patterns() -> dict[str, re.Pattern]:
    content: dict[str, list[str]] = YamlFile(str(RULES)).read(RULES)
    return {
        name: re.compile("|".join(f"(?:{each})" for each in patterns), re.I)
        for name, patterns in content.items()
        if name != "actions"
    }


def contradiction(
    statement: str, passages: Sequence[Passage], near: Collection[int] = (), question: str = "", before: str = ""
) -> tuple[str, Passage] | None:
    """Return the rule by which a statement contradicts evidence ("dose", "frequency", "advice", "urgency") and the passage.

    Frequencies are compared with the near passages; doses also with those that share a word with the statement that can name
    the subject, if their text answers the question. An amount contradicts only if it agrees with none that it is compared with.

    Args:
        near: the indices of the passages that are known to be on the subject of the statement.
        question: the weight of a patient stands there, for doses per weight.
        before: the sentence before the statement, which often names its subject.
    """
    about = subject(f"{before} {statement}")
    compared = [
        each
        for index, each in enumerate(passages)
        if index in near or (each.on_question and about & subject(f"{each.before} {each.text}"))
    ]
    nearest = [passages[index] for index in near]
    if (passage := another_dose(statement, compared, question)) is not None:
        return "dose", passage
    if (passage := another_frequency(statement, nearest)) is not None:
        return "frequency", passage
    for index, each in enumerate(passages):
        if (index in near or each.on_question) and (advice := opposite_advice(statement, each, before)):
            return advice, each
    return None


def another_dose(statement: str, passages: Sequence[Passage], question: str = "") -> Passage | None:
    """Return the first passage with an amount of a kind of which the statement has one that is beyond all of the passages'."""
    weights = [
        float(each) for each in _WEIGHT.findall(" ".join([statement, question, *(each.text for each in passages)]))
    ]
    theirs = [(amount, each) for each in passages for amount in _doses(each.text, weights)]
    for dose in _doses(statement, weights):
        comparable = [(amount, each) for amount, each in theirs if amount.dimension == dose.dimension]
        alike = [(amount, each) for amount, each in comparable if amount.per == dose.per]
        if any(close(dose, amount, APART) for amount, _ in alike) or any(
            close(dose, amount, SAME) for amount, _ in comparable
        ):
            continue
        if alike:
            return alike[0][1]
    return None


def close(first: Amount, second: Amount, factor: float) -> bool:
    """Return whether two amounts lie within a factor of each other."""
    return first.low <= factor * second.high and second.low <= factor * first.high


def _doses(text: str, weights: Sequence[float]) -> list[Amount]:
    """Return the amounts of a text that can be doses; those per weight for the patient's weight too, if one is known."""
    doses = []
    for each in amounts(text):
        least = {"mass": BODY, "volume": DRINK}.get(each.dimension, math.inf)
        if each.dimension not in COMPARED or (each.low >= least and not each.per):
            continue
        if "weight" in each.per:
            doses += [
                each._replace(low=each.low * kg, high=each.high * kg, per=each.per.replace("weight", "").strip())
                for kg in dict.fromkeys(weights)
            ]
        doses.append(each)
    return doses


def another_frequency(statement: str, passages: Sequence[Passage]) -> Passage | None:
    """Return the first passage that says how often, if the statement says so too and agrees with none of the passages."""
    stated = frequency(statement)
    theirs = [(often, each) for each in passages if (often := frequency(each.text)) is not None]
    if stated is None or any(stated[0] <= APART * often[1] and often[0] <= APART * stated[1] for often, _ in theirs):
        return None
    return theirs[0][1] if theirs else None


def omitted_help(text: str, passages: Sequence[Passage]) -> Passage | None:
    """Return the first passage that tells to seek help at once, if nothing in an answer does, in however few words."""
    if (said := _sides(text))["seeks_help"] or said["urgent"]:
        return None
    return next((each for each in passages if _sides(each.text)["urgent"] and _sides(each.text)["helper"]), None)


def opposite_advice(statement: str, passage: Passage, before: str = "") -> str | None:
    """Return "advice" or "urgency" if one allows what the other forbids, or puts off what the other calls urgent."""
    said, evidence = _sides(statement), _sides(passage.text)
    if said["hedges"] or evidence["hedges"]:
        return None
    if evidence["urgent"] and not evidence["condition"] and said["delays"] and not (said["urgent"] or said["no_delay"]):
        return "urgency"
    for allowed, forbidden in (("permits", "forbids"), ("forbids", "permits")):
        opposed = said[allowed] and not said[forbidden] and evidence[forbidden] and not evidence[allowed]
        if opposed and acted_on(said[allowed], before) & acted_on(evidence[forbidden], passage.before):
            return "advice"
    return "advice" if does_the_forbidden(statement, passage, before) else None


def does_the_forbidden(statement: str, passage: Passage, before: str = "") -> bool:
    """Return whether the statement tells to do what the passage forbids without a condition."""
    forbidden, instructed = _prohibitions(passage.text, passage.before), _instructions(statement, before)
    return any(verb == other and words & others for verb, words in forbidden for other, others in instructed)


@_once
def _prohibitions(text: str, before: str) -> list[tuple[str, frozenset[str]]]:
    """Return (action, words that can name its subject) of what a text forbids without a condition."""
    return [
        (action(match["verb"]), acted_on(match, before))
        for match in _FORBIDDEN.finditer(text)
        if not _patterns()["qualified"].search(text, match.end())
    ]


@_once
def _instructions(text: str, before: str) -> list[tuple[str, frozenset[str]]]:
    """Return the same of what a text tells to do."""
    return [(action(match["verb"]), acted_on(match, before)) for match in _INSTRUCTED.finditer(text)]


def action(verb: str) -> str:
    """Return the first of the verbs of the same action, such as "stop" for "pause"."""
    group = next((each for each in _actions() if verb.lower() in each), None)
    return group[0] if group else verb.lower()


@cache
def _actions() -> list[list[str]]:
    return [each.split("|") for each in YamlFile(str(RULES)).read(RULES)["actions"]]


def acted_on(match: re.Match, before: str) -> frozenset[str]:
    """Return the words that can name what an advice is about: those of its clause, or of the text and the one before it."""
    text = match.string
    first = max(text.rfind(mark, 0, match.start()) for mark in _CLAUSE_MARKS) + 1
    ends = [place for mark in _CLAUSE_MARKS if (place := text.find(mark, match.end())) >= 0]
    clause = text[first : min(ends, default=len(text))]
    rest = text[match.end() : first + len(clause)]
    if _patterns()["qualified"].search(rest) and (words := subject(rest)):  # "not with alcohol" is about alcohol
        return words
    words = subject(clause)
    if not words or _PRONOUN.match(text, match.end()):
        words |= subject(f"{before} {text}")
    return words


@_once
def _sides(text: str) -> dict[str, Any]:
    return {name: pattern.search(text) for name, pattern in _patterns().items()}


@_once
def subject(text: str) -> frozenset[str]:
    """Return the words of a text that can name its subject: at least five letters, no frequent word, without an ending s."""
    common = _patterns()["common"]
    return frozenset(word.removesuffix("s") for word in _WORD.findall(text.lower()) if not common.fullmatch(word))
