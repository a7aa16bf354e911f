"""What may be stored of a part: every field is checked against the study, and laid out in one way only.

What a browser sends is not to be trusted, and a form that is half-filled is no answer. Messages are for the physician.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.annotation.jury_queue import Dispute, renamed, seen_from
from automedeval.annotation.study import DECISION, PREFERENCE, RESPONSES, VERDICT, Item, Study
from automedeval.records import DECISIONS, AutoMedEvalError
from automedeval.rubrics import Criterion
from automedeval.rubrics.grammar import Reading, format_verdict, parse_verdict

LONGEST = 2_000  # characters of a comment, or of the reason for skipping
LONGEST_RATIONALE = 20_000  # and of a draft: what is too long to be an answer is not lost before it is shortened
SIDES = ("1", "2", "tie")


class Invalid(AutoMedEvalError):
    """What was sent does not fit the task; the message is one plain sentence for the physician."""


def checked(
    study: Study, item: Item, order: Sequence[int], part: str, content: object, draft: bool = False
) -> dict[str, Any]:
    """Return the content of a part in the one layout in which it is stored; equal answers are equal.

    "responses": {"scores": {slot: {criterion: score}}, "comments": {slot: text}}, slots "1" … "k"; "verdict:JUDGE":
    {"scores": {criterion: score}, "tags": […], "comment": text}; "decision": {"decision": "keep" | "revise", "rationale": text,
    "scores": [by slot]}; "preference": {"choices": {criterion: "1" | "2" | "tie"}, "comment": text}. Comments and tags may be
    missing; a decision to keep has no scores.

    Args:
        order: of the assignment.
        draft: what is there has to fit, and nothing has to be there.

    Raises:
        Invalid: a field is missing, unknown, or not what the study allows.
    """
    form = _Form(draft)
    if part == RESPONSES:
        return form.responses(content, study.rubric.criteria, study.rubric.scale, len(order))
    if part == DECISION:
        return form.decision(content, study.disputes[item.case_id], order)
    if part == PREFERENCE:
        return form.preference(content, study.verdict_questions.criteria)
    assert part.startswith(VERDICT), part
    return form.verdict(content, study)


def checked_reason(reason: object) -> str:
    """Return the reason for skipping a task; raises Invalid without one, or if it is too long."""
    text = _Form(False).text(reason)
    if not text:
        raise Invalid("Please say in a few words why you skip this task.")
    return text


class _Form:
    def __init__(self, draft: bool):
        self.draft = draft

    def fields(self, content: object, known: Sequence[str]) -> Mapping[str, Any]:
        """Return a mapping after checking that it has no field but the known ones."""
        if not isinstance(content, Mapping) or any(key not in known for key in content):
            raise Invalid("The form holds a field that this task does not have.")
        return content

    def text(self, value: object, most: int = LONGEST, what: str = "text") -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise Invalid("The form holds a field that this task does not have.")
        text = value.replace("\r\n", "\n").strip()  # as forms send their lines
        most = LONGEST_RATIONALE if self.draft else most
        if len(text) > most:
            raise Invalid(f"Your {what} has {len(text):,} characters; at most {most:,} can be stored.")
        return text

    def score(self, value: object, scale: tuple[int, int]) -> int:
        if type(value) is not int or not scale[0] <= value <= scale[1]:
            raise Invalid(f"A score must be a whole number from {scale[0]} to {scale[1]}.")
        return value

    def scores(self, given: object, criteria: Sequence[Criterion], scale: tuple[int, int], whom: str) -> dict[str, int]:
        names = [criterion.name for criterion in criteria]
        given = self.fields({} if given is None else given, names)
        if len(given) < len(names) and not self.draft:
            raise Invalid(f"Please give {whom} a score on every question.")
        return {name: self.score(given[name], scale) for name in names if name in given}

    def responses(
        self, content: object, criteria: Sequence[Criterion], scale: tuple[int, int], count: int
    ) -> dict[str, Any]:
        content = self.fields(content, ("scores", "comments"))
        slots = [str(slot + 1) for slot in range(count)]
        scores = self.fields(content.get("scores") or {}, slots)
        comments = self.fields(content.get("comments") or {}, slots)
        found = {slot: self.scores(scores.get(slot), criteria, scale, f"Doctor {slot}") for slot in slots}
        texts = {slot: self.text(comments.get(slot), what=f"comment on Doctor {slot}") for slot in slots}
        return {
            "scores": {slot: given for slot, given in found.items() if given},
            "comments": {slot: text for slot, text in texts.items() if text},
        }

    def verdict(self, content: object, study: Study) -> dict[str, Any]:
        content, asked = self.fields(content, ("scores", "tags", "comment")), study.verdict_questions
        tags = content.get("tags") or []
        if not isinstance(tags, list) or any(not isinstance(tag, str) or tag not in asked.tags for tag in tags):
            raise Invalid("The form holds a tag that this task does not have.")
        return {
            "scores": self.scores(content.get("scores"), asked.criteria, asked.scale, "the verdict"),
            "tags": [tag for tag in asked.tags if tag in tags],
            "comment": self.text(content.get("comment"), what="comment"),
        }

    def preference(self, content: object, criteria: Sequence[Criterion]) -> dict[str, Any]:
        content, names = self.fields(content, ("choices", "comment")), [criterion.name for criterion in criteria]
        choices = self.fields(content.get("choices") or {}, names)
        if any(not isinstance(choice, str) or choice not in SIDES for choice in choices.values()):
            raise Invalid("A choice must be the first verdict, the second one, or neither of the two.")
        if len(choices) < len(names) and not self.draft:
            raise Invalid("Please choose on every question.")
        return {
            "choices": {name: choices[name] for name in names if name in choices},
            "comment": self.text(content.get("comment"), what="comment"),
        }

    def decision(self, content: object, dispute: Dispute, order: Sequence[int]) -> dict[str, Any]:
        content = self.fields(content, ("decision", "rationale", "scores"))
        decision, scale = content.get("decision"), dispute.rubric.scale
        if decision not in DECISIONS and not (self.draft and decision is None):
            raise Invalid("Please decide whether the verdict is kept or revised.")
        rationale = self.text(content.get("rationale"), LONGEST_RATIONALE, "verdict")
        scores = content.get("scores") or []
        if not isinstance(scores, list) or len(scores) not in (0, len(order)):
            raise Invalid("The form holds a field that this task does not have.")
        if self.draft:
            given = [None if score is None else self.score(score, scale) for score in scores]
            return {"decision": decision, "rationale": rationale, "scores": given}
        if decision == "keep":
            return {"decision": decision, "rationale": rationale, "scores": []}
        if not scores or None in scores:
            raise Invalid("Please give every doctor a score, or keep the verdict as it is.")
        given = [self.score(score, scale) for score in scores]
        self.revision(rationale, given, dispute, order)
        return {"decision": decision, "rationale": rationale, "scores": given}

    def revision(self, rationale: str, scores: Sequence[int], dispute: Dispute, order: Sequence[int]) -> None:
        """Raise Invalid unless a revision can become a training row; see `jury`, which reads it in the end."""
        if not rationale and dispute.recorded.rationale:
            raise Invalid("Please write the verdict that is to stand in the place of the old one.")
        before = seen_from(dispute.recorded, order)
        if tuple(scores) == before.scores and rationale == (before.rationale or "").strip():
            raise Invalid("Nothing is changed: please choose to keep the verdict, or revise it.")
        text = renamed(rationale, order, dispute.order).strip() or None
        by_index = dict(zip(order, scores))
        reading = Reading(True, None, text, tuple(by_index[index] for index in dispute.order))
        written = format_verdict(reading, dispute.rubric)
        again = parse_verdict(written, dispute.rubric, len(order))
        if not again.valid or format_verdict(again, dispute.rubric) != written:
            raise Invalid("The verdict holds a line that reads as scores, or a sign that programs read: leave it out.")
