"""Read the mistakes that the jury decides about, with their discussions (paper, section 3.3, Figure 3).

The queue is the jury.jsonl of recipes/introspect_discuss.py; verdicts and discussions are in the revisions.jsonl beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automedeval.records import (
    Case,
    RecordError,
    Verdict,
    as_shown,
    errors_at,
    foreign_errors_at,
    read_lines,
)
from automedeval.records.thoughts import own_text
from automedeval.records.types import take
from automedeval.rubrics import Rubric, Rubrics

REVISIONS = "revisions.jsonl"


@dataclass(frozen=True)
class Dispute:
    """A mistake that waits for the jury."""

    line: Mapping  # of the queue; its order and models are exported
    case: Case  # with the responses that were judged: its own, or these and the reference
    rubric: Rubric
    recorded: Verdict  # in the order of the line
    judged: Verdict  # the judge's, which may be invalid
    # Title, as "Suggestion 1" or "Review 1", and text of each message, in order.
    exchanges: Sequence[tuple[str, str]]
    shown: tuple[int, ...]  # which response is in which slot of these messages


def read_disputes(queue: str, cases: Mapping[str, Case], rubrics: Rubrics) -> dict[str, Dispute]:
    """Read the jury's `queue`, and revisions.jsonl beside it; return the disputes by case id, in the order of the queue.

    Raise RecordError for an empty queue, a line on an unknown or repeated case, or one without a record in revisions.jsonl.
    """
    revisions = Path(queue).with_name(REVISIONS)
    records = {record.get("case_id"): (place, record) for place, record in read_lines(revisions)}
    disputes = {}
    for place, line in read_lines(queue):
        with errors_at(place):
            case_id = take(line, "case_id", (str,))
            if case_id not in cases:
                raise RecordError(f"no case {case_id!r} among the study's cases")
            if case_id in disputes:
                raise RecordError(f"case {case_id!r} has a line already")
            if case_id not in records:
                raise RecordError(f"{revisions} has no record of case {case_id!r}")
        where, record = records[case_id]
        foreign = f"{where}: not a record of recipes/introspect_discuss.py"
        with foreign_errors_at(foreign, KeyError, TypeError, AttributeError), errors_at(place):
            disputes[case_id] = _dispute(line, record, cases[case_id], rubrics)
    if not disputes:
        raise RecordError(f"{queue}: nothing waits for the jury")
    return disputes


def _dispute(line: Mapping, record: Mapping, case: Case, rubrics: Rubrics) -> Dispute:
    name, models, order = record["rubric"], record["models"], record["order"]
    rubric = rubrics.get(name)
    if rubric is None or not rubric.sums_up:
        raise RecordError(f"its rubric {name!r} is none of those that give scores")
    about = {"case_id": case.id, "rubric": name, "models": models}
    recorded = Verdict.from_dict(record["old_verdict"] | {"order": order, "valid": True} | about)
    judged = Verdict.from_dict(record["judge_verdict"] | about)
    on_record = (recorded.judge, order, models)
    if (line.get("judge") or recorded.judge, line.get("order"), line.get("models")) != on_record:
        raise RecordError(f"'judge', 'order' and 'models' are not those on record: {on_record}")
    exchanges = []
    for piece in record["exchanges"]:
        text = own_text(piece["text"] or "").strip()
        if text and piece["role"] in ("suggestion", "review"):
            exchanges.append((f"{piece['role'].capitalize()} {piece['exchange']}", text))
    shown = tuple(record["shown"] or order)
    return Dispute(line, as_shown(case, recorded), rubric, recorded, judged, exchanges, shown)
