"""Instructions: a case and a teacher's verdict become one row to train on, a prompt and its completion (paper section 3.1).

The prompt is the one that judging asks with, the completion is the verdict in the rubric's own grammar; both are lists of chat
messages, as TRL's prompt-completion data has them.
"""

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Any

from automedeval.records import Case, RecordError, Verdict, as_shown
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import Reading, format_verdict, parse_verdict
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.rationale import permute

COLUMNS = (
    "prompt",
    "completion",
    "case_id",
    "teacher",
    "judge",
    "quality",
    "rubric",
    "order",
    "models",
    "prompt_digest",
    "source",
    "license",
)


def instruction(
    case: Case,
    verdict: Verdict,
    rubric: Rubric,
    teacher: str,
    quality: str | None = None,
    seed: int = 0,
    reference_as_response: bool | None = None,
) -> dict[str, Any]:
    """Return the row of one judged case; its keys are COLUMNS.

    A verdict without a rationale becomes a prompt that asks for scores or choices alone, and a completion of just those.

    Args:
        teacher, quality: what the row records beside the verdict.
        seed: with the case's id it decides in which slot each response is shown.
        reference_as_response: whether the reference is to be one of the responses; None takes each verdict as it was given.

    Raises:
        RecordError: the verdict does not fit the case or the rubric, or was not given as `reference_as_response` asks.
    """
    given, case = case, as_shown(case, verdict)
    shown = given is not case
    # Paper: the tuple is (question, two responses, reference), the figures show three doctors. The reference is then the third
    # response, which is how the teacher has to have judged it: a score that nobody gave cannot be made up here.
    if reference_as_response is not None and shown != reference_as_response:
        raise RecordError(
            f"case {case.id!r}: the teacher {teacher!r} was {'' if shown else 'not '}shown the reference as a response; "
            f"distill with --reference_as_response {str(reference_as_response).lower()}, or leave the option out here"
        )
    order = verdict.order
    if not order or len(set(order)) < len(order) or not set(order) <= set(range(len(case.responses))):
        raise RecordError(f"case {case.id!r}: the order {list(order)} does not fit its {len(case.responses)} responses")
    # Paper: slots are permuted, and the rationale's names with them, or the judge learns slot = model.
    turn = list(range(len(order)))
    random.Random(f"{seed}:{case.id}".encode("utf-8", "backslashreplace")).shuffle(turn)
    order = [order[slot] for slot in turn]
    rationale = verdict.rationale.strip() if rubric.rationale and verdict.rationale else ""
    reading = _reading(case, verdict, rubric, order, permute(rationale, turn) if rationale else None)
    texts = [case.responses[index].text for index in order]
    prompt = judge_messages(rubric, case.question, texts, case.reference, rationale=bool(rationale))
    values = (
        prompt,
        [{"role": "assistant", "content": format_verdict(reading, rubric)}],
        case.id,
        teacher,
        verdict.judge,
        quality,
        rubric.name,
        order,
        case.models,
        hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:12],
        case.extra.get("source"),
        case.extra.get("license"),
    )
    return dict(zip(COLUMNS, values))


def reads_back(row: dict[str, Any], rubric: Rubric) -> bool:
    """Return whether a row's completion parses, and says again what it was made of.

    A rationale that quotes a control token or a score line of its own would teach an answer that nobody can read.
    """
    text = row["completion"][0]["content"]
    reading = parse_verdict(text, rubric, len(row["order"]))
    return reading.valid and format_verdict(reading, rubric) == text


def _reading(case: Case, verdict: Verdict, rubric: Rubric, order: Sequence[int], rationale: str | None) -> Reading:
    """Return the verdict as it reads with the responses in this order."""
    models = case.models
    place = f"case {case.id!r}: the verdict of {verdict.judge!r} by {rubric.name}"
    if rubric.scale:
        scores = verdict.scores or ()
        if len(scores) != len(models):
            raise RecordError(f"{place} has {len(scores)} scores for {len(models)} responses")
        values = tuple(scores[index] for index in order)
        low, high = rubric.scale
        if any(value is None or not low <= value <= high for value in values):
            raise RecordError(f"{place}: scores must be from {low} to {high}, not {list(values)}")
        return Reading(True, rationale=rationale, scores=values)
    words = {models[index]: letter for index, letter in zip(order, "ab")} | {"tie": "tie", "neither": "neither"}
    choices = {name: words.get(choice) for name, choice in (verdict.choices or {}).items()}
    if set(choices) != set(rubric.output_criteria) or not set(choices.values()) <= set(rubric.choices):
        raise RecordError(f"{place}: its choices {verdict.choices} do not fit the rubric's criteria and choices")
    return Reading(True, rationale=rationale, choices=choices)
