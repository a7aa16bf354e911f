"""The jury: who decides about a mistake without a consensus (paper, section 3.3: one chief physician, Figure 3).

Its queue is a file, jury.jsonl, one line for each case, answered in the file:

    {"case_id": "c1", "judge": "gpt-4", "annotator": null, "decision": null, "rationale": null, "scores": null, …}

`decision` is "keep" (the verdict on record stands) or "revise"; then `scores` stand in the order of `models`, and `rationale`
speaks of the doctors in the slots of `order`. Under a rubric with choices `choices` stands in the place of `scores`. `digest`
ties the line to the answers and the verdict that it asks about; a line without one is taken as it stands.

People's readings that were kept aside can sit on the jury: recipes/prepare_cases.py --verdicts_from ratings makes one rater's
reading the verdict on record, and writes what the others said in this layout, undecided.
"""

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.dataset.instructions import instruction
from automedeval.introspection.mistakes import Mistake, Recorded, in_order
from automedeval.records import DECISIONS, RATER, RecordError, Verdict, read_lines
from automedeval.records.journal import write_whole
from automedeval.rubrics.grammar import Reading, format_verdict, parse_verdict

KEYS = ("case_id", "judge", "annotator", "decision", "rationale", "scores")


@dataclass(frozen=True)
class Ruling:
    """What the jury decided about one case: to keep the verdict on record, or to revise it to a reading in its row's slots."""

    case_id: str
    decision: str
    reading: Reading | None = None
    annotator: str | None = None

    def to_dict(self) -> dict[str, Any]:
        reading = self.reading
        told = (
            None if reading is None else [reading.rationale, reading.scores and list(reading.scores), reading.choices]
        )
        return {"decision": self.decision, "annotator": self.annotator, "reading": told}


def read_rulings(
    path: str | Path, recorded: Mapping[str, Recorded], seed: int = 0
) -> tuple[dict[str, Ruling], dict[str, dict]]:
    """Read what the jury has decided, and its lines as they stand; lines that are undecided decide nothing.

    Args:
        recorded: the training cases by id.
        seed: the data set's; it tells the slots of which raters' readings speak that name none.

    Raises:
        RecordError: a line on a case that is not there or that has a line already, on another judge's verdict, on answers or a
            verdict that have changed since, with a decision that is none, or with a revision that does not fit the case, the
            scale or the grammar.
    """
    rulings, lines = {}, {}
    for place, line in read_lines(path):
        case_id = _case_id(line, place)
        if case_id not in recorded:
            raise RecordError(f"{place}: no training case {case_id!r}")
        if case_id in lines:
            raise RecordError(f"{place}: case {case_id!r} has a line already")
        lines[case_id] = line
        if (ruling := _ruling(line, recorded[case_id], place, seed)) is not None:
            rulings[case_id] = ruling
    return rulings, lines


def _case_id(line: Mapping[str, Any], place: str) -> str:
    if not isinstance(line.get("case_id"), str):
        raise RecordError(f"{place}: 'case_id' must be a case's id, not {json.dumps(line.get('case_id'))}")
    return line["case_id"]


def _digest(recorded: Recorded) -> str:
    """Return twelve hexadecimal digits over what the jury is asked about: the case as shown, and the verdict on record."""
    return hashlib.sha256(json.dumps([recorded.case.digest, recorded.row["completion"]]).encode()).hexdigest()[:12]


def _ruling(line: Mapping[str, Any], recorded: Recorded, place: str, seed: int) -> Ruling | None:
    decision, annotator, judge = line.get("decision"), line.get("annotator"), line.get("judge")
    if decision is None:
        return None
    if decision not in DECISIONS:
        raise RecordError(f"{place}: 'decision' must be keep, revise or null, not {json.dumps(decision)}")
    if judge not in (None, recorded.row["judge"]):
        given = recorded.row["judge"]
        raise RecordError(f"{place}: decides on a verdict of {judge!r}, and the one on record is of {given!r}")
    if line.get("digest") not in (None, _digest(recorded)):
        raise RecordError(
            f"{place}: the answers of case {recorded.case.id!r}, or its verdict on record, have changed since the jury was "
            "asked; take the line out, and the case is asked about anew"
        )
    if annotator is not None and not isinstance(annotator, str):
        raise RecordError(f"{place}: 'annotator' must be a name or null, not {json.dumps(annotator)}")
    if decision == "keep":
        return Ruling(recorded.case.id, "keep", None, annotator)
    order = line.get("order", recorded.order)
    if "order" not in line and str(judge).startswith(RATER) and recorded.rubric.scale:
        # A reading that was kept aside before such lines named their slots: these are the slots before the shuffle.
        order = given_order(recorded, seed)
    reading = _reading(line, recorded, order, place)
    if reading is None:
        raise RecordError(f"{place}: revises without a score for every response that was shown")
    return Ruling(recorded.case.id, "revise", reading, annotator)


