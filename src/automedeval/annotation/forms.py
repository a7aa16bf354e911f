"""Sheets: what a physician is shown of one part of a task, the fields they fill in, and what those fields say.

One list of fields draws the form and reads it back, so that nothing is asked that cannot be stored, and nothing stored that was
not asked. No model and no judge is named: responses are Doctor 1 to k, verdicts are numbered by their place.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.annotation.assignment import Assignment
from automedeval.annotation.jury_queue import Seen, renamed, seen_from
from automedeval.annotation.study import DECISION, KINDS, PREFERENCE, RESPONSES, Study
from automedeval.annotation.validation import LONGEST, LONGEST_RATIONALE, Invalid
from automedeval.records import Case
from automedeval.rubrics import Criterion

MOST_BUTTONS = 11  # a scale of more values is asked for as a number
BESIDE = ("csrf", "version", "seconds", "then", "reason")  # what a form carries beside its fields
TASKS = dict(
    zip(
        KINDS,
        (
            "Rate the responses to a question, then the verdict that a judge gave on them",
            "Decide, where a judge and the verdict on record differ",
            "Compare two verdicts on the same responses",
        ),
    )
)


@dataclass(frozen=True)
class Option:
    """One answer that can be chosen: what is stored, what its button says, what it means, and the key that chooses it."""

    value: str
    text: str
    hint: str = ""
    key: str = ""


@dataclass(frozen=True)
class Field:
    """One thing that is asked.

    `path` says where its value stands in the content of the part; `kind` is "options", "number", "tags" or "text"; `slot` is
    the number of the doctor whom it is about, 0 if it is about none; `about` names that for a screen reader.
    """

    path: tuple[str, ...]
    kind: str
    label: str
    rule: str = ""
    options: tuple[Option, ...] = ()
    slot: int = 0
    about: str = ""
    required: bool = True
    limit: int = LONGEST
    bounds: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return "-".join(self.path)


@dataclass(frozen=True)
class ShownVerdict:
    """A verdict as it is shown: its reasons, and its scores as (number of the doctor, score; None where not judged)."""

    title: str
    rationale: str
    scores: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class Sheet:
    """One part of a task as a physician sees it: the case on one side, what is asked about on the other."""

    kind: str
    slug: str
    heading: str
    lead: str
    question: tuple[tuple[str, str], ...]
    responses: tuple[tuple[int, str], ...]
    verdicts: tuple[ShownVerdict, ...]
    exchanges: tuple[tuple[str, str], ...]
    fields: tuple[Field, ...]
    anchors: tuple[tuple[int, str], ...]


def slug_of(assignment: Assignment, part: str) -> str:
    """Return what stands for a part in an address; a verdict's is its place, never its judge."""
    verdicts = [name for name in assignment.parts if name not in (RESPONSES, DECISION, PREFERENCE)]
    return f"verdict-{verdicts.index(part) + 1}" if part in verdicts else part


def part_of(assignment: Assignment, slug: str) -> str | None:
    """Return the part that an address means, None if the task has none of that kind."""
    return next((part for part in assignment.parts if slug_of(assignment, part) == slug), None)


def sheet_of(study: Study, assignment: Assignment, part: str) -> Sheet:
    """Return what is shown and asked; a verdict is in it only if the part is about one."""
    case, order = study.case_of(assignment.item), shown_order(study, assignment)
    verdicts, exchanges = [], []
    anchors = study.rubric_of(assignment.item).anchors
    if part == RESPONSES:
        heading = "Rate the responses"
        lead = "Read the question, then rate each response on its own. The verdict of the judge comes afterwards."
    elif part == DECISION:
        heading = "Keep the verdict on record, or revise it"
        lead = "A judge read this case otherwise than the verdict on record. Keep that verdict, or write what it ought to say."
        dispute = study.disputes[case.id]
        verdicts.append(_shown("The verdict on record", seen_from(dispute.recorded, order)))
        if dispute.judged.valid:
            verdicts.append(_shown("The verdict that differs from it", seen_from(dispute.judged, order)))
        for message in dispute.exchanges:
            title = "Suggestion" if message.role == "suggestion" else "Review"
            exchanges.append((f"{title} {message.number}", renamed(message.text, message.order, order)))
    elif part == PREFERENCE:
        heading = "Which verdict is better?"
        lead = "Two judges read the same responses. Say for each criterion which verdict is better."
        anchors = {}
        for side, place in enumerate(assignment.order, 1):
            verdict = study.verdicts[case.id, assignment.item.judges[place]]
            verdicts.append(_shown(f"Verdict {side}", seen_from(verdict, order)))
    else:
        heading = "Rate the verdict"
        lead = "A judge gave this verdict on the responses that you rated. Rate the verdict, not the responses."
        judge = part.partition(":")[2]
        verdicts.append(_shown("The verdict", seen_from(study.verdicts[case.id, judge], order)))
        anchors = study.verdict_questions.anchors
    return Sheet(
        assignment.item.kind,
        slug_of(assignment, part),
        heading,
        lead,
        _question(case),
        tuple((slot, case.responses[index].text) for slot, index in enumerate(order, 1)),
        tuple(verdicts),
        tuple(exchanges),
        tuple(fields_of(study, assignment, part)),
        tuple(sorted(anchors.items())),
    )


