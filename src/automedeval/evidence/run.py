"""Check the responses of cases: which numbers differ from the reference, or else from books."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from automedeval.evidence.numbers import differences
from automedeval.evidence.sentences import spans
from automedeval.records import Case, CheckedResponse, JsonObject, patient_question
from automedeval.records.language import told_english
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
    question: str, answer: str, reference: str, passages: Sequence[Evidence] = ()
) -> tuple[list[JsonObject], str | None]:
    """Return the numbers of an answer that differ, the largest factor first; and why none was looked for.

    They are compared with the reference, "" if there is none; those of a kind that it lacks with passages. Of these texts, one
    that is not English is left out.

    A mark has the `factor`, the `kind`, the number's place in the answer (`start`, `end`), its `sentence`, and that of the
    nearest number (`passage`) in its `source`, each sentence in three parts: before the number, the number, and behind it.
    """
    sources = [Evidence(reference, REFERENCE), *passages]
    texts = [source.text for source in sources]
    if not any(texts):
        return [], NO_EVIDENCE
    # In English the words that forbid are known.
    beside = question, " ".join([question, answer, *texts])
    texts = [text if told_english(text, *beside) else "" for text in texts]
    if not (told_english(answer, *beside) and any(texts)):
        return [], LANGUAGE
    marks: dict[tuple, JsonObject] = {}  # one shows all numbers of a kind, `low` and `high`
    for difference in differences(answer, texts[0], texts[1:]):
        number = difference.number
        source = sources[difference.nearest.source]
        mark = {
            "factor": round(difference.factor, 2),
            "kind": number.kind,
            "start": number.start,
            "end": number.end,
            "sentence": number.parts(answer),
            "passage": difference.nearest.parts(source.text),
            "source": source.source,
        }
        marks.setdefault(number[:3], mark)
    return list(marks.values()), None


def in_words(mark: Mapping) -> str:
    """Return "12 g instead of 4 g" for a mark of `marked_numbers`."""
    return f"{mark['sentence'][1]} instead of {mark['passage'][1]}"


def reference_of(case: Case) -> str:
    """Return the reference of a case, "" if it has none."""
    return (case.reference or "").strip()


def passages_beside(text: str, search: Search) -> list[Evidence]:
    """Return the passages of books that are nearest to the sentences of a text, each once.

    `search` finds passages of books, each with `text`, `book` and `section`.
    """
    asked = [": ".join(filter(None, (above, text[start:end]))) for start, end, above in spans(text)]
    evidence = []
    for passage in chain.from_iterable(search(asked)):
        source = ", ".join(filter(None, (passage.book, passage.section)))
        evidence.append(Evidence(passage.text, source))
    return list(dict.fromkeys(evidence))


def check_cases(
    cases: Sequence[Case],
    done: set[tuple],
    digests: Mapping[str, str],
    kind: str,
    settings: str,
    search: Search | None,
) -> Iterator[CheckedResponse]:
    """Yield what was found of every response that is not done, in the order of the cases.

    `digests` maps a case to that of its texts and of how numbers are read; `kind` is "books" where there is a search, else
    "reference"; `settings` is the fingerprint of the books.
    """
    for case in cases:
        for response in case.responses:
            if (case.id, response.model) in done:
                continue
            passages = passages_beside(response.text, search) if search else []
            marks, unread = marked_numbers(
                patient_question(case.question), response.text, reference_of(case), passages
            )
            yield CheckedResponse(
                case.id, response.model, kind, tuple(marks), unread,
                case_digest=digests[case.id], settings=settings,
            )  # fmt: skip
