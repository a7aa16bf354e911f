"""Turn a case and a teacher's verdict into one training row: a prompt and its completion (paper section 3.1).

The prompt is the judge's prompt, the completion is the verdict in the rubric's grammar. Both are lists of chat messages, as in
TRL's prompt-completion data sets.
"""

import random

from automedeval.models.base import Messages
from automedeval.records import Case, JsonObject, RecordError, Verdict, as_shown, digest
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import ParsedAnswer, answer_columns
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.slots import Order, by_slot, renamed


def row_prompt(case: Case, order: Order, rubric: Rubric, with_reasons: bool) -> Messages:
    """Return the prompt of a training row, which shows the responses of a case in this order."""
    texts = case.texts(order)
    return judge_messages(rubric, case.question, texts, case.reference, with_reasons)


def instruction(case: Case, verdict: Verdict, rubric: Rubric, seed: int = 0) -> JsonObject:
    """Return the row of a teacher's verdict; its keys are the columns of `folder.SCHEMA`.

    If the verdict has no rationale, the prompt asks for scores alone. The seed decides, with the case's id, in which slot each
    response is shown. RecordError if the verdict is on other responses, or is not a score of the rubric's scale for each.
    """
    # Paper: the tuple is (question, two responses, reference), the figures show three doctors: the reference is the third, if
    # the teacher judged it so (recipes/distill.py).
    case = as_shown(case, verdict)
    order = list(verdict.order)
    # Paper: slots are permuted, and the doctors in the rationale renumbered; otherwise the judge learns slot = model.
    random.Random(f"{seed}:{case.id}").shuffle(order)
    rationale = verdict.rationale.strip() if rubric.rationale and verdict.rationale else ""
    shown = renamed(rationale, verdict.order, order, rubric.slot_word) if rationale else None
    place = f"case {case.id!r}: the verdict of {verdict.judge!r} by {rubric.name}"
    if rubric.scale is None or rubric.scores_criteria:
        raise RecordError(f"{place}: instructions are made of one score for each response")
    scores = by_slot(verdict.scores or (), order)
    low, high = rubric.scale
    if any(score is None or not low <= score <= high for score in scores):
        raise RecordError(f"{place}: scores must be from {low} to {high}, not {list(scores)}")
    prompt = row_prompt(case, order, rubric, bool(rationale))
    return {
        "prompt": prompt,
        "case_id": case.id,
        "teacher": verdict.teacher,
        "judge": verdict.judge,
        "quality": verdict.quality,
        "rubric": rubric.name,
        "order": order,
        "models": case.models,
        "prompt_digest": digest(prompt),
        "source": case.extra.get("source"),
        "license": case.extra.get("license"),
        **answer_columns(ParsedAnswer(True, rationale=shown, scores=scores), rubric),
    }
