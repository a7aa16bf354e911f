"""Read the jury's decisions on mistakes without a consensus, and write its queue (paper, section 3.3 and Figure 3).

In the paper one chief physician is the jury. The queue is a file, jury.jsonl, with one line for each case:

    {"case_id": "c1", "judge": "gpt-4", "annotator": null, "decision": null, "rationale": null, "scores": null, …}

The decisions are lines of a jury.jsonl in the folder DECIDED beside the queue: an export of the physicians' page, or a copy of
the queue that somebody filled in. `decision` is "keep" or "revise". For "revise", `scores` are in the order of `models`, and
`rationale` names the doctors in the slots of `order`. `digest` depends on the answers and the verdict on record.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType

from automedeval.records import DECISIONS, JsonObject, RecordError, digest, errors_at, read_lines
from automedeval.records.journal import write_lines
from automedeval.records.types import take, without_none
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, reads_back
from automedeval.rubrics.slots import by_slot
from automedeval.study.introspection.mistakes import Recorded

QUEUE = "jury.jsonl"
DECIDED = "decided"  # the folder beside the queue, with the file of the decisions
ANSWERS = ("annotator", "decision", "rationale", "scores")  # what the jury fills in
Ruling = JsonObject


def read_jury(discussion: Path, recorded: Mapping[str, Recorded]) -> dict[str, Ruling]:
    """Read the decisions beside the queue in the folder of a discussion, by case id; a line that decides nothing is left out.

    A decision is what a record of revisions.jsonl says of it: `decided_by`, `decision`, `annotator` and `revised_verdict`.

    `recorded` are the training cases by id. RecordError for an answer in the queue itself; a line on an unknown or repeated
    case, or one that is not the queue's, as on answers or a verdict that changed; an unknown decision; a revision that does not
    fit the case, the scale or the grammar.
    """
    queue = discussion / QUEUE
    decided = discussion / DECIDED / QUEUE
    for place, line in read_lines(queue) if queue.exists() else ():
        if any(line.get(name) is not None for name in ANSWERS):
            raise RecordError(
                f"{place}: the queue is written anew by each run; move the file to {decided}"
            )
    rulings: dict[str, Ruling | None] = {}
    for place, line in read_lines(decided) if decided.exists() else ():
        with errors_at(place):
            case_id = take(line, "case_id", (str,))
            if case_id not in recorded:
                raise RecordError(f"no training case {case_id!r}")
            if case_id in rulings:
                raise RecordError(f"case {case_id!r} has a line already")
            rulings[case_id] = _ruling(line, recorded[case_id])
    return without_none(rulings)


def _queue_line(recorded: Recorded) -> JsonObject:
    """Return the line of a case in the queue; its digest is over the case as shown and the verdict on record."""
    return {
        "case_id": recorded.case.id,
        "judge": recorded.row["judge"],
        **dict.fromkeys(ANSWERS),
        "order": list(recorded.order),
        "models": recorded.case.models,
        "digest": digest([recorded.case.digest, recorded.row["completion"]]),
    }


def _ruling(line: JsonObject, recorded: Recorded) -> Ruling | None:
    """Return the decision of a line; None for no decision."""
    decision = line.get("decision")
    if decision is None:
        return None
    for name, queued in _queue_line(recorded).items():
        if name not in ANSWERS and line.get(name) != queued:
            raise RecordError(
                f"{name!r} is not that of the queue: the answers of case {recorded.case.id!r} or its verdict on record "
                "changed after the line was written; delete the line, and the case is put into the queue again"
            )
    if decision not in DECISIONS:
        raise RecordError(f"'decision' must be keep, revise or null, not {json.dumps(decision)}")
    annotator = take(line, "annotator", (str, NoneType), None)
    ruling = {"decided_by": "jury", "decision": decision, "annotator": annotator}
    if decision == "keep":
        return ruling
    rubric = recorded.rubric
    models = recorded.case.models
    scores = take(line, "scores", (list,))
    rationale = take(line, "rationale", (str, NoneType), None) or ""
    assert rubric.scale is not None  # `read_recorded` refuses a rubric without one
    low, high = rubric.scale
    are_on_scale = all(type(score) is int and low <= score <= high for score in scores)
    if len(scores) != len(models) or not are_on_scale:
        raise RecordError(
            f"'scores' must be a whole number from {low} to {high} for each of {', '.join(models)}, not {json.dumps(scores)}"
        )
    reason = rationale.strip() if rubric.rationale else None
    reading = ParsedAnswer(True, None, reason or None, by_slot(scores, recorded.order))
    if not reads_back(format_verdict(reading, rubric), rubric, len(models)):
        raise RecordError("'rationale' holds a control token, or a line that reads as a verdict")
    return ruling | {"revised_verdict": recorded.verdict("jury", reading)}


def write_queue(discussion: Path, disputed: Sequence[Recorded]) -> None:
    """Write the queue, a line for each case without a consensus."""
    if disputed or (discussion / QUEUE).exists():
        write_lines(discussion / QUEUE, map(_queue_line, disputed))
