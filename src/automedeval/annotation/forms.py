"""Build the form of one part of a task, and check what is stored of it.

Models and judges are blinded: responses are Doctor 1 to k, verdicts are numbered. Nothing in a
verdict is renumbered, since no program does it in every text ("the first two doctors"): the
responses stand in the order in which its judge saw them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.annotation.assignment import Assignment
from automedeval.annotation.study import DECISION, HARM, PREFERENCE, RESPONSES, VERDICT, Study
from automedeval.annotation.validation import LONGEST_RATIONALE, Field, Invalid, Option, read_form
from automedeval.records import JsonObject, Verdict
from automedeval.records.messages import as_turns
from automedeval.records.package_data import packaged
from automedeval.records.types import each_once
from automedeval.rubrics import Criterion, Questions, Rubric
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, reads_back
from automedeval.rubrics.slots import Order, seen_from

SIDES = (
    Option("1", "Verdict 1", key="1"),
    Option("tie", "No difference", key="0"),
    Option("2", "Verdict 2", key="2"),
)
WORDS: dict[str, list[str]] = packaged("annotation", "words")  # heading and instruction


def slug_of(assignment: Assignment, part: str) -> str:
    """Return the name of a part in an address; a verdict's is its number, never its judge."""
    verdicts = [name for name in assignment.parts if name.startswith(VERDICT)]
    return f"verdict-{verdicts.index(part) + 1}" if part in verdicts else part


def sheet_of(study: Study, assignment: Assignment, part: str) -> JsonObject:
    """Return what the page shows of a part, and its form.

    A legend says who is who in a text in another order.
    """
    item = assignment.item
    order = assignment.order
    case = study.case_of(item)
    verdicts: dict[str, Verdict] = {}
    exchanges: Sequence[tuple[str, str]] = ()
    legend = ""
    rubric = study.rubric_of(item)
    questions = study.verdict_questions
    anchors: Mapping[Any, str] = meanings(rubric)
    if part == HARM:
        anchors = rubric.degree.values
    elif part == DECISION:
        dispute = study.disputes[case.id]
        verdicts["The verdict on record"] = dispute.recorded
        verdicts["The verdict that differs from it"] = dispute.judged
        exchanges, legend = dispute.exchanges, _legend(dispute.shown, order)
    elif part == PREFERENCE:
        anchors = {}
        for side, place in enumerate(order, 1):
            verdicts[f"Verdict {side}"] = study.verdicts[case.id, item.judges[place]]
    elif part != RESPONSES:
        anchors = meanings(questions)
        verdicts["The verdict"] = study.verdicts[case.id, part.removeprefix(VERDICT)]
    is_second_part = item.kind == "rate" and part != RESPONSES
    heading, lead = WORDS["verdict" if is_second_part else item.kind]
    if verdicts and part != DECISION:
        orders = (verdict.order for verdict in verdicts.values())
        order = tuple(each_once(orders))
    seen = {}
    for title, verdict in verdicts.items():
        seen[title] = (seen_from(verdict, verdict.order), _legend(verdict.order, order))
    return {
        "slug": slug_of(assignment, part),
        "question": as_turns(case.question, "question"),
        "responses": case.texts(order),
        "verdicts": seen,
        "exchanges": exchanges,
        "legend": legend,
        "fields": fields_of(study, assignment, part),
        "anchors": anchors,
        "heading": heading,
        "lead": lead,
    }


def _legend(own: Order, order: Order) -> str:
    """Say which doctor of the page each doctor of a text is; "" where they are the same."""
    others = []
    for slot, index in enumerate(own, 1):
        number = order.index(index) + 1
        if number != slot:
            others.append(f"its Doctor {slot} is Doctor {number}")
    return f"This text has other numbers: {', '.join(others)}." if others else ""


def fields_of(study: Study, assignment: Assignment, part: str) -> list[Field]:
    """Return the fields of a part: a form of a rubric for each response, or one of the questions about verdicts."""
    rubric = study.rubric_of(assignment.item)
    questions = study.verdict_questions
    if part == DECISION:
        return _decision(study, assignment, rubric)
    fields = []
    if part in (RESPONSES, HARM):
        given = "choices" if rubric.in_words else "scores"
        for slot in assignment.slots:
            doctor = f"Doctor {slot}"
            about: JsonObject = {
                "slot": slot,
                "about": doctor,
                "request": f"Please answer every question on {doctor}.",
            }
            for criterion in rubric.criteria:
                path = (given, str(slot), criterion.name)
                fields.append(_asked(path, criterion, rubric, **about))
            fields.append(_comment(("comments", str(slot)), slot=slot, about=doctor))
        return fields
    given, sides = ("choices", SIDES) if part == PREFERENCE else ("scores", ())
    for criterion in questions.criteria:
        place = (given, criterion.name)
        request = "Please answer every question."
        fields.append(_asked(place, criterion, questions, sides, request=request))
    if not sides:
        tags = tuple(Option(tag, words(tag), hint) for tag, hint in questions.tags.items())
        rule = "Tick what applies, or nothing."
        fields.append(Field(("tags",), "tags", "What is wrong with it", rule, tags))
    return [*fields, _comment(("comment",))]


def _comment(path: tuple[str, ...], **about: Any) -> Field:
    return Field(path, "text", "Comment", **about)


