"""Read the jury's decisions on mistakes without a consensus, and write its queue (paper, section 3.3 and Figure 3).

In the paper one chief physician is the jury. The queue is a file, jury.jsonl, with one line for each case:

    {"case_id": "c1", "judge": "gpt-4", "annotator": null, "decision": null, "rationale": null, "scores": null, …}

The decisions are lines of a jury.jsonl in the folder DECIDED beside the queue: an export of the physicians' page, or a copy of
the queue that somebody filled in. `decision` is "keep" or "revise". For "revise", `scores` are in the order of `models`, and
`rationale` names the doctors in the slots of `order`. `digest` depends on the answers and the verdict on record; it may be
missing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from automedeval.introspection.mistakes import Recorded
from automedeval.records import DECISIONS, RecordError, digest, read_lines
from automedeval.records.journal import write_lines
from automedeval.records.types import take
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, reads_back
from automedeval.rubrics.slots import reordered

QUEUE, DECIDED = "jury.jsonl", "decided"  # a file, and the folder beside it with the file of the decisions
ANSWERS = ("annotator", "decision", "rationale", "scores")  # what the jury fills in


@dataclass(frozen=True)
class Ruling:
    """The jury's decision on one case: "keep" or "revise", and the revised verdict in the slots of the row."""

    case_id: str
    decision: str
    reading: ParsedAnswer | None = None
    annotator: str | None = None


def read_rulings(path: str | Path, recorded: Mapping[str, Recorded]) -> dict[str, Ruling]:
    """Read the jury's decisions by case id, a line that decides nothing left out; `recorded` are the training cases by id.

    RecordError for a line on an unknown or repeated case, on another judge's verdict, or on answers or a verdict that changed;
    an unknown decision; a revision that does not fit the case, the scale or the grammar.
    """
    rulings: dict[str, Ruling | None] = {}
    for place, line in read_lines(path):
        try:
            case_id = take(line, "case_id", (str,))
            if case_id not in recorded:
                raise RecordError(f"no training case {case_id!r}")
            if case_id in rulings:
                raise RecordError(f"case {case_id!r} has a line already")
            rulings[case_id] = None if line.get("decision") is None else _ruling(line, recorded[case_id])
        except RecordError as error:
            raise RecordError(f"{place}: {error}") from None
    return {case_id: ruling for case_id, ruling in rulings.items() if ruling}


def read_jury(discussion: Path, recorded: Mapping[str, Recorded]) -> dict[str, Ruling]:
    """Return the decisions beside the queue in the folder of a discussion, by case id; RecordError for some in the queue."""
    queue, decided = discussion / QUEUE, discussion / DECIDED / QUEUE
    for place, line in read_lines(queue) if queue.exists() else ():
        if any(line.get(name) is not None for name in ANSWERS):
            raise RecordError(f"{place}: the queue is written anew by each run; move the file to {decided}")
    return read_rulings(decided, recorded) if decided.exists() else {}


def _digest(recorded: Recorded) -> str:
    """Return twelve hexadecimal digits over the case as shown and the verdict on record."""
    return digest([recorded.case.digest, recorded.row["completion"]])


def _ruling(line: Mapping[str, Any], recorded: Recorded) -> Ruling:
    """Return the decision of a line, a revised verdict in the slots of the row."""
    case, rubric, judge, decision = recorded.case, recorded.rubric, recorded.row["judge"], line["decision"]
    annotator, rationale = (take(line, name, (str, NoneType), None) for name in ("annotator", "rationale"))
    if decision not in DECISIONS:
        raise RecordError(f"'decision' must be keep, revise or null, not {json.dumps(decision)}")
    if line.get("judge") not in (None, judge):
        raise RecordError(f"the decision is on a verdict of {line['judge']!r}, and the one on record is by {judge!r}")
    if line.get("digest") not in (None, _digest(recorded)):
        raise RecordError(
            f"the answers of case {case.id!r} or its verdict on record changed after the line was written; delete the line, "
            "and the case is put into the queue again"
        )
    if decision == "keep":
        return Ruling(case.id, "keep", None, annotator)
    order, scores = line.get("order", recorded.order), line.get("scores")
    whole = isinstance(order, list | tuple) and all(type(index) is int for index in order)
    if not whole or sorted(order) != sorted(recorded.order):
        raise RecordError(f"'order' must hold {sorted(recorded.order)} in some order, not {json.dumps(order)}")
    models = ", ".join(case.models)
    if line.get("models") not in (None, case.models):
        raise RecordError(f"'models' must be {models}, in this order, as in 'scores'")
    if scores is not None and (not isinstance(scores, list) or len(scores) != len(case.models)):
        raise RecordError(f"'scores' must be a list of {len(case.models)}, for {models}, not {json.dumps(scores)}")
    chosen = [scores[index] for index in order] if scores else []
    if not chosen or None in chosen:
        raise RecordError("a revision needs a score for every response that was shown")
    assert rubric.scale is not None  # `read_recorded` refuses a rubric without one
    low, high = rubric.scale
    if wrong := [score for score in chosen if type(score) is not int or not low <= score <= high]:
        raise RecordError(f"a score must be a whole number from {low} to {high}, not {json.dumps(wrong[0])}")
    rationale = (rationale or "").strip() or None if rubric.rationale else None
    reading = reordered(ParsedAnswer(True, None, rationale, tuple(chosen)), order, recorded.order, rubric.slot_word)
    if not reads_back(format_verdict(reading, rubric), rubric, len(order)):
        raise RecordError("'rationale' holds a control token, or a line that reads as a verdict")
    return Ruling(case.id, "revise", reading, annotator)


def write_queue(discussion: Path, disputed: Sequence[Recorded]) -> None:
    """Write the queue, a line for each case without a consensus."""
    lines = []
    for recorded in disputed:
        line = {"case_id": recorded.case.id, "judge": recorded.row["judge"], **dict.fromkeys(ANSWERS)}
        lines.append(
            line | {"order": list(recorded.order), "models": recorded.case.models, "digest": _digest(recorded)}
        )
    if lines or (discussion / QUEUE).exists():
        write_lines(discussion / QUEUE, lines)
