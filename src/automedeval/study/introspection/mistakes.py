"""Find a judge's mistakes: training cases on which its verdict differs from the one on record (paper, Algorithm 2, lines 5, 6).

A row of an instruction data set holds the verdict on record of one case. The judge must have judged every training case once,
with all of the responses that the row is on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    Verdict,
    as_shown,
    digest,
    errors_at,
    placed_verdicts,
)
from automedeval.records.journal import arithmetic
from automedeval.rubrics import Rubric, Rubrics, rubric_among
from automedeval.rubrics.grammar import ParsedAnswer, parse_verdict
from automedeval.rubrics.slots import Order, as_recorded, by_slot, seen_from
from automedeval.study.dataset.instructions import row_prompt

AGREED = "agreed"
LONGEST_RAW = 2000  # characters that are shown of an answer that could not be parsed


@dataclass(frozen=True)
class Recorded:
    """One training row with its case and its verdict.

    `original` is the case as in its file; `case` has the responses that were judged, its own, or these and the reference.
    `reading` is the verdict on record, in the slots of `row["order"]`.
    """

    row: JsonObject
    original: Case
    case: Case
    rubric: Rubric
    reading: ParsedAnswer

    @property
    def order(self) -> tuple[int, ...]:
        """Return which response stands in which slot of the row."""
        return tuple(self.row["order"])

    def verdict(self, judge: str, reading: ParsedAnswer) -> JsonObject:
        """Return a verdict in the slots of the row as revisions.jsonl holds it."""
        return {"judge": judge, **as_recorded(reading, self.order, self.case.models)}


@dataclass(frozen=True)
class Mistake:
    """A training case on which the judge's verdict, `judged`, differs from the record.

    `kind` is "invalid" if the verdict is so, "relations" if the order of a pair of responses differs, "scores" if only
    scores do; "agreed" if nothing differs, and the row is discussed all the same.
    """

    recorded: Recorded
    kind: str
    judged: Verdict

    @property
    def case_id(self) -> str:
        return self.recorded.case.id

    def judged_from(self, order: Order) -> JsonObject:
        """Return the judge's verdict with the responses in this order: what it says by slot, or the error, and the raw text."""
        seen = seen_from(self.judged, order, self.recorded.rubric.slot_word)
        return vars(seen) | {"raw": self.judged.raw[:LONGEST_RAW]}

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits over the case, the verdict on record and the judge's."""
        row = self.recorded.row
        verdict = self.judged
        seen = [self.recorded.case.digest, row["order"], row["completion"]]
        names = ("order", "scores", "valid", "rationale", "choices", "error", "raw")
        return digest([*seen, *(getattr(verdict, name) for name in names)])


def read_recorded(
    rows: Sequence[JsonObject],
    cases: Iterable[Case],
    rubrics: Rubrics,
    place: str,
) -> dict[str, Recorded]:
    """Join training rows with their cases, by case id, and parse the verdict of each; errors call the data set `place`.

    RecordError for no rows; a row whose case is missing, changed or repeated; an unknown rubric, or one without scores; a
    faulty completion.
    """
    wanted = {row["case_id"] for row in rows}
    case_of = {case.id: case for case in cases if case.id in wanted}
    recorded = {}
    for row in rows:
        case_id = row["case_id"]
        name = row["rubric"]
        with errors_at(f"{place}: case {case_id!r}"):
            if case_id in recorded:
                raise RecordError("stands in two training rows")
            if case_id not in case_of:
                raise RecordError("is in no file of --cases")
            rubric = rubric_among(rubrics, name)
            original = case_of[case_id]
            if not rubric.scale:
                raise RecordError(
                    f"{name} gives choices, and a round of introspection is on scores"
                )
            models = tuple(row["models"])
            verdict = Verdict(case_id, row["judge"], name, tuple(row["order"]), models=models)
            case = as_shown(original, verdict)
            reading = parse_verdict(row["completion"][0]["content"], rubric, len(verdict.order))
            if not reading.valid:
                raise RecordError(f"the verdict on record cannot be read: {reading.error}")
            with_reasons = reading.rationale is not None
            if row_prompt(case, verdict.order, rubric, with_reasons) != row["prompt"]:
                raise RecordError(
                    "its texts, or the rubric's wording, have changed since the data set was built"
                )
            recorded[case_id] = Recorded(row, original, case, rubric, reading)
    if not recorded:
        raise RecordError(f"{place}: not a single training row")
    return recorded


