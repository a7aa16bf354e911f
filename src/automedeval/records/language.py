"""Read the words of a text, and tell whether a case is written in English.

Some steps read English only: baselines that count words, patterns and templates of the audit. A case is English by the share of
its words that are English function words or words of doses, over the question and the responses together. Words that are also
frequent in German, Dutch, French, Spanish, Italian or Portuguese ("in", "a", "is", "was", "or") are not counted. Of 1,449
English cases of six public data sets the lowest share of function words is 0.125.
"""

import re
import unicodedata
from collections.abc import Sequence

from automedeval.records.package_data import packaged
from automedeval.records.questions import question_text
from automedeval.records.types import Case

LEAST = 0.08  # share of function words from which a text counts as English
ENOUGH = 20  # words; fewer cannot be told
_FUNCTION_WORDS = frozenset(packaged("records", "language")["function_words"].split())
_WORD = re.compile(r"[^\W\d_]+")
# Scripts without spaces between words: every character counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
# Vowel signs are no letters to `re`, but belong to words: without them the Hindi words for heart and lentils are the same.
_MARKS = "".join(
    letter for letter in map(chr, range(0x300, 0xFE30)) if unicodedata.category(letter)[0] == "M"
)
_ANY = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:[{_MARKS}]+[^\W_{_UNSPACED}]*)*")


def normalise(text: str) -> str:
    """Return the words of a text, case-folded, with one space between them; texts of the same words have equal results."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_ANY.findall(text))


def is_english(text: str, enough: int = ENOUGH) -> bool | None:
    """Return whether a text is English; None if it has too few words to tell."""
    words = _WORD.findall(re.sub(f"[{_UNSPACED}]", " x ", text).lower())
    if len(words) < enough:
        return None
    return sum(word in _FUNCTION_WORDS for word in words) >= LEAST * len(words)


def _text_of(case: Case) -> str:
    answers = [response.text for response in case.responses]
    return "\n".join([question_text(case.question), *answers])


def foreign_answers(cases: Sequence[Case]) -> list[bool]:
    """Return of each response whether it is in another language than English.

    A short one is in the language of its question, a short question in that of its case, and a short case in that of the first
    hundred.
    """
    of_all = is_english("\n".join(map(_text_of, cases[:100])))
    foreign = []
    for case in cases:
        for response in case.responses:
            texts = (response.text, question_text(case.question), _text_of(case))
            told = (known for known in map(is_english, texts) if known is not None)
            foreign.append(next(told, of_all) is False)
    return foreign


def english_only(cases: Sequence[Case], steps: str) -> list[str]:
    """Return a note that these steps read English only, if some cases are not English; else none."""
    foreign = [case.id for case in cases if is_english(_text_of(case)) is False]
    if not foreign:
        return []
    which = f"{len(foreign)} of {len(cases)} cases are not in English, for example {foreign[0]!r}"
    return [f"{which}: {steps} read English only, and their figures may be wrong there"]