def shown_order(study: Study, assignment: Assignment) -> tuple[int, ...]:
    """Return which response of the case stands in which slot.

    Of a comparison the assignment stores the sides of the judges; its responses stand in an order that follows from the study's
    seed and the item, the same for everyone.
    """
    if assignment.item.kind != "prefer":
        return tuple(assignment.order)
    order = list(range(len(study.case_of(assignment.item).responses)))
    random.Random(f"{study.seed}:{assignment.item.key}".encode("utf-8", "backslashreplace")).shuffle(order)
    return tuple(order)


def _shown(title: str, seen: Seen) -> ShownVerdict:
    return ShownVerdict(title, seen.rationale or "", tuple(enumerate(seen.scores or (), 1)))


def _question(case: Case) -> tuple[tuple[str, str], ...]:
    if isinstance(case.question, str):
        return (("Question", case.question),)
    speakers = {"user": "Patient", "assistant": "Answer", "system": "Setting"}
    return tuple((speakers.get(each["role"], each["role"].capitalize()), each["content"]) for each in case.question)


def fields_of(study: Study, assignment: Assignment, part: str) -> list[Field]:
    """Return what is asked in a part, in the order in which it is asked."""
    rubric, questions = study.rubric_of(assignment.item), study.verdict_questions
    slots = range(1, len(assignment.order) + 1)
    if part == RESPONSES:
        found = []
        for slot in slots:
            doctor = f"Doctor {slot}"
            for criterion in rubric.criteria:
                path = ("scores", str(slot), criterion.name)
                found.append(_points(path, criterion, rubric.scale, rubric.anchors, slot, doctor))
            found.append(_comment(("comments", str(slot)), "Comment", slot, doctor))
        return found
    if part == DECISION:
        keep = Option("keep", "Keep it", "The verdict on record stands as it is", "k")
        revise = Option("revise", "Revise it", "What I write below takes its place", "r")
        rule = "Points and reasons count only if you revise."
        found = [Field(("decision",), "options", "Your decision", rule, (keep, revise))]
        for slot in slots:
            criterion = Criterion(f"doctor_{slot}", "The points that the response ought to have")
            found.append(
                _points(("scores", str(slot)), criterion, rubric.scale, rubric.anchors, slot, "Revision", False)
            )
        rule = "Say why, as a verdict does. Call the responses Doctor 1, Doctor 2 and so on."
        return [*found, Field(("rationale",), "text", "Reasons", rule, required=False, limit=LONGEST_RATIONALE)]
    if part == PREFERENCE:
        sides = (
            Option("1", "Verdict 1", key="1"),
            Option("tie", "No difference", key="0"),
            Option("2", "Verdict 2", key="2"),
        )
        found = [
            Field(("choices", criterion.name), "options", words(criterion.name), criterion.description, sides)
            for criterion in questions.criteria
        ]
        return [*found, _comment(("comment",), "Comment")]
    found = [
        _points(("scores", criterion.name), criterion, questions.scale, questions.anchors)
        for criterion in questions.criteria
    ]
    if questions.tags:
        tags = tuple(Option(name, words(name), sentence) for name, sentence in questions.tags.items())
        rule = "Tick what applies, or nothing."
        found.append(Field(("tags",), "tags", "What is wrong with it", rule, tags, required=False))
    return [*found, _comment(("comment",), "Comment")]


