"""One item as the coordinator sees it: the case, what was asked about it, and what everybody said, under real names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.annotation.store import Answer
from automedeval.annotation.study import DECISION, PREFERENCE, RESPONSES, VERDICT, Item, Study
from automedeval.records import Case, Verdict


@dataclass(frozen=True)
class Said:
    """What one annotator stored about one thing: scores by criterion, or words in their place; a comment; and when."""

    annotator: str
    role: str
    scores: dict[str, Any]
    comment: str
    tags: tuple[str, ...]
    at: float


@dataclass(frozen=True)
class Thing:
    """A response or a verdict, and what was said about it; `note` tells who is who in its text."""

    title: str
    text: str
    note: str
    said: tuple[Said, ...]


@dataclass(frozen=True)
class View:
    """All of an item: the case's texts, then responses and verdicts with what was said, then choices and decisions."""

    case_id: str
    question: str
    reference: str | None
    things: tuple[Thing, ...]
    choices: tuple[Said, ...]


def view_of(study: Study, item: Item, answers: Sequence[Answer]) -> View:
    """Return an item with the answers about it, each put back into the order of the case's responses."""
    case = study.case_of(item)
    question = case.question
    if not isinstance(question, str):
        question = "\n\n".join(f"{message['role']}: {message['content']}" for message in question)
    things = [
        Thing(response.model, response.text, "", tuple(_about_response(answers, number)))
        for number, response in enumerate(case.responses)
    ]
    if item.kind == "jury":
        dispute = study.disputes[item.case_id]
        things += [
            _verdict("Verdict on record", dispute.recorded, case, ()),
            _verdict("Verdict of the judge", dispute.judged, case, ()),
        ]
        for exchange in dispute.exchanges:
            title = f"{exchange.role.capitalize()} {exchange.number}"
            things.append(Thing(title, exchange.text, _doctors(case, exchange.order), ()))
    for judge in item.judges:
        said = (_said(each) for each in answers if each.part == VERDICT + judge)
        things.append(_verdict(f"Verdict of {judge}", study.verdicts[item.case_id, judge], case, tuple(said)))
    choices = []
    for answer in answers:
        if answer.part == PREFERENCE:
            names = {str(side): item.judges[index] for side, index in enumerate(answer.order, 1)}
            chosen = {name: names.get(side, side) for name, side in answer.content["choices"].items()}
            choices.append(_said(answer, chosen))
        elif answer.part == DECISION:
            scores = answer.content.get("scores") or []
            given = {case.models[index]: score for index, score in zip(answer.order, scores)}
            reasons = answer.content.get("rationale") or ""
            choices.append(_said(answer, {"decision": answer.content["decision"], **given}, reasons))
    return View(case.id, question, case.reference, tuple(things), tuple(choices))


def _about_response(answers: Sequence[Answer], number: int) -> list[Said]:
    found = []
    for answer in answers:
        if answer.part == RESPONSES and number in answer.order:
            slot = str(answer.order.index(number) + 1)
            comment = answer.content.get("comments", {}).get(slot, "")
            found.append(_said(answer, answer.content["scores"].get(slot, {}), comment))
    return found


def _said(answer: Answer, scores: dict[str, Any] | None = None, comment: str | None = None) -> Said:
    content = answer.content
    return Said(
        answer.annotator,
        answer.role,
        content["scores"] if scores is None else scores,
        (content.get("comment") or "") if comment is None else comment,
        tuple(content.get("tags", ())),
        answer.at,
    )


def _verdict(title: str, verdict: Verdict, case: Case, said: tuple[Said, ...]) -> Thing:
    if not verdict.valid:
        return Thing(title, f"No verdict: {verdict.error}", "", said)
    note = _doctors(case, verdict.order)
    if verdict.scores is not None:
        told = [f"{name} {score}" for name, score in zip(case.models, verdict.scores) if score is not None]
        note = f"{note}. Scores: {', '.join(told)}"
    return Thing(title, verdict.rationale or "", note, said)


def _doctors(case: Case, order: Sequence[int]) -> str:
    return ", ".join(f"Doctor {slot} is {case.models[index]}" for slot, index in enumerate(order, 1))
