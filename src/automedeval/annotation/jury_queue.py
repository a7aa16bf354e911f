"""What the jury is asked: mistakes without a consensus, with the discussion so far (paper, section 3.3, Figure 3).

The queue is the file that recipes/introspect.py leaves for the jury; verdicts and discussion stand in the revisions.jsonl of
the data set that the same run wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.models.base import own_text
from automedeval.records import Case, RecordError, Verdict, as_shown, read_lines
from automedeval.rubrics import Rubric
from automedeval.rubrics.rationale import permute

SAID = ("suggestion", "review")


@dataclass(frozen=True)
class Seen:
    """A verdict as a physician sees it.

    `rationale` names the doctors by the physician's slots; `scores` stand by slot, None for a response that the judge did not
    score.
    """

    rationale: str | None
    scores: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Exchange:
    """One message of a discussion: `role` is "suggestion" or "review", `number` counts from 1.

    In `text` Doctor k is the response in slot k - 1 of `order`.
    """

    role: str
    number: int
    text: str
    order: tuple[int, ...]


@dataclass(frozen=True)
class Dispute:
    """A mistake that waits for the jury.

    Args:
        line: the queue's, as it stands; its order and models are kept in the export.
        case: with the responses that the verdict on record is on: the case's own, or these and the reference.
        rubric: what the verdict on record follows.
        recorded, judged: the verdict on record, and the judge's that differs from it (which may be invalid).
        exchanges: what was said about it, in order.
    """

    line: Mapping[str, Any]
    case: Case
    rubric: Rubric
    recorded: Verdict
    judged: Verdict
    exchanges: tuple[Exchange, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """Return which responses are asked about, in the slots of the queue's line."""
        return tuple(self.line["order"])

    @property
    def decided(self) -> bool:
        """Return whether the queue holds a decision already."""
        return self.line.get("decision") is not None


def seen_from(verdict: Verdict, order: Sequence[int]) -> Seen:
    """Return a verdict as it reads with the responses in the slots of `order`: doctors renamed, scores by slot."""
    rationale = verdict.rationale and renamed(verdict.rationale, verdict.order, order)
    if verdict.scores is None:
        return Seen(rationale, None)
    known = dict(enumerate(verdict.scores))
    return Seen(rationale, tuple(known.get(index) for index in order))


def renamed(text: str, given: Sequence[int], order: Sequence[int]) -> str:
    """Return a text on the doctors in the slots `given` as it reads with the responses in the slots of `order`.

    What one side lacks stands behind all others: a text may speak of fewer responses than are shown, or of more.
    """
    own = [*given, *(index for index in order if index not in given)]
    whole = [*order, *(index for index in given if index not in order)]
    return permute(text, [own.index(index) for index in whole]) if whole else text


def read_disputes(
    queue: str, dataset: str, cases: Mapping[str, Case], rubrics: Mapping[str, Rubric]
) -> dict[str, Dispute]:
    """Read the jury's queue and what its cases are about; return the disputes by case id, in the queue's order.

    Args:
        queue: jury.jsonl.
        dataset: folder of the round, which holds revisions.jsonl.
        cases, rubrics: by id and by name.

    Raises:
        RecordError: a line on a case that is not there, that has a line already, or that the data set has no such record of.
    """
    revisions = Path(dataset) / "revisions.jsonl"
    records = {record.get("case_id"): (place, record) for place, record in read_lines(revisions)}
    found: dict[str, Dispute] = {}
    for place, line in read_lines(queue):
        case_id = line.get("case_id")
        if not isinstance(case_id, str) or case_id not in cases:
            raise RecordError(f"{place}: no case {case_id!r} among the study's cases")
        if case_id in found:
            raise RecordError(f"{place}: case {case_id!r} has a line already")
        if case_id not in records:
            raise RecordError(f"{place}: {revisions} has no record of case {case_id!r}")
        where, record = records[case_id]
        try:
            found[case_id] = _dispute(line, record, cases[case_id], rubrics)
        except RecordError as error:
            raise RecordError(f"{place}: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:  # a record that another program wrote
            raise RecordError(f"{where}: not a record of recipes/introspect.py ({error!r})") from None
    if not found:
        raise RecordError(f"{queue}: nothing waits for the jury")
    return found


def _dispute(line: Mapping[str, Any], record: Mapping[str, Any], case: Case, rubrics: Mapping[str, Rubric]) -> Dispute:
    name, models = record["rubric"], record["models"]
    if name not in rubrics:
        raise RecordError(f"its rubric {name!r} is none of {', '.join(sorted(rubrics))}")
    if rubrics[name].grammar != "score_line":
        raise RecordError(f"{name} gives choices; the page takes decisions on scores alone")
    order = line.get("order", record["order"])
    if not isinstance(order, list) or sorted(order) != sorted(record["order"]) or line.get("models", models) != models:
        raise RecordError(f"'order' and 'models' are not those of the data set: {record['order']}, {models}")
    line = {**line, "order": order, "models": models}

    def verdict(told: Mapping[str, Any], order: Sequence[int], valid: bool, error: str | None) -> Verdict:
        scores = None if told["scores"] is None else tuple(told["scores"])
        return Verdict(
            case.id, told["judge"], name, tuple(order), None, 0, valid, error, told["rationale"], scores,
            extra={"models": models},
        )  # fmt: skip

    old, judged = record["old_verdict"], record["judge_verdict"]
    recorded = verdict(old, record["order"], True, None)
    if line.get("judge") not in (None, recorded.judge):
        raise RecordError(f"is on a verdict of {line['judge']!r}, and the one on record is of {old['judge']!r}")
    shown = tuple(record["shown"] or record["order"])
    exchanges = tuple(
        Exchange(piece["role"], piece["exchange"], text, shown)
        for piece in record["exchanges"]
        if piece["role"] in SAID and (text := own_text(piece["text"] or "").strip())
    )
    return Dispute(
        line,
        as_shown(case, recorded),
        rubrics[name],
        recorded,
        verdict(judged, judged["order"], judged["valid"], judged["error"]),
        exchanges,
    )
