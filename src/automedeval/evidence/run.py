"""Check the responses of cases: what is missing, case by case, each response against its evidence."""

from collections.abc import Iterator, Sequence
from typing import Any

from automedeval.evidence.statements import Evidence, not_asserted, spans, statements
from automedeval.records import Case, CheckedResponse, patient_question
from automedeval.rubrics.questions import Search

CHUNK = 16  # cases that are read together; texts that share a batch change the last digits of their vectors
NO_EVIDENCE = "no evidence"


def passages_of(
    text: str, source: str, on_question: bool = True, question: str = ""
) -> list[Evidence]:
    """Return the sentences that a text asserts, each with its head and the sentence before it, the question at first."""
    cut = [head + text[start:end] for start, end, head in spans(text)]
    placed = [
        Evidence(each, source, before, on_question) for each, before in zip(cut, [question, *cut])
    ]
    return [each for each in placed if not_asserted(each.text) is None]


def evidence_of(case: Case, index: int, kind: str, search: Search | None = None) -> list[Evidence]:
    """Return what a response is checked against: the sentences of the case's "reference", or of "books"; nothing for "none".

    `search` finds passages of books, each with `text`, `book` and `section`.
    """
    if kind == "reference":
        return passages_of(
            case.reference or "", "reference", question=patient_question(case.question)
        )
    if kind == "none":
        return []
    assert search is not None  # the caller opened the books
    asked = [each.text for each in statements(case.responses[index].text) if each.unread is None]
    nearest = [each for passages in search(asked) for each in passages] if asked else []
    cut = [
        passages_of(each.text, ", ".join(filter(None, (each.book, each.section))), False)
        for each in nearest
    ]
    return list(dict.fromkeys(passage for passages in cut for passage in passages))


def check_cases(
    checker: Any,
    cases: Sequence[Case],
    kind: str,
    done: set[tuple],
    settings: str,
    search: Search | None = None,
) -> Iterator[CheckedResponse]:
    """Yield what was found of every response that is not done, in the order of the cases; `kind` is as for `evidence_of`.

    Cases are read in the same groups whether they are done or not, so that a resumed run gives the same. A response about which
    an endpoint did not answer a request is left out. `settings` is the fingerprint of the checker and the books.
    """
    for start in range(0, len(cases), CHUNK):
        some = [
            (case, index)
            for case in cases[start : start + CHUNK]
            for index in range(len(case.responses))
        ]
        wanted = [(case.id, case.responses[index].model) not in done for case, index in some]
        if not any(wanted):
            continue
        answers = []
        for case, index in some:
            asked, passages = (
                statements(case.responses[index].text),
                evidence_of(case, index, kind, search),
            )
            if (
                not passages and kind != "none"
            ):  # nothing is known of these: they are not "not found"
                asked = [each._replace(unread=each.unread or NO_EVIDENCE) for each in asked]
            answers.append((asked, passages, patient_question(case.question)))
        for (case, index), want, findings in zip(some, wanted, checker.check(answers, wanted)):
            if want and findings is not None:
                found = tuple(each.to_dict() for each in findings)
                noted = {"case_digest": case.digest, "settings": settings}
                yield CheckedResponse(
                    case.id, case.responses[index].model, checker.name, kind, found, noted
                )