def _reading(line: Mapping[str, Any], recorded: Recorded, order: Sequence[int], place: str) -> Reading | None:
    """Return what a line says of the case, in the slots of its row; None where a score is missing."""
    rubric, rationale = recorded.rubric, line.get("rationale")
    whole = isinstance(order, list | tuple) and all(type(index) is int for index in order)
    if not whole or sorted(order) != sorted(recorded.order):
        raise RecordError(f"{place}: 'order' must hold {sorted(recorded.order)} in some order, not {json.dumps(order)}")
    if rationale is not None and not isinstance(rationale, str):
        raise RecordError(f"{place}: 'rationale' must be a text or null, not {json.dumps(rationale)}")
    rationale = (rationale or "").strip() or None if rubric.rationale else None
    if not rubric.scale:
        reading = Reading(True, None, rationale, choices=_choices(line.get("choices"), recorded, place))
    else:
        scores, models = line.get("scores"), recorded.case.models
        if scores is None:
            return None
        if not isinstance(scores, list) or len(scores) != len(models):
            raise RecordError(
                f"{place}: 'scores' must be a list of {len(models)}, for {', '.join(models)}, not {json.dumps(scores)}"
            )
        chosen = [scores[index] for index in order]
        if None in chosen:
            return None
        low, high = rubric.scale
        for score in chosen:
            if type(score) is not int or not low <= score <= high:
                raise RecordError(
                    f"{place}: a score must be a whole number from {low} to {high}, not {json.dumps(score)}"
                )
        reading = in_order(Reading(True, None, rationale, tuple(chosen)), order, recorded.order)
    text = format_verdict(reading, rubric)
    again = parse_verdict(text, rubric, len(order))
    if not again.valid or format_verdict(again, rubric) != text:
        raise RecordError(f"{place}: 'rationale' holds a control token, or a line that reads as a verdict")
    return reading


def _choices(given: Any, recorded: Recorded, place: str) -> dict[str, str]:
    models = [recorded.case.models[index] for index in recorded.order]
    words = {**dict(zip(models, "ab")), "tie": "tie", "neither": "neither"}
    allowed = {word: letter for word, letter in words.items() if letter in recorded.rubric.choices}
    names = recorded.rubric.output_criteria
    fits = isinstance(given, dict) and set(given) == set(names)
    if not fits or not all(isinstance(choice, str) and choice in allowed for choice in given.values()):
        raise RecordError(
            f"{place}: 'choices' must give each of {', '.join(names)} one of {', '.join(allowed)}, not {json.dumps(given)}"
        )
    return {name: allowed[given[name]] for name in names}


def read_readings(
    path: str | Path, recorded: Mapping[str, Recorded], needed: Iterable[str], seed: int, round_number: int
) -> tuple[dict[str, Ruling], Counter]:
    """Let kept-aside readings decide: for each case that needs it one reading is drawn, and is what the verdict becomes.

    A reading with the scores on record keeps the verdict. The draw depends on case, seed and round, not on the file's order.

    Args:
        recorded: the training cases by id; lines on others are passed over.
        needed: ids of the cases that the jury has to decide about.
        seed: the data set's.

    Returns:
        The rulings; how many of the needed cases' readings were "usable" and "unusable" (without a score of some response).
    """
    found: dict[str, dict[str, Reading]] = defaultdict(dict)
    counts, needed = Counter(), set(needed)
    for place, line in read_lines(path):
        case_id, annotator = _case_id(line, place), line.get("annotator")
        if case_id not in recorded:
            continue
        if not recorded[case_id].rubric.scale:
            raise RecordError(f"{place}: readings have scores, and {recorded[case_id].rubric.name} gives choices")
        if not isinstance(annotator, str) or annotator in found[case_id]:
            raise RecordError(
                f"{place}: 'annotator' must be a rater who has no reading of {case_id!r} yet, not {annotator!r}"
            )
        order = line.get("order") or given_order(recorded[case_id], seed)
        reading = _reading(line, recorded[case_id], order, place)
        if case_id in needed:
            counts["unusable" if reading is None else "usable"] += 1
        if reading is not None:
            found[case_id][annotator] = reading
    rulings = {}
    for case_id in needed & {case_id for case_id, readings in found.items() if readings}:
        rng = random.Random(f"{seed}:{round_number}:{case_id}".encode("utf-8", "backslashreplace"))
        annotator = rng.choice(sorted(found[case_id]))
        reading = found[case_id][annotator]
        keeps = reading.scores == recorded[case_id].reading.scores
        rulings[case_id] = Ruling(case_id, "keep" if keeps else "revise", None if keeps else reading, annotator)
    return rulings, counts


def given_order(recorded: Recorded, seed: int) -> tuple[int, ...]:
    """Return in which slots the verdict on record was given, before its data set shuffled them with `seed`.

    Readings that were kept aside speak of the doctors in those slots, and older lines of them do not name them.
    """
    rubric, case, slots = recorded.rubric, recorded.case, sorted(recorded.order)
    scores, extra = (rubric.scale[0],) * len(case.models), {"models": case.models}
    plain = Verdict(case.id, "", rubric.name, tuple(slots), valid=True, scores=scores, extra=extra)
    turned = instruction(case, plain, rubric, "", seed=seed)["order"]
    given = [0] * len(slots)
    for slot, index in enumerate(turned):
        given[slots.index(index)] = recorded.order[slot]
    return tuple(given)


def write_queue(path: Path, undecided: Sequence[Mistake], lines: Mapping[str, dict[str, Any]]) -> None:
    """Write the queue: a line for each undecided case, beside the lines that are there; nothing that was filled in is lost.

    Args:
        lines: the lines that are there, by case id.
    """
    filled = {
        case_id: line
        for case_id, line in lines.items()
        if any(line.get(key) is not None for key in ("annotator", "decision", "rationale", "scores", "choices"))
    }
    for mistake in undecided:
        recorded = mistake.recorded
        values = (recorded.case.id, recorded.row["judge"], None, None, None, None)
        blank = dict(zip(KEYS, values)) | ({} if recorded.rubric.scale else {"choices": None})
        blank |= {"order": list(recorded.order), "models": recorded.case.models, "digest": _digest(recorded)}
        open_line = lines.get(recorded.case.id, blank)
        # What nobody has filled in asks about the answers and the verdict of today.
        stale = open_line.get("digest") not in (None, blank["digest"])
        filled.setdefault(recorded.case.id, blank if stale else open_line)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in filled.values())
    if text or path.exists():
        write_whole(path, text)
