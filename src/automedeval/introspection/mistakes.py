"""Find a judge's mistakes: training cases on which its verdict differs from the one on record (paper, Algorithm 2, lines 5, 6).

A row of an instruction data set holds the verdict on record of one case. The judge must have judged every training case;
several orders or runs count as their mean.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from automedeval.judges.requests import Request
from automedeval.records import Case, RecordError, Verdict, as_shown, digest, read_placed
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import ParsedAnswer, parse_verdict
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.slots import as_recorded, by_slot, seen_from
from automedeval.stats.agreement import SAME, relation_of

KINDS = ("relations", "scores", "choices", "invalid")
LONGEST_RAW = 2000  # characters that are shown of an answer that could not be parsed


@dataclass(frozen=True)
class Recorded:
    """One training row with its case and its verdict.

    Args:
        row: the row of the data set.
        original: the case as in its file.
        case: the case with the responses that were judged: its own, or these and the reference.
        rubric: the rubric of the verdict.
        reading: the verdict on record, in the slots of `row["order"]`.
    """

    row: dict[str, Any]
    original: Case
    case: Case
    rubric: Rubric
    reading: ParsedAnswer

    @property
    def order(self) -> tuple[int, ...]:
        """Return which response stands in which slot of the row."""
        return tuple(self.row["order"])

    @property
    def scores(self) -> dict[int, int]:
        """Return index of the response → score on record; empty under a rubric with choices."""
        return dict(zip(self.order, self.reading.scores or ()))

    @property
    def choices(self) -> dict[str, str]:
        """Return criterion → a model's name, "tie" or "neither", as on record; empty under a rubric with scores."""
        return as_recorded(self.reading, self.order, self.case.models)["choices"] or {}

    def requests(self, runs: int = 1) -> list[Request]:
        """Return the requests whose prompt is the row's own: the same responses in the same slots (Algorithm 2, line 5)."""
        slots, case = self.order, self.case
        pair = (case.models[min(slots)], case.models[max(slots)]) if self.rubric.mode == "pairwise" else None
        asks, completion = self.reading.rationale is not None, self.row["completion"][0]["content"]
        return [Request(case, slots, pair, run, asks, self.original, completion=completion) for run in range(runs)]


@dataclass(frozen=True)
class Mistake:
    """A training case on which the judge's verdict differs from the record.

    Args:
        recorded: the row with the verdict on record.
        kind: "invalid": no verdict of the judge is valid; "relations": the order of a pair of responses differs; "scores": only
            scores differ; "choices": a choice about the pair differs.
        judged: the judge's verdict; of several the one with the largest difference.
    """

    recorded: Recorded
    kind: str
    judged: Verdict

    @property
    def case_id(self) -> str:
        return self.recorded.case.id

    def judged_from(self, order: Sequence[int]) -> dict[str, Any]:
        """Return the judge's verdict with the responses in this order: rationale and scores by slot, or error and raw text.

        The score of a response that the judge was not shown is None.
        """
        verdict = self.judged
        if not verdict.valid:
            return {"rationale": None, "scores": None, "error": verdict.error, "raw": verdict.raw[:LONGEST_RAW]}
        seen = seen_from(verdict, order, self.recorded.rubric.slot_word)
        return {"rationale": seen.rationale, "scores": list(seen.scores or ()), "error": None, "raw": None}

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits over the case, the verdict on record and the judge's."""
        row, verdict = self.recorded.row, self.judged
        seen = [self.recorded.case.digest, row["order"], row["completion"], verdict.order, verdict.scores]
        seen += [verdict.valid, verdict.rationale, verdict.choices, verdict.error, verdict.raw]
        return digest(seen)


@dataclass
class RoundJudge:
    """The judge of a round: its name, the fingerprint of its settings, and its verdicts by case id."""

    name: str
    settings: str | None
    verdicts: dict[str, list[Verdict]] = field(repr=False)


