"""Check the responses of cases: the numbers that differ from the evidence, and by a model the statements it contradicts."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from automedeval.evidence.numbers import differences
from automedeval.evidence.statements import REFERENCE, Evidence, not_asserted, spans, statements
from automedeval.records import Case, CheckedResponse, JsonObject, patient_question
from automedeval.records.language import is_english
from automedeval.rubrics.questions import Search

CHUNK = 16  # cases that are read together; texts that share a batch change the last digits of their vectors
NUMBERS = "numbers"  # the checker that compares numbers alone
TOLD = (
    40  # words by which the language of a text is told; of fewer it is that of all texts together
)
NO_EVIDENCE = "no evidence"
LANGUAGE = "not English"


def marked_numbers(
    question: str, answer: str, sources: Sequence[Evidence]
) -> tuple[list[JsonObject], str | None]:
    """Return the numbers of an answer that differ from its sources, the largest factor first; and why none was looked for.

    A mark has the `factor`, the `kind`, the number's place in the answer (`start`, `end`), its `sentence`, and that of the
    nearest number (`passage`) in its `source`, each sentence in three parts: before the number, the number, and behind it.
    """
    texts = [source.text for source in sources if source.text.strip()]
    if not texts:
        return [], NO_EVIDENCE
    if not all(_is_known(text, [question, answer, *texts]) for text in (answer, " ".join(texts))):
        return [], LANGUAGE
    marks: dict[tuple, JsonObject] = {}  # one shows all equal numbers
    for difference in differences(answer, [source.text for source in sources]):
        number, source = difference.number, sources[difference.source]
        mark = {
            "factor": round(difference.factor, 2),
            "kind": number.kind,
            "start": number.start,
            "end": number.end,
            "sentence": number.parts(answer),
            "passage": difference.nearest.parts(source.text),
            "source": source.source,
        }
        marks.setdefault((number.kind, number.low, number.high), mark)
    return list(marks.values()), None


def in_words(mark: Mapping) -> str:
    """Return "12 g for 4 g" for a mark of `marked_numbers`."""
    return f"{mark['sentence'][1]} for {mark['passage'][1]}"


def _is_known(text: str, beside: Iterable[str]) -> bool:
    """Return whether a text is in a language whose words that forbid are known; a short one is in that of those beside it."""
    letters = [letter for letter in text if letter.isalpha()]
    if 2 * sum(letter.isascii() for letter in letters) < len(letters):
        return False
    known = is_english(text, TOLD)
    return is_english(" ".join(beside), enough=1) is True if known is None else known


def sources_of(case: Case, index: int, kind: str, search: Search | None = None) -> list[Evidence]:
    """Return the texts that say what is true of a response: the "reference" of its case, passages of "books", or "none".

    `search` finds passages of books, each with `text`, `book` and `section`.
    """
    if kind == REFERENCE:
        text = case.reference or ""
        return [Evidence(text, kind)] if text.strip() else []
    if kind == "none" or search is None:
        return []
    cut = statements(case.responses[index].text)
    asked = [statement.text for statement in cut if statement.unread is None]
    evidence: dict[Evidence, None] = {}
    for passage in itertools.chain(*search(asked)) if asked else ():
        source = ", ".join(filter(None, (passage.book, passage.section)))
        evidence[Evidence(passage.text, source)] = None
    return list(evidence)


def sentences_of(sources: Sequence[Evidence]) -> list[Evidence]:
    """Return the sentences that texts assert, each after what stands above it."""
    asserted: dict[Evidence, None] = {}
    for source in sources:
        for start, end, above in spans(source.text):
            text = ": ".join(filter(None, [above, source.text[start:end]]))
            if not_asserted(text) is None:
                asserted[Evidence(text, source.source)] = None
    return list(asserted)


def check_cases(
    checker: Any,
    cases: Sequence[Case],
    kind: str,
    done: set[tuple],
    settings: str,
    search: Search | None = None,
) -> Iterator[CheckedResponse]:
    """Yield what was found of every response that is not done, in the order of the cases; `kind` is as for `sources_of`.

    Without a `checker` numbers alone are compared. Cases are read in the same groups whether they are done or not, so that a
    resumed run gives the same. A response about which an endpoint did not answer a request is left out. `settings` is the
    fingerprint of the checker and the books.
    """
    name = checker.name if checker else NUMBERS
    for start in range(0, len(cases), CHUNK):
        answers = []
        for case in cases[start : start + CHUNK]:
            answers += [(case, index) for index in range(len(case.responses))]
        wanted = [(case.id, case.responses[index].model) not in done for case, index in answers]
        if not any(wanted):
            continue
        sources = [sources_of(case, index, kind, search) for case, index in answers]
        labelled: Iterator[list | None] = iter([[] for _ in answers])
        if checker:
            labelled = checker.check(_stated(answers, sources, kind), wanted)
        for (case, index), beside, want, findings in zip(answers, sources, wanted, labelled):
            if not want or findings is None:
                continue
            response = case.responses[index]
            marks, unread = marked_numbers(patient_question(case.question), response.text, beside)
            labels = tuple(finding.to_dict() for finding in findings)
            extra = {"case_digest": case.digest, "settings": settings}
            yield CheckedResponse(
                case.id, response.model, name, kind, labels, tuple(marks), unread, extra
            )


def _stated(
    answers: Sequence[tuple[Case, int]], sources: Sequence[Sequence[Evidence]], kind: str
) -> list[tuple]:
    """Return the statements of each response, its evidence and its question, for a checker."""
    stated = []
    for (case, index), beside in zip(answers, sources):
        asked, passages = statements(case.responses[index].text), sentences_of(beside)
        if not passages and kind != "none":  # nothing is known of these: they are not "not found"
            asked = [text._replace(unread=text.unread or NO_EVIDENCE) for text in asked]
        stated.append((asked, passages, patient_question(case.question)))
    return stated
