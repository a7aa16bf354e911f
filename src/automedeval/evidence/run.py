"""Check the responses of cases: the numbers that differ from the reference, or from passages of books."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from automedeval.evidence.numbers import differences
from automedeval.evidence.sentences import spans
from automedeval.records import Case, CheckedResponse, JsonObject, patient_question
from automedeval.records.language import is_english
from automedeval.rubrics.questions import Search

REFERENCE = "reference"  # the source of evidence that is not of books
NO_EVIDENCE = "no evidence"
LANGUAGE = "not English"


@dataclass(frozen=True)
class Evidence:
    """A text that says what is true, with its `source`: "reference", or a book and its section."""

    text: str
    source: str


def marked_numbers(
    question: str, answer: str, sources: Sequence[Evidence]
) -> tuple[list[JsonObject], str | None]:
    """Return the numbers of an answer that differ from its sources, the largest factor first; and why none was looked for.

    A mark has the `factor`, the `kind`, the number's place in the answer (`start`, `end`), its `sentence`, and that of the
    nearest number (`passage`) in its `source`, each sentence in three parts: before the number, the number, and behind it.
    """
    sources = [source for source in sources if source.text.strip()]
    texts = [source.text for source in sources]
    if not texts:
        return [], NO_EVIDENCE
    beside = " ".join([question, answer, *texts])
    if not (_is_known(answer, beside) and _is_known(" ".join(texts), beside)):
        return [], LANGUAGE
    marks: dict[tuple, JsonObject] = {}  # one shows all equal numbers
    for difference in differences(answer, texts):
        number = difference.number
        source = sources[difference.source]
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
    """Return "12 g instead of 4 g" for a mark of `marked_numbers`."""
    return f"{mark['sentence'][1]} instead of {mark['passage'][1]}"


def _is_known(text: str, beside: str) -> bool:
    """Return whether a text is in English, whose words that forbid are known; if it does not tell, those beside it may."""
    known = is_english(text)
    return (is_english(beside) if known is None else known) is True


def reference_of(case: Case) -> list[Evidence]:
    """Return the reference of a case as evidence, nothing if it has none."""
    reference = case.reference or ""
    return [Evidence(reference, REFERENCE)] if reference.strip() else []


def passages_beside(text: str, search: Search) -> list[Evidence]:
    """Return the passages of books that are nearest to the sentences of a text, each once.

    `search` finds passages of books, each with `text`, `book` and `section`.
    """
    asked = []
    for start, end, above in spans(text):
        asked.append(f"{above}: {text[start:end]}" if above else text[start:end])
    evidence: dict[Evidence, None] = {}
    for passage in itertools.chain.from_iterable(search(asked)):
        source = ", ".join(filter(None, (passage.book, passage.section)))
        evidence[Evidence(passage.text, source)] = None
    return list(evidence)


def check_cases(
    cases: Sequence[Case], done: set[tuple], settings: str, search: Search | None = None
) -> Iterator[CheckedResponse]:
    """Yield what was found of every response that is not done, in the order of the cases: beside passages, or the reference.

    `settings` is the fingerprint of the books and of how numbers are read.
    """
    for case in cases:
        for response in case.responses:
            if (case.id, response.model) in done:
                continue
            sources = passages_beside(response.text, search) if search else reference_of(case)
            marks, unread = marked_numbers(patient_question(case.question), response.text, sources)
            kind = "books" if search else REFERENCE
            about = (case.id, response.model, kind, tuple(marks), unread)
            yield CheckedResponse(*about, case_digest=case.digest, settings=settings)
