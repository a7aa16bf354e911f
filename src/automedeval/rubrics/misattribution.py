"""Rationales that credit a doctor with what another said: an automatic check, so that physicians see those verdicts first.

Physicians check of every verdict whether it credits each response with what stands there (paper, section 3.1). This check
counts words: where a sentence about one doctor uses numbers, quotations and content words of another's response that stand
neither in the doctor's own nor in the question, it is marked. It knows no synonyms, and a judge's own knowledge can look
like another's response: a mark says where to look first, and is no finding.
"""

import re
from dataclasses import dataclass

from automedeval.records import Case, Verdict, question_text
from automedeval.rubrics.rationale import doctors_named, split_steps

ENOUGH = 2.0  # the weight from which a sentence is marked: two words, or one quotation
_NUMBER_WEIGHT = 1.5
_QUOTATION_WEIGHT = 2.0
_SENTENCE = re.compile(r"(?<=[.!?])[\"”')]?\s+(?=[\"“'(]?[A-Z0-9])|\n+")
# Clauses end at stops and at conjunctions, not at commas: what is missing is often a list.
_CLAUSE = re.compile(
    r"[;:–—(]\s|\s(?:but|yet|though|although|however|while|whereas|which|instead|than|because|since|when|where|so)\s",
    re.I,
)
# A clause that says what a response lacks, or what is right instead, names what stands elsewhere with good reason.
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
# What judges and doctors say of anything.
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
        about above accurate accurately actual add adds advice advise advises after again all almost also
        although always and another answer answers any anything appropriate are around ask asked asks away bad
        based because become been before being best better between both brief briefly bring but call calls
        calm came can care careful case cause causes check clear clearly come comes common complete completely
        concise condition confident consider correct correctly could cover covers credit danger dangerous day
        days describe describes detail detailed did different direct directly does doctor doctors done down
        each easy effect either else empty end enough error especially even ever every everything exact
        example excellent explain explains fact false far few find first five fluent follow for found four
        friendly from full fully further gap general get gets give given gives goes going good got grammar
        great had half hard has have help helpful helps her here him his hour hours how however important
        include includes including incorrect information instead into its itself judge just keep kind know
        known knows lack large last later leave leaves left less let like likely list lists little long look
        made main make makes many matter may mean means medical medicine mention mentions might minutes
        mistake month months more most much must name names necessary need needs never next nice not nothing
        now number offer offers often one only other others otherwise out over own part patient patients
        people perhaps person place plain plan plus point points polite poor possible practical precise
        problem provide provides put question quick quite rather read reader reads ready real really reason
        reasons recommend recommends remain reply response responses result right rightly risk risks rough
        safe safely same say says see seem seems sensible sensibly sentence serious seriously set several
        shall she short should show side since single six slightly small some someone something soon sound
        start state states stay step steps still stop stops style such suggest suggests sure take takes talk
        tell tells ten text than thanks that the their them then there these they thing things this those
        though three through time times together told tone too topic toward treat treatment true try turn two
        under understand unsafe until upon use used useful uses usual usually very wait want wants warm warn
        warning warnings warns was way week weeks well were what when where whether which while who whole why
        will wise wisely with without word words would write writes written wrong year years yes yet you your
        """,
    )
)


@dataclass(frozen=True)
class Misattribution:
    """A sentence that credits a doctor with what another said.

    `step` is the doctor in whose step it stands, 0 where that is nobody's. `credited` and `said_by` are numbers as in
    "Doctor k": the response in slot k - 1 of the verdict's order. `evidence` are the words, as the rationale has them.
    """

    sentence: str
    step: int
    credited: int
    said_by: int
    evidence: tuple[str, ...]
    weight: float


def misattributions(case: Case, verdict: Verdict, enough: float = ENOUGH) -> list[Misattribution]:
    """Return the sentences of a rationale that credit a doctor with what another said, in their order.

    A sentence is about the doctors whom it names, or else about the one in whose step it stands; a step's sentence that
    names others is about them as well. Clauses that tell what is missing or what would be right are left aside.
    What two others said alike is laid to the first of them.

    Args:
        case: the case that the verdict is about.
        enough: the weight from which a sentence is marked; a content word weighs 1, a number 1.5, a quotation 2.
    """
    texts = {slot + 1: case.responses[index].text for slot, index in enumerate(verdict.order)}
    told = {doctor: terms(text) for doctor, text in texts.items()}
    asked = terms(question_text(case.question))
    found = []
    for step, text in split_steps(verdict.rationale or "").items():
        for sentence in _SENTENCE.split(text):
            about = {doctor for doctor in (step, *doctors_named(sentence)) if doctor in texts}
            # Of several doctors nobody can tell who is credited with what; their responses count together.
            excused = asked.union(*(told[doctor] for doctor in about))
            others = [doctor for doctor in texts if doctor not in about]
            if not about or not others:
                continue
            used = _claimed(sentence)
            best: tuple[float, int, tuple[str, ...]] = (0.0, 0, ())
            for other in others:
                evidence = {term: word for term, word in used.items() if term in told[other] - excused}
                weight = sum(_NUMBER_WEIGHT if term[0].isdigit() else 1.0 for term in evidence)
                quoted = _quoted(sentence, texts[other], [texts[doctor] for doctor in about])
                weight += _QUOTATION_WEIGHT * len(quoted)
                if weight > best[0]:
                    best = (weight, other, (*evidence.values(), *quoted))
            if best[0] >= enough:
                credited = step if step in about else min(about)
                found.append(Misattribution(sentence.strip(), step, credited, best[1], best[2], best[0]))
    return found


def terms(text: str) -> set[str]:
    """Return the stems of a text's content words and its numbers."""
    return {term for term in map(_term, _WORD.findall(text)) if term}


def _term(word: str) -> str | None:
    if word[0].isdigit():
        return word.replace(",", "")
    word = word.lower()
    return None if word in _COMMON else _ENDINGS.sub("", word)[:8] or None


def _claimed(sentence: str) -> dict[str, str]:
    """Return the terms of a sentence's clauses, those that speak of absence aside, as term → word."""
    used: dict[str, str] = {}
    for clause in _CLAUSE.split(sentence):
        if not _ABSENCE.search(clause):
            for word in _WORD.findall(clause):
                term = _term(word)
                if term:
                    used.setdefault(term, word)
    return used


def _quoted(sentence: str, other: str, own: list[str]) -> list[str]:
    """Return what a sentence quotes from another's response and not from the doctor's own."""

    def plain(text: str) -> str:
        return " ".join(re.findall(r"\w+", text.lower()))

    spans = [span for span in _QUOTATION.findall(sentence) if plain(span)]
    return [
        span for span in spans if plain(span) in plain(other) and not any(plain(span) in plain(text) for text in own)
    ]
