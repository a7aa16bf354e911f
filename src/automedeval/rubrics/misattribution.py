"""Mark sentences of a rationale that attribute to one doctor what another one wrote.

Physicians check the attribution of every verdict (paper, section 3.1) and look at these sentences first. Such a sentence on one
doctor has numbers, quotations and content words of another response that are neither in the doctor's own response nor in the
question. Synonyms are not found, and knowledge of the judge can look like another response.
"""

import re
from dataclasses import dataclass

from automedeval.records import Case, Verdict, question_text
from automedeval.rubrics.rationale import doctors_named, split_steps
from automedeval.rubrics.rubric import TEMPLATES

ENOUGH = 2.0  # the weight from which a sentence is marked: two words, or one quotation
_NUMBER_WEIGHT = 1.5
_QUOTATION_WEIGHT = 2.0
_SENTENCE = re.compile(r"(?<=[.!?])[\"”')]?\s+(?=[\"“'(]?[A-Z0-9])|\n+")
# Clauses end at stops and at conjunctions, not at commas, because a clause on what is missing often lists it.
_CLAUSE = re.compile(
    r"[;:–—(]\s|\s(?:but|yet|though|although|however|while|whereas|which|instead|than|because|since|when|where|so)\s",
    re.I,
)
# A clause on what a response lacks, or on what is right instead, may use words of other responses.
_ABSENCE = re.compile(
    r"\b(?:no|not|never|nothing|none|nor|neither|without|cannot|hardly|silent|lack\w*|miss(?:es|ing)?|omit\w*|omission|absent|"
    r"absence|forget\w*|forgot\w*|fail\w*|ignor\w*|skip(?:s|ped)?|neglect\w*|overlook\w*|un(?:mentioned|said|answered|addressed)|"
    r"(?:left|leaves?|leaving) (?:\w+ )?(?:out|open)|should|must|ought|need(?:s|ed)?|would|could|actually|in fact|means?|"
    r"same|as (?:well|much) as|unlike|risks?|risky|unsafe|opposite)\b"
    r"|n't\b",
    re.I,
)
_QUOTATION = re.compile(r"[\"“]([^\"“”\n]{6,200})[\"”]")
_WORD = re.compile(r"[0-9]+(?:[.,/][0-9]+)*|[^\W\d_]{3,}")
_ENDINGS = re.compile(r"(?:ations?|ings?|ies|ied|ed|es|s|ly|y|e)$")
# Words that judges and doctors use of any response.
_COMMON = frozenset((TEMPLATES / "common_words.txt").read_text(encoding="utf-8").split())


@dataclass(frozen=True)
class Misattribution:
    """A sentence that attributes to the doctor `credited` what the doctor `said_by` wrote.

    Doctors are numbers k: the response in slot k - 1 of the verdict's order. `step` is the doctor of the step that holds the
    sentence, 0 for none. `evidence` holds the words, as the rationale has them.
    """

    sentence: str
    step: int
    credited: int
    said_by: int
    evidence: tuple[str, ...]
    weight: float


def misattributions(case: Case, verdict: Verdict, enough: float = ENOUGH) -> list[Misattribution]:
    """Return the marked sentences of a verdict's rationale, in their order.

    A sentence is about the doctor of its step and the doctors that it names. Clauses on what is missing or what would be right
    are ignored. If two other responses fit equally well, `said_by` is the first.

    Args:
        enough: the weight from which a sentence is marked; a content word weighs 1, a number 1.5, a quotation 2.
    """
    texts = {slot + 1: case.responses[index].text for slot, index in enumerate(verdict.order)}
    terms_of = {doctor: terms(text) for doctor, text in texts.items()}
    asked = terms(question_text(case.question))
    marked = []
    for step, text in split_steps(verdict.rationale or "").items():
        for sentence in _SENTENCE.split(text):
            about = {doctor for doctor in (step, *doctors_named(sentence)) if doctor in texts}
            # If a sentence is about several doctors, their responses count together.
            excused = asked.union(*(terms_of[doctor] for doctor in about))
            others = [doctor for doctor in texts if doctor not in about]
            if not about or not others:
                continue
            used = _claimed(sentence)
            best: tuple[float, int, tuple[str, ...]] = (0.0, 0, ())
            for other in others:
                evidence = {term: word for term, word in used.items() if term in terms_of[other] - excused}
                weight = sum(_NUMBER_WEIGHT if term[0].isdigit() else 1.0 for term in evidence)
                quoted = _quoted(sentence, texts[other], [texts[doctor] for doctor in about])
                weight += _QUOTATION_WEIGHT * len(quoted)
                if weight > best[0]:
                    best = (weight, other, (*evidence.values(), *quoted))
            if best[0] >= enough:
                credited = step if step in about else min(about)
                marked.append(Misattribution(sentence.strip(), step, credited, best[1], best[2], best[0]))
    return marked


def terms(text: str) -> set[str]:
    """Return the stems of a text's content words and its numbers."""
    return {term for term in map(_term, _WORD.findall(text)) if term}


def _term(word: str) -> str | None:
    if word[0].isdigit():
        return word.replace(",", "")
    word = word.lower()
    return None if word in _COMMON else _ENDINGS.sub("", word)[:8] or None


def _claimed(sentence: str) -> dict[str, str]:
    """Return term → word of a sentence, without its clauses on absence."""
    used: dict[str, str] = {}
    for clause in _CLAUSE.split(sentence):
        if not _ABSENCE.search(clause):
            for word in _WORD.findall(clause):
                if term := _term(word):
                    used.setdefault(term, word)
    return used


def _quoted(sentence: str, other: str, about: list[str]) -> list[str]:
    """Return what a sentence quotes from another response and not from those that it is about, `about`."""

    def plain(text: str) -> str:
        return " ".join(re.findall(r"\w+", text.lower()))

    spans = [span for span in _QUOTATION.findall(sentence) if plain(span) and plain(span) in plain(other)]
    return [span for span in spans if not any(plain(span) in plain(text) for text in about)]