def read_judges(paths: Sequence[str], recorded: Mapping[str, Recorded]) -> dict[str, Verdict]:
    """Read the verdicts on the training cases, by case id; skip those on other cases or by other rubrics.

    They are one judge's, or those of several, a file each, of which each judged the cases that it was not trained on.
    RecordError for a file without a verdict, or with several judges or settings; a second verdict on a case, or one that does
    not fit it; a training case without a verdict (Algorithm 2 judges them all).
    """
    originals = {case_id: row.original for case_id, row in recorded.items()}
    judged = {}
    for path in paths:
        judges = set()
        for place, verdict in placed_verdicts([path], originals, with_reference=True):
            row = recorded.get(verdict.case_id)
            if row is None or row.rubric.name != verdict.rubric:
                continue
            with errors_at(place):
                if verdict.case_id in judged:
                    raise RecordError(f"a second verdict on case {verdict.case_id!r}")
                if sorted(verdict.order) != sorted(row.order):
                    raise RecordError(
                        "the verdict is on other responses than the one on record: judge the rows with --dataset"
                    )
                if verdict.valid and None in by_slot(verdict.scores or (), row.order):
                    raise RecordError("a valid verdict without a score for each response")
            judged[verdict.case_id] = verdict
            judges.add(f"{verdict.judge} ({verdict.settings})")
        if len(judges) != 1:
            names = ", ".join(sorted(judges)) or "none by the rubric of a training case"
            raise RecordError(
                f"{path}: a round takes the file of one judge, with one setting; there are {names}"
            )
    if missing := [case_id for case_id in recorded if case_id not in judged]:
        raise RecordError(
            f"{', '.join(paths)}: {len(missing):,} of the {len(recorded):,} training cases are not judged, the first "
            f"{missing[0]!r}: judge them all"
        )
    return judged


def find_mistakes(
    recorded: Mapping[str, Recorded], judged: Mapping[str, Verdict], every: bool = False
) -> tuple[list[Mistake], list[str]]:
    """Return the judge's mistakes, in the order of the rows, and the lines that report them (Algorithm 2, line 6).

    `every`: also the rows on which it makes none, as a control of looking where it does.
    """
    mistakes = []
    overlong = 0
    for case_id, row in recorded.items():
        verdict = judged[case_id]
        if verdict.overlong:
            overlong += 1  # it says nothing of the judge
            continue
        judged_scores = by_slot(verdict.scores or (), row.order)
        # Paper: it does not define an incorrect evaluation. Here: other relations of two scores, or another score.
        if not verdict.valid:
            kind = "invalid"
        elif judged_scores == row.reading.scores:
            kind = AGREED
        elif _relations(judged_scores) == _relations(row.reading.scores or ()):
            kind = "scores"
        else:
            kind = "relations"
        if every or kind != AGREED:
            mistakes.append(Mistake(row, kind, verdict))
    counts = Counter(mistake.kind for mistake in mistakes)
    judged_cases = len(recorded) - overlong
    lines = [
        f"introspection: {arithmetic('cases', judged_cases, counts, 'as on record', 'mistakes')}"
    ]
    if overlong:
        lines.append(f"introspection: {overlong:,} more cases exceed the judge's context window")
    return mistakes, lines


def _relations(scores: Sequence[float]) -> list[tuple[bool, bool]]:
    """Return for each pair of scores whether the first is lower, and whether it is higher."""
    return [(first < second, first > second) for first, second in combinations(scores, 2)]