def _decision(study: Study, assignment: Assignment, rubric: Rubric) -> list[Field]:
    """Return the fields of the jury's decision: keep the verdict on record, or scores and reasons in its place."""
    keep = Option("keep", "Keep it", "The verdict on record stands as it is", "k")
    revise = Option("revise", "Revise it", "What I write below takes its place", "r")
    rule = "Points and reasons count only if you revise."
    request = "Please decide whether the verdict is kept or revised."
    fields = [
        Field(("decision",), "options", "Your decision", rule, (keep, revise), request=request)
    ]
    for slot in assignment.slots:
        criterion = Criterion(f"doctor_{slot}", "The points that the response ought to have")
        fields.append(_asked(("scores", str(slot)), criterion, rubric, slot=slot, about="Revision"))
    rule = "Say why, as a verdict does. Call the responses Doctor 1, Doctor 2 and so on."
    most = max(
        LONGEST_RATIONALE, len(study.disputes[assignment.item.case_id].recorded.rationale or "")
    )
    return [*fields, Field(("rationale",), "text", "Reasons", rule, limit=most)]


def _asked(
    path: tuple[str, ...],
    criterion: Criterion,
    rubric: Rubric | Questions,
    options: tuple[Option, ...] = (),
    **more: Any,
) -> Field:
    """Return the field of a criterion: one of the options, of its own words, or of the points on the scale."""
    if criterion.values:
        given = zip(criterion.words, [*map(str, range(len(criterion.values))), "x"])
        options = tuple(Option(word, words(word), key=key) for word, key in given)
    elif not options:
        assert rubric.scale is not None  # a study's reader refuses a rubric without one
        low, high = rubric.scale
        hints = meanings(rubric)
        texts = {} if hints else rubric.anchors
        points = []
        for value in range(low, high + 1):
            key = str(value) if value < 10 else ""  # "": no key chooses it
            points.append(Option(value, texts.get(value, str(value)), hints.get(value, ""), key))
        options = tuple(points)
    return Field(path, "options", words(criterion.name), criterion.description, options, **more)


def meanings(asked: Rubric | Questions) -> Mapping[int, str]:
    """Return what is shown of the meaning of points beside the rows: nothing of two points, whose buttons show it."""
    scale = asked.scale
    if scale is not None and len(asked.anchors) == 2 == scale[1] - scale[0] + 1:
        return {}
    return dict(sorted(asked.anchors.items()))


def words(name: str) -> str:
    """Return the name of a criterion or tag for display: "knowledge_correctness" becomes "Knowledge correctness"."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def first_content(study: Study, assignment: Assignment, part: str) -> JsonObject:
    """Return the initial content of a form: the draft, or for a decision the verdict on record, else nothing."""
    if part in assignment.drafts or part != DECISION:
        return dict(assignment.drafts.get(part, {}))
    dispute = study.disputes[assignment.item.case_id]
    seen = seen_from(dispute.recorded, assignment.order, dispute.rubric.slot_word)
    return {"rationale": seen.rationale or "", "scores": list(seen.scores or ())}


def read_answer(
    study: Study,
    assignment: Assignment,
    part: str,
    form: Mapping[str, Sequence[str]],
    draft: bool = False,
) -> JsonObject:
    """Return the content of the form of a part in the layout in which it is stored.

    "responses": {"scores": {slot: {criterion: score}}, "comments": {slot: text}}, slots "1" … "k"; "harm": "choices", words, in
    the place of the scores; "verdict:JUDGE": {"scores": {criterion: score}, "tags": […], "comment": text}; "decision":
    {"decision": "keep" | "revise", "rationale": text, "scores": [by slot]}; "preference": {"choices": {criterion: "1" | "2" |
    "tie"}, "comment": text}. Comments and tags may be missing; a decision to keep has no revision.

    Raises:
        Invalid: see `read_form`; or a revision that is not complete, changes nothing, or cannot become a training row.
    """
    decision = form.get("decision", ())
    if part == DECISION and "keep" in decision and not draft:
        form = {"decision": decision}  # the revision is not read
    stored = read_form(fields_of(study, assignment, part), form, draft)
    if part != DECISION:
        return stored
    stored["scores"] = scores = [stored["scores"].get(str(slot)) for slot in assignment.slots]
    if draft:
        return stored
    if stored["decision"] == "keep":
        return stored | {"scores": []}
    if None in scores:
        raise Invalid("Please give every doctor a score, or keep the verdict as it is.")
    dispute = study.disputes[assignment.item.case_id]
    order = assignment.order
    rationale = stored["rationale"]
    if not rationale and dispute.recorded.rationale:
        raise Invalid("Please write the verdict that is to stand in the place of the old one.")
    before = seen_from(dispute.recorded, order, dispute.rubric.slot_word)
    if tuple(scores) == before.scores and rationale == (before.rationale or "").strip():
        raise Invalid("Nothing is changed: please choose to keep the verdict, or revise it.")
    revised = ParsedAnswer(True, None, rationale or None, tuple(scores))
    if not reads_back(format_verdict(revised, dispute.rubric), dispute.rubric, len(order)):
        raise Invalid(
            "The verdict holds a line that reads as scores, or a sign that programs read: leave it out."
        )
    return stored
