"""Check the responses of cases: the numbers that differ from the evidence, and by a model the statements it contradicts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from automedeval.evidence.numbers import Number, differences
from automedeval.evidence.statements import REFERENCE, Evidence, not_asserted, spans, statements
from automedeval.records import Case, CheckedResponse, patient_question
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
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the numbers of an answer that differ from its sources, the largest factor first; and why none was looked for.

    A mark has the `factor`, the `kind`, the number's place in the answer (`start`, `end`), its `sentence`, and that of the
    nearest number (`passage`) in its `source`, each sentence in three parts: before the number, the number, and behind it.
    """
    texts = [source.text for source in sources if source.text.strip()]
    if not texts:
        return [], NO_EVIDENCE
    if not all(_is_known(text, [question, answer, *texts]) for text in (answer, " ".join(texts))):
        return [], LANGUAGE
    marks, seen = [], list[Number]()
    for difference in differences(answer, [source.text for source in sources]):
        number, source = difference.number, sources[difference.source]
        if any(same[:3] == number[:3] for same in seen):  # one mark shows it
            continue
        seen.append(number)
        mark: dict[str, Any] = {"factor": round(difference.factor, 2), "kind": number.kind}
        mark |= {"start": number.start, "end": number.end}
        mark |= {"sentence": difference.number.parts(answer)}
        mark |= {"passage": difference.nearest.parts(source.text), "source": source.source}
        marks.append(mark)
    return marks, None


def in_words(mark: Mapping[str, Any]) -> str:
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
    asked = [each.text for each in statements(case.responses[index].text) if each.unread is None]
    nearest = [each for passages in search(asked) for each in passages] if asked else []
    found = [
        Evidence(each.text, ", ".join(filter(None, (each.book, each.section)))) for each in nearest
    ]
    return list(dict.fromkeys(found))


def sentences_of(sources: Sequence[Evidence]) -> list[Evidence]:
    """Return the sentences that texts assert, each after what stands above it."""
    cut = [
        Evidence(": ".join(filter(None, [above, each.text[start:end]])), each.source)
        for each in sources
        for start, end, above in spans(each.text)
    ]
    return list(dict.fromkeys(each for each in cut if not_asserted(each.text) is None))


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
        some = [
            (case, index)
            for case in cases[start : start + CHUNK]
            for index in range(len(case.responses))
        ]
        wanted = [(case.id, case.responses[index].model) not in done for case, index in some]
        if not any(wanted):
            continue
        sources = [sources_of(case, index, kind, search) for case, index in some]
        unlabelled: Iterator[list[Any]] = iter([[] for _ in some])
        labelled = checker.check(_stated(some, sources, kind), wanted) if checker else unlabelled
        for (case, index), beside, want, findings in zip(some, sources, wanted, labelled):
            if not want or findings is None:
                continue
            response = case.responses[index]
            marks, unread = marked_numbers(patient_question(case.question), response.text, beside)
            yield CheckedResponse(
                case.id, response.model, name, kind, tuple(each.to_dict() for each in findings), tuple(marks), unread,
                {"case_digest": case.digest, "settings": settings},
            )  # fmt: skip


def _stated(
    some: Sequence[tuple[Case, int]], sources: Sequence[Sequence[Evidence]], kind: str
) -> list[tuple]:
    """Return the statements of each response, its evidence and its question, for a checker."""
    answers = []
    for (case, index), beside in zip(some, sources):
        asked, passages = statements(case.responses[index].text), sentences_of(beside)
        if not passages and kind != "none":  # nothing is known of these: they are not "not found"
            asked = [each._replace(unread=each.unread or NO_EVIDENCE) for each in asked]
        answers.append((asked, passages, patient_question(case.question)))
    return answers
