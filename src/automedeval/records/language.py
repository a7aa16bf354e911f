"""Tell whether a case is written in English, by the share of its words that are English function words.

Some steps read English only: baselines that count words, patterns and templates of the audit. The share is measured over the
question and the responses together. Words that are also frequent in German, Dutch, French, Spanish, Italian or Portuguese
("in", "a", "is", "was", "or") are not counted. Of 1,449 English cases of six public data sets the lowest share is 0.125.
"""

import re
from collections.abc import Iterable

from automedeval.records.types import Case, question_text

LEAST = 0.08  # share of function words from which a text counts as English
ENOUGH = 20  # words; fewer cannot be told
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """about after also and any are as at be because been before by can could does each every from has have he her his how
        if into it its may more most must not of other our she should some such than that the their them there these they this
        those to very were what when where which while who will with without would you your""",
    )
)
_WORD = re.compile(r"[^\W\d_]+")
# Scripts without spaces between words: every character counts as a word.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def is_english(text: str) -> bool | None:
    """Return whether a text is English; None if it has too few words to tell."""
    words = _WORD.findall(_UNSPACED.sub(" x ", text).lower())
    if len(words) < ENOUGH:
        return None
    return sum(word in _FUNCTION_WORDS for word in words) >= LEAST * len(words)


def english_only(cases: Iterable[Case], steps: str) -> list[str]:
    """Return a note that these steps read English only, if some cases are not English; else none."""
    cases = list(cases)
    texts = (" ".join([question_text(case.question), *(each.text for each in case.responses)]) for case in cases)
    found = [case.id for case, text in zip(cases, texts) if is_english(text) is False]
    if not found:
        return []
    which = f"{len(found)} of {len(cases)} cases are not in English, for example {found[0]!r}"
    return [f"{which}: {steps} read English only, and their figures may be wrong there"]