def words(name: str) -> str:
    """Return a criterion's or tag's name as it is read: "knowledge_correctness" is "Knowledge correctness"."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _points(
    path: tuple[str, ...],
    criterion: Criterion,
    scale: tuple[int, int],
    anchors: Mapping[int, str],
    slot: int = 0,
    about: str = "",
    required: bool = True,
) -> Field:
    low, high = scale
    label, rule = words(criterion.name), criterion.description
    if high - low >= MOST_BUTTONS:
        return Field(path, "number", label, rule, (), slot, about, required, bounds=(low, high))
    options = tuple(
        Option(str(value), str(value), anchors.get(value, ""), str(value) if value < 10 else "")
        for value in range(low, high + 1)
    )
    return Field(path, "options", label, rule, options, slot, about, required, bounds=(low, high))


def _comment(path: tuple[str, ...], label: str, slot: int = 0, about: str = "") -> Field:
    return Field(path, "text", label, "", (), slot, about, False)


def first_content(study: Study, assignment: Assignment, part: str) -> dict[str, Any]:
    """Return what a form is filled with: the draft, else nothing; a revision begins as the verdict on record."""
    if part in assignment.drafts or part != DECISION:
        return dict(assignment.drafts.get(part, {}))
    seen = seen_from(study.disputes[assignment.item.case_id].recorded, shown_order(study, assignment))
    return {"rationale": seen.rationale or "", "scores": list(seen.scores or ())}


def read_form(fields: Sequence[Field], form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the content that a form's fields say; a field without a value is left out.

    Raises:
        Invalid: a field that was not asked or that comes twice, or a value that the field does not have.
    """
    known = {field.name: field for field in fields}
    content: dict[str, Any] = {}
    for name, given in form.items():
        if name in BESIDE:
            continue
        if name not in known:
            raise Invalid("This form has a field that the task does not ask for. Nothing was stored.")
        value = _value(known[name], [text for text in given if text.strip()])
        if value is not None:
            inside = content
            for key in known[name].path[:-1]:
                inside = inside.setdefault(key, {})
            inside[known[name].path[-1]] = value
    if "decision" in known:  # its scores are a list, by slot
        slots = [field.path[1] for field in fields if field.path[0] == "scores"]
        content["scores"] = [content.get("scores", {}).get(slot) for slot in slots]
    return content


def _value(field: Field, given: list[str]) -> Any:
    if not given:
        return None
    asked = f"{field.about}: {field.label}" if field.about else field.label
    allowed = [option.value for option in field.options]
    if field.kind == "tags":
        if len(set(given)) != len(given) or any(value not in allowed for value in given):
            raise Invalid(f"{asked}: this is not one of the answers. Nothing was stored.")
        return given
    if len(given) > 1:
        raise Invalid(f"{asked}: there are two answers. Nothing was stored.")
    (value,) = given
    if field.kind == "text":
        return value.strip()
    if field.bounds is not None:
        low, high = field.bounds
        if not re.fullmatch("[0-9]{1,3}", value) or not low <= int(value) <= high:
            raise Invalid(f"{asked}: a whole number from {low} to {high}. Nothing was stored.")
        return int(value)
    if value not in allowed:
        raise Invalid(f"{asked}: this is not one of the answers. Nothing was stored.")
    return value


def answer_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a form's content is the answer: a decision to keep the verdict on record has no revision."""
    if content.get("decision") == "keep":
        return {"decision": "keep"}
    return dict(content)


def values_of(fields: Sequence[Field], content: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values of the fields, by name, that say a content: what a form is filled with."""
    found = {}
    for field in fields:
        inside: Any = content
        for key in field.path:
            if isinstance(inside, list):
                inside = inside[int(key) - 1] if int(key) <= len(inside) else None
            else:
                inside = inside.get(key) if isinstance(inside, dict) else None
        values = inside if isinstance(inside, list) else [] if inside is None else [inside]
        found[field.name] = [str(value) for value in values]
    return found


def missing_in(fields: Sequence[Field], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the fields that have to be filled in and are not."""
    return [field.name for field in fields if field.required and not any(text.strip() for text in values[field.name])]
