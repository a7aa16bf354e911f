"""Draft the criteria of a case for physicians to approve: from the passages of books by a chat, or from its trusted answer.

Every criterion cites what it rests on. A chat is asked for one criterion after another, so that a checkpoint can be kept to the
allowed kinds and ids too.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from automedeval.claims.chat_checker import CUT_OFF, last_object
from automedeval.claims.statements import statements
from automedeval.models.base import Answer, Chat, Dialogue, Free, Part, Prompt, Slot
from automedeval.records import Case, CriteriaDraft, digest, question_text
from automedeval.records.language import normalise
from automedeval.records.types import MOST_CRITERIA
from automedeval.rubrics.grammar import answer_schema
from automedeval.rubrics.prompts import criteria_messages, template_fingerprint
from automedeval.rubrics.questions import Search

REFERENCE = "reference"  # the drafter that needs no model
POINTS = {"must_say": 1.0, "must_not_say": -1.0}  # of a draft; physicians weigh it
END = "nothing_more"
NO_PASSAGE, NO_REFERENCE = "no passage", "no trusted answer"
NOTHING = {True: "a trusted answer without a statement", False: "the model named none"}


def asked_digest(case: Case) -> str:
    """Return twelve hexadecimal digits over what criteria are drafted from: question and trusted answer."""
    return digest([case.question, case.reference])


def near_passages(search: Search | None, texts: Sequence[str], near: float) -> list[list[Any]]:
    """Return for each text the passages found for it, with a cosine of `near` or more; none without books."""
    if search is None:
        return [[] for _ in texts]
    return [[each for each in passages if each.score >= near] for passages in search(texts)]


def criterion_of(text: str, points: float, passage: Any = None) -> dict[str, Any]:
    """Return a criterion with its citation: a passage of a store, or the trusted answer for None."""
    citation = {"passage": None, "source": "trusted answer", "text": ""}
    if passage is not None:
        page = None if passage.page is None else f"page {passage.page}"
        source = ", ".join(filter(None, (passage.book, passage.section, page)))
        citation = {"passage": passage.id, "source": source, "text": passage.text}
    return {"criterion": text, "points": points, "tags": [], "citation": citation}


def drafts_of_references(
    cases: Sequence[Case], search: Search | None, near: float, most: int, done: Collection[tuple], settings: str
) -> Iterator[CriteriaDraft]:
    """Yield a draft for each case that is not done: what its trusted answer states, sentence by sentence, is to be said.

    What must not be said does not follow from an answer. With books, each statement cites the nearest passage.
    """
    for case in cases:
        if (case.id,) in done:
            continue
        text = case.reference or ""
        said = list({normalise(each.text): each.text for each in statements(text) if each.unread is None}.values())[
            :most
        ]
        beside = near_passages(search, said, near) if said else []
        criteria = [criterion_of(each, POINTS["must_say"], next(iter(at), None)) for each, at in zip(said, beside)]
        yield _draft(case, REFERENCE, criteria, (), settings, None if text.strip() else NO_REFERENCE)


def chat_settings(chat: Chat, store: str, near: float, most: int) -> str:
    """Return a digest of everything that changes the drafts of a chat; `store` is the fingerprint of the books."""
    return digest([1, chat.fingerprint, chat.constrains, template_fingerprint("criteria"), store, near, most])


def drafts_of_chat(
    chat: Chat,
    cases: Sequence[Case],
    search: Search | None,
    near: float,
    most: int,
    done: Collection[tuple],
    settings: str,
) -> Iterator[CriteriaDraft]:
    """Yield a draft for each case that is not done, as its dialogue ends; one for which no passage is near asks nothing.

    A case about which an endpoint did not answer a request is left out.

    Args:
        near, most: least cosine of a passage that is shown, and largest number of criteria of a case.

    Raises:
        ChatError: the chat cannot go on.
    """
    shown = list(zip(cases, near_passages(search, [question_text(case.question) for case in cases], near)))
    for case, passages in shown:
        if not passages and (case.id,) not in done:
            yield _draft(case, chat.name, [], (), settings, NO_PASSAGE)
    dialogues = (((case.id,), _dialogue(chat, case, passages, most, settings)) for case, passages in shown if passages)
    for _, draft in chat.follow(dialogues, done):
        yield draft


def estimate(chat: Chat, cases: Sequence[Case], search: Search | None, near: float, most: int) -> str:
    """Say what drafting takes at most: cases, prompts, tokens and, with prices, the cost."""
    found = near_passages(search, [question_text(case.question) for case in cases], near)
    prompts = [next(_dialogue(chat, case, at, most, "")) for case, at in zip(cases, found) if at]
    tokens, cost = chat.estimate(prompts)
    text = f"{len(cases):,} cases, {len(cases) - len(prompts):,} without a passage, at most {len(prompts) * most:,} prompts"
    text += f", about {tokens:,} prompt tokens in the first {len(prompts):,}"
    return text + (f", at most {cost * most:.2f} in cost" if cost else "")


def _draft(
    case: Case, drafter: str, criteria: list[dict], invalid: Sequence[str], settings: str, reason: str | None
) -> CriteriaDraft:
    if not criteria and reason is None and not invalid:
        reason = NOTHING[drafter == REFERENCE]
    extra = {"case_digest": asked_digest(case), "settings": settings}
    return CriteriaDraft(case.id, drafter, tuple(criteria), tuple(invalid), reason, extra)


def _dialogue(chat: Chat, case: Case, passages: Sequence[Any], most: int, settings: str) -> Dialogue:
    """Ask for one criterion after another, until there is nothing more, or an answer is none."""
    by_id = {each.id: each for each in passages}
    parts: tuple[Part, ...] = ('{"criterion": "', Free('"', json_string=True), '", "kind": "')
    parts += (Slot("kind", (*POINTS, END)), '", "passage": "', Slot("passage", tuple(by_id)), '"}')
    criteria: dict[str, dict[str, Any]] = {}
    invalid = []
    while len(criteria) < min(most, MOST_CRITERIA):
        drafted = [each["criterion"] for each in criteria.values()]
        messages = criteria_messages(question_text(case.question), passages, drafted)
        answer = yield Prompt(messages, parts if chat.constrains else None, answer_schema(parts), label="criteria")
        read = read_criterion(answer, by_id)
        if not isinstance(read, str):
            chat.accepted = True
            if read is None:
                break
            if normalise(read["criterion"]) not in criteria:
                criteria[normalise(read["criterion"])] = read
                continue
            read = "repeats a criterion"
        invalid.append(read)  # the same prompt would get the same answer
        break
    return _draft(case, chat.name, list(criteria.values()), invalid, settings, None)


def read_criterion(answer: Answer, passages: dict[str, Any]) -> dict[str, Any] | str | None:
    """Return the criterion of an answer, None if there is nothing more to name, or in words why it is none.

    Args:
        passages: those that were shown, by id.
    """
    if answer.error:
        return answer.error
    text: Any
    kind: Any
    name: Any
    if answer.values is not None:
        text, (kind, name) = answer.free or "", answer.values
        cut = answer.truncated and kind != END
    else:
        own, reply, end = last_object(answer)
        text, kind, name = (reply.get(key) for key in ("criterion", "kind", "passage"))
        cut = answer.truncated and bool(own[end:].strip("` \n"))
    if cut:
        return CUT_OFF
    if kind == END:
        return None
    if not isinstance(text, str) or not text.strip():
        return "no JSON object with a criterion at the end of the answer"
    if not isinstance(kind, str) or kind not in POINTS:
        return f"the kind {str(kind)[:40]!r} is not one of {', '.join((*POINTS, END))}"
    if not isinstance(name, str) or name not in passages:
        return f"there is no passage {str(name)[:40]!r}"
    return criterion_of(" ".join(text.split()), POINTS[kind], passages[name])
