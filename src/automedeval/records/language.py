"""Read the words of a text, and tell whether a case is written in English.

Some steps read English only: baselines that count words, patterns and templates of the audit. A text is English if it has more
English function words and words of doses than frequent words of other languages and words with letters that English does not
have; a long one needs a share of the former, too, and one word of another language proves nothing. Words that are also frequent
in German, Dutch, French, Spanish, Italian or Portuguese ("in", "a", "is", "was", "or") are not counted.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from automedeval.records.package_data import packaged
from automedeval.records.questions import question_text
from automedeval.records.types import Case

LEAST = 0.02  # share of English words of a text of `LONG` words or more
LONG = 40
_WORDS = packaged("records", "language")
_FUNCTION_WORDS = frozenset(_WORDS["function_words"].split())
_OTHER_WORDS = frozenset(_WORDS["other_words"].split())
_WORD = re.compile(r"[^\W\d_]+")
# Not of English; micrograms and beta blockers are.
_OTHER_LETTER = re.compile("[^\\W\\d_a-z\u03b1-\u03c9]")
# Scripts without spaces between words: every character counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
# Vowel signs are no letters to `re`, but belong to words: without them the Hindi words for heart and lentils are the same.
_MARKS = "".join(
    letter for letter in map(chr, range(0x300, 0xFE30)) if unicodedata.category(letter)[0] == "M"
)
_ANY = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:[{_MARKS}]+[^\W_{_UNSPACED}]*)*")


def normalise(text: str) -> str:
    """Return the words of a text, case-folded, with one space between them; texts of the same words have equal results."""
    return " ".join(_ANY.findall(unicodedata.normalize("NFKC", text).casefold()))


@lru_cache(2**12)  # a reference is read beside every answer
def is_english(text: str) -> bool | None:
    """Return whether a text is English; None if its words do not tell, as of many short ones."""
    spaced = re.sub(f"[{_UNSPACED}]", r" \g<0> ", unicodedata.normalize("NFKC", text))
    words = _WORD.findall(spaced)
    english = sum(word.lower() in _FUNCTION_WORDS for word in words)
    if len(words) >= LONG and english < LEAST * len(words):
        return False
    others = sum(map(_is_other, words))
    if english > others:
        return True
    return False if others > max(english, 1) else None


def told_english(*texts: str) -> bool | None:
    """Return whether the first of these texts whose words tell is English; None if none tells."""
    return next((known for known in map(is_english, texts) if known is not None), None)


@lru_cache(2**14)
def _is_other(word: str) -> bool:
    """Return whether a word tells of another language; names and abbreviations ("Sj\u00f6gren", "IL") do not."""
    if word != word.lower():
        return False
    return word in _OTHER_WORDS or _OTHER_LETTER.search(word) is not None


def _text_of(case: Case) -> str:
    answers = [response.text for response in case.responses]
    return "\n".join([question_text(case.question), *answers])


def foreign_answers(cases: Sequence[Case]) -> list[bool]:
    """Return of each response whether it is in another language than English.

    One whose words do not tell is in the language of its question, such a question in that of its case, and such a case in that
    of the first hundred.
    """
    of_all = is_english("\n".join(map(_text_of, cases[:100])))
    foreign = []
    for case in cases:
        for response in case.responses:
            known = told_english(response.text, question_text(case.question), _text_of(case))
            foreign.append((of_all if known is None else known) is False)
    return foreign


def english_only(cases: Sequence[Case], steps: str) -> list[str]:
    """Return a note that these steps read English only, if some cases are not English; else none."""
    foreign = [case.id for case in cases if is_english(_text_of(case)) is False]
    if not foreign:
        return []
    which = f"{len(foreign)} of {len(cases)} cases are not in English, for example {foreign[0]!r}"
    return [f"{which}: {steps} read English only, and their figures may be wrong there"]
