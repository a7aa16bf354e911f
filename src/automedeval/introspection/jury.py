"""Read the jury's decisions on mistakes without a consensus, and write its queue (paper, section 3.3 and Figure 3).

In the paper one chief physician is the jury. The queue is a file, jury.jsonl, with one line for each case, to be filled in:

    {"case_id": "c1", "judge": "gpt-4", "annotator": null, "decision": null, "rationale": null, "scores": null, …}

`decision` is "keep" or "revise". For "revise", `scores` are in the order of `models`, and `rationale` names the doctors in the
slots of `order`. `digest` depends on the answers and the verdict on record; it may be missing.

The physicians' page takes the same decisions; its export in the folder DECIDED beside the queue is read with the queue.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.introspection.mistakes import Recorded
from automedeval.records import DECISIONS, RecordError, digest, read_lines
from automedeval.records.journal import write_lines
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, reads_back
from automedeval.rubrics.slots import reordered

DECIDED = "decided"  # folder beside the queue for the export of the physicians' page


@dataclass(frozen=True)
class Ruling:
    """The jury's decision on one case: "keep" or "revise", and the revised verdict in the slots of the row."""

    case_id: str
    decision: str
    reading: ParsedAnswer | None = None
    annotator: str | None = None


def read_rulings(
    path: str | Path, recorded: Mapping[str, Recorded]
) -> tuple[dict[str, Ruling], dict[str, dict[str, Any]]]:
    """Read the jury's decisions, and all lines of the file, by case id; `recorded` are the training cases by id.

    RecordError for a line on an unknown or repeated case, on another judge's verdict, or on answers or a verdict that changed;
    an unknown decision; a revision that does not fit the case, the scale or the grammar.
    """
    rulings: dict[str, Ruling] = {}
    lines: dict[str, dict[str, Any]] = {}
    for place, line in read_lines(path):
        case_id = _case_id(line, place)
        if case_id not in recorded:
            raise RecordError(f"{place}: no training case {case_id!r}")
        if case_id in lines:
            raise RecordError(f"{place}: case {case_id!r} has a line already")
        lines[case_id] = line
        if (ruling := _ruling(line, recorded[case_id], place)) is not None:
            rulings[case_id] = ruling
    return rulings, lines


def read_jury(queue: Path, recorded: Mapping[str, Recorded]) -> tuple[dict[str, Ruling], dict[str, dict[str, Any]]]:
    """Return the decisions in the queue and in the page's export beside it, which counts, and their lines, by case id."""
    rulings, filled = read_rulings(queue, recorded) if queue.exists() else ({}, {})
    if (exported := queue.parent / DECIDED / queue.name).exists():
        decisions, lines = read_rulings(exported, recorded)
        rulings, filled = rulings | decisions, filled | {case_id: lines[case_id] for case_id in decisions}
    return rulings, filled


def _case_id(line: Mapping[str, Any], place: str) -> str:
    if not isinstance(line.get("case_id"), str):
        raise RecordError(f"{place}: 'case_id' must be a case's id, not {json.dumps(line.get('case_id'))}")
    return line["case_id"]


def _digest(recorded: Recorded) -> str:
    """Return twelve hexadecimal digits over the case as shown and the verdict on record."""
    return digest([recorded.case.digest, recorded.row["completion"]])


def _ruling(line: Mapping[str, Any], recorded: Recorded, place: str) -> Ruling | None:
    decision, annotator, judge = line.get("decision"), line.get("annotator"), line.get("judge")
    if decision is None:
        return None
    if decision not in DECISIONS:
        raise RecordError(f"{place}: 'decision' must be keep, revise or null, not {json.dumps(decision)}")
    if judge not in (None, recorded.row["judge"]):
        recorded_judge = recorded.row["judge"]
        raise RecordError(
            f"{place}: the decision is on a verdict of {judge!r}, and the verdict on record is by {recorded_judge!r}"
        )
    if line.get("digest") not in (None, _digest(recorded)):
        raise RecordError(
            f"{place}: the answers of case {recorded.case.id!r} or its verdict on record changed after the line was written; "
            "delete the line, and the case is put into the queue again"
        )
    if annotator is not None and not isinstance(annotator, str):
        raise RecordError(f"{place}: 'annotator' must be a name or null, not {json.dumps(annotator)}")
    if decision == "keep":
        return Ruling(recorded.case.id, "keep", None, annotator)
    return Ruling(recorded.case.id, "revise", _reading(line, recorded, place), annotator)


def _reading(line: Mapping[str, Any], recorded: Recorded, place: str) -> ParsedAnswer:
    """Return the verdict of a line, in the slots of the row."""
    rubric, rationale, order = recorded.rubric, line.get("rationale"), line.get("order", recorded.order)
    whole = isinstance(order, list | tuple) and all(type(index) is int for index in order)
    if not whole or sorted(order) != sorted(recorded.order):
        raise RecordError(f"{place}: 'order' must hold {sorted(recorded.order)} in some order, not {json.dumps(order)}")
    if rationale is not None and not isinstance(rationale, str):
        raise RecordError(f"{place}: 'rationale' must be a text or null, not {json.dumps(rationale)}")
    rationale = (rationale or "").strip() or None if rubric.rationale else None
    scores, models = line.get("scores"), recorded.case.models
    if line.get("models") not in (None, models):
        raise RecordError(f"{place}: 'models' must be {', '.join(models)}, in this order, as in 'scores'")
    if scores is not None and (not isinstance(scores, list) or len(scores) != len(models)):
        raise RecordError(
            f"{place}: 'scores' must be a list of {len(models)}, for {', '.join(models)}, not {json.dumps(scores)}"
        )
    chosen = [scores[index] for index in order] if scores else []
    if not chosen or None in chosen:
        raise RecordError(f"{place}: a revision needs a score for every response that was shown")
    assert rubric.scale is not None  # `read_recorded` refuses a rubric without one
    low, high = rubric.scale
    if wrong := [score for score in chosen if type(score) is not int or not low <= score <= high]:
        raise RecordError(f"{place}: a score must be a whole number from {low} to {high}, not {json.dumps(wrong[0])}")
    reading = reordered(ParsedAnswer(True, None, rationale, tuple(chosen)), order, recorded.order, rubric.slot_word)
    if not reads_back(format_verdict(reading, rubric), rubric, len(order)):
        raise RecordError(f"{place}: 'rationale' holds a control token, or a line that reads as a verdict")
    return reading


def write_queue(path: Path, undecided: Sequence[Recorded], lines: Mapping[str, dict[str, Any]]) -> None:
    """Write the queue: those of the present `lines` (by case id) that were filled in, and one for each undecided case."""
    answers = ("annotator", "decision", "rationale", "scores")
    filled = {name: line for name, line in lines.items() if any(line.get(key) is not None for key in answers)}
    for recorded in undecided:
        blank = {"case_id": recorded.case.id, "judge": recorded.row["judge"]}
        blank |= dict.fromkeys(answers)
        blank |= {"order": list(recorded.order), "models": recorded.case.models, "digest": _digest(recorded)}
        open_line = lines.get(recorded.case.id, blank)
        # An empty line is replaced if the answers or the verdict changed.
        stale = open_line.get("digest") not in (None, blank["digest"])
        filled.setdefault(recorded.case.id, blank if stale else open_line)
    if filled or path.exists():
        write_lines(path, filled.values())