def read_recorded(
    rows: Iterable[dict[str, Any]], cases: Mapping[str, Case], rubrics: Mapping[str, Rubric], place: str
) -> list[Recorded]:
    """Join training rows with their cases, and parse the verdict of each; errors call the data set `place`.

    RecordError for no rows; a row whose case is missing, changed or repeated; an unknown rubric; a faulty completion.
    """
    recorded: dict[str, Recorded] = {}
    for row in rows:
        where = f"{place}: case {row['case_id']!r}"
        if row["case_id"] in recorded:
            raise RecordError(f"{where} stands in two training rows")
        if row["case_id"] not in cases:
            raise RecordError(f"{where} is in no file of --cases")
        if row["rubric"] not in rubrics:
            names = ", ".join(sorted(rubrics))
            raise RecordError(f"{where}: no rubric {row['rubric']!r} among {names}; give yours with --rubrics")
        rubric, original = rubrics[row["rubric"]], cases[row["case_id"]]
        shown = Verdict(original.id, row["judge"], row["rubric"], tuple(row["order"]), extra={"models": row["models"]})
        case = as_shown(original, shown)
        texts = [case.responses[index].text for index in row["order"]]
        reading = parse_verdict(row["completion"][0]["content"], rubric, len(texts))
        if not reading.valid:
            raise RecordError(f"{where}: the verdict on record cannot be read: {reading.error}")
        prompt = judge_messages(rubric, case.question, texts, case.reference, reading.rationale is not None)
        if prompt != row["prompt"]:
            raise RecordError(f"{where}: its texts, or the rubric's wording, have changed since the data set was built")
        recorded[case.id] = Recorded(row, original, case, rubric, reading)
    if not recorded:
        raise RecordError(f"{place}: not a single training row")
    return list(recorded.values())


def read_judge(path: str, recorded: Sequence[Recorded], name: str | None = None) -> RoundJudge:
    """Read one judge's verdicts on the training cases; skip those on other cases or by other rubrics.

    Args:
        path: verdicts.jsonl.
        name: the judge, if the file holds several.

    Raises:
        RecordError: no verdict of this judge; several judges and no name; several settings; a verdict that is repeated or does
            not fit its case; a training case without a verdict (Algorithm 2 judges them all).
    """
    by_case = {each.case.id: each for each in recorded}
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    judges, settings, seen = set[str](), set[str | None](), dict[tuple, str]()
    for place, verdict in read_placed(path, Verdict):
        row = by_case.get(verdict.case_id)
        if row is None or verdict.rubric != row.rubric.name or (name is not None and verdict.judge != name):
            continue
        if row.rubric.mode == "pairwise" and set(verdict.order) != set(row.order):
            continue  # on another pair than the row
        key = (verdict.judge, *verdict.key)
        if key in seen:
            raise RecordError(f"{place}: this verdict of {verdict.judge} stands at {seen[key]} already")
        seen[key] = place
        _check(verdict, row, place)
        judges.add(verdict.judge)
        settings.add(verdict.extra.get("settings"))
        verdicts[verdict.case_id].append(verdict)
    if not judges:
        rubrics = ", ".join(sorted({each.rubric.name for each in recorded}))
        who = "any judge" if name is None else f"the judge {name!r}"
        raise RecordError(f"{path}: no verdict of {who} by {rubrics} on any of the {len(by_case):,} training cases")
    if len(judges) > 1:
        raise RecordError(f"{path}: verdicts of {', '.join(sorted(judges))}: choose one with --judge_name")
    (judge,) = judges
    if len(settings) > 1:
        raise RecordError(f"{path}: verdicts of {judge} with different weights, wording or settings")
    if missing := [case_id for case_id in by_case if case_id not in verdicts]:
        raise RecordError(
            f"{path}: {judge} has not judged {len(missing):,} of the {len(by_case):,} training cases, the first "
            f"{missing[0]!r}: judge them all"
        )
    return RoundJudge(judge, settings.pop(), dict(verdicts))


