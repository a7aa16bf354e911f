"""What rules see in a statement and a passage on the same subject: amounts, frequencies, and opposite advice.

Rules read only what they can compare. Where they say nothing, the model decides.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from automedeval.claims.quantities import COUNTED, Amount, amounts, frequency
from automedeval.records.yaml_file import YamlFile

RULES = resources.files("automedeval.claims") / "templates" / "rules.yaml"
APART = 1.5  # a factor between two amounts or frequencies from which they contradict; below, people round
COMPARED = ("[mass]", "[length] ** 3", *COUNTED)  # dimensions of doses
BODY = 1.0  # kg; from here on a mass is a body's weight and no dose
_WORD = re.compile(r"[a-z]{5,}")
_WEIGHT = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d+)?)\s*(?:kg|kilos?|kilograms?)\b(?!\s*/)", re.I)
_PRONOUN = re.compile(r"\b(?:it|them|this|these|they)\b", re.I)


@cache
def _patterns() -> dict[str, re.Pattern]:
    content: dict[str, list[str]] = YamlFile(str(RULES)).read(RULES)
    return {name: re.compile("|".join(f"(?:{each})" for each in patterns), re.I) for name, patterns in content.items()}


def contradiction(statement: str, passage: str, question: str = "", before: str = "", near: bool = True) -> str | None:
    """Return the rule by which a statement contradicts a passage: "dose", "frequency", "advice", "urgency", or None.

    Args:
        question: the weight of a patient stands there, for doses per weight.
        before: the sentence before the passage, which says what "it" is.
        near: whether the two are known to be on the same subject. Else amounts are not compared, and advice only if the two
            share a word that can name the subject.
    """
    if near and doses_differ(statement, passage, question):
        return "dose"
    if near and frequencies_differ(statement, passage):
        return "frequency"
    return opposite_advice(statement, passage, before, near)


def doses_differ(statement: str, passage: str, question: str = "") -> bool:
    """Return whether an amount of the statement is beyond every amount of its kind that the passage gives."""
    weights = [float(each) for each in _WEIGHT.findall(f"{statement} {passage} {question}")]
    theirs = list(_doses(passage, weights))
    for own in _doses(statement, weights):
        known = [each for each in theirs if each.dimension == own.dimension and each.per == own.per]
        if known and (
            own.low > APART * max(each.high for each in known) or own.high * APART < min(each.low for each in known)
        ):
            return True
    return False


def _doses(text: str, weights: Sequence[float]) -> list[Amount]:
    """Return the amounts of a text that can be doses; those per weight for the patient's weight too, if one is known."""
    found = []
    for each in amounts(text):
        if each.dimension not in COMPARED or (each.dimension == "[mass]" and each.low >= BODY and not each.per):
            continue
        if "weight" in each.per:
            found += [
                each._replace(low=each.low * kg, high=each.high * kg, per=each.per.replace("weight", "").strip())
                for kg in dict.fromkeys(weights)
            ]
        found.append(each)
    return found


def frequencies_differ(statement: str, passage: str) -> bool:
    """Return whether both say how often, and not about the same."""
    own, theirs = frequency(statement), frequency(passage)
    if own is None or theirs is None:
        return False
    return own[0] > APART * theirs[1] or (own[1] * APART < theirs[0])


def opposite_advice(statement: str, passage: str, before: str = "", near: bool = True) -> str | None:
    """Return "advice" or "urgency" if one allows what the other forbids, or puts off what the other calls urgent."""
    said, known = _sides(statement), _sides(passage)
    if said["hedges"] or known["hedges"]:
        return None
    if known["urgent"] and not known["condition"] and said["delays"] and not (said["urgent"] or said["no_delay"]):
        return "urgency"
    theirs = subject(f"{before} {passage}" if _PRONOUN.search(passage) else passage)
    if (near or subject(statement) & theirs) and (
        (said["permits"] and not said["forbids"] and known["forbids"] and not known["permits"])
        or (said["forbids"] and not said["permits"] and known["permits"] and not known["forbids"])
    ):
        return "advice"
    return None


def _sides(text: str) -> dict[str, Any]:
    return {name: pattern.search(text) for name, pattern in _patterns().items()}


def subject(text: str) -> set[str]:
    """Return the words of a text that can name its subject: at least five letters, no frequent word, without an ending s."""
    common = _patterns()["common"]
    return {word.removesuffix("s") for word in _WORD.findall(text.lower()) if not common.fullmatch(word)}