def _check(verdict: Verdict, recorded: Recorded, place: str) -> None:
    """Raise RecordError if a verdict is on changed texts or does not fit its case."""
    case = recorded.case
    verdict.check(place, recorded.original.digest, case.digest)
    there = len(case.responses)
    if not verdict.order or not set(verdict.order) <= set(range(there)):
        raise RecordError(f"{place}: the order {list(verdict.order)} does not fit {there} responses of {case.id!r}")
    if not verdict.valid:
        return
    if not (verdict.scores if recorded.rubric.scale else verdict.choices):
        raise RecordError(f"{place}: a valid verdict without {'scores' if recorded.rubric.scale else 'choices'}")
    if recorded.rubric.scale and set(by_slot(verdict.scores or (), recorded.order)) == {None}:
        raise RecordError(f"{place}: no score of any response that the verdict on record is on")


def find_mistakes(
    recorded: Sequence[Recorded], judge: RoundJudge, tolerance: float = 0.0
) -> tuple[list[Mistake], list[str]]:
    """Return the judge's mistakes, in the order of the rows, and the lines that report them (Algorithm 2, line 6).

    Args:
        tolerance: largest difference of a score, in points, that is no mistake.
    """
    # Paper: it does not define an incorrect evaluation. Here: other relations, or a score off by more than `tolerance`.
    mistakes, partly, overlong = [], 0, 0
    for row in recorded:
        verdicts = sorted(judge.verdicts[row.case.id], key=lambda verdict: verdict.key)
        partly += any(not set(row.order) <= set(verdict.order) for verdict in verdicts)
        valid = [verdict for verdict in verdicts if verdict.valid]
        if not valid and any(verdict.extra.get("overlong") for verdict in verdicts):
            overlong += 1  # it says nothing of the judge
        elif (kind := _kind(row, valid, tolerance)) is not None:
            shown = max(valid, key=lambda verdict: _distance(row, verdict)) if valid else verdicts[0]
            mistakes.append(Mistake(row, kind, shown))
    counts = Counter(mistake.kind for mistake in mistakes)
    listed = ", ".join(f"{kind}: {counts[kind]:,}" for kind in KINDS if counts[kind])
    lines = [
        f"introspection: {len(recorded):,} cases → {len(mistakes):,} mistakes" + (f" ({listed})" if listed else "")
    ]
    if partly:
        lines.append(
            f"introspection: {partly:,} cases were judged without all of their responses; the others are compared"
        )
    if overlong:
        lines.append(
            f"introspection: {overlong:,} cases exceed the judge's context window: they are left out, their rows stay"
        )
    return mistakes, lines


def _kind(recorded: Recorded, verdicts: Sequence[Verdict], tolerance: float) -> str | None:
    """Return the kind of mistake of the valid verdicts on one case, None if there is none."""
    if not verdicts:
        return "invalid"
    if not recorded.rubric.scale:
        return "choices" if any(_distance(recorded, verdict) for verdict in verdicts) else None
    judged = {}
    by_verdict = [by_slot(verdict.scores or (), recorded.order) for verdict in verdicts]
    for index, scores in zip(recorded.order, zip(*by_verdict)):
        if present := [score for score in scores if score is not None]:
            judged[index] = sum(present) / len(present)
    on_record = recorded.scores
    for index, other in itertools.combinations(judged, 2):
        gaps = np.array([values[index] - values[other] for values in (judged, on_record)])
        if len(set(relation_of(gaps))) > 1:
            return "relations"
    if any(abs(judged[index] - on_record[index]) > tolerance + SAME for index in judged):
        return "scores"
    return None


def _distance(recorded: Recorded, verdict: Verdict) -> float:
    """Return the difference of a verdict from the record: the sum of points, or the number of choices."""
    if recorded.rubric.scale:
        pairs = zip(recorded.reading.scores or (), by_slot(verdict.scores or (), recorded.order))
        return sum(abs(score - judged) for score, judged in pairs if judged is not None)
    choices = verdict.choices or {}
    return sum(choices.get(name) != choice for name, choice in recorded.choices.items())
