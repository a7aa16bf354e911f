"""Join teacher verdicts with their cases, and reject those that no instruction can be made of."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any

from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    Verdict,
    errors_at,
    named_file,
    placed_verdicts,
)
from automedeval.records.journal import arithmetic
from automedeval.records.tables.cases import read_cases
from automedeval.records.types import take
from automedeval.rubrics import Rubrics, rubric_among

Key = tuple[str, str]  # (case id, teacher)


def counted(numbers: Mapping[str, int]) -> str:
    """Return numbers by their names, in the order of these: `strong 23, weak 24`."""
    return ", ".join(f"{name} {numbers[name]:,}" for name in sorted(numbers))


@dataclass
class JudgedCases:
    """Cases with their teachers' verdicts.

    Attributes:
        rubrics: by name; what a verdict may be by.
        cases, verdicts: the cases by id, the verdicts by (case id, teacher).
        dropped: a record of every verdict that was rejected.
        arithmetic: the lines reported so far.
    """

    rubrics: Rubrics
    cases: dict[str, Case] = field(default_factory=dict)
    verdicts: dict[Key, Verdict] = field(default_factory=dict)
    dropped: list[JsonObject] = field(default_factory=list)
    arithmetic: list[str] = field(default_factory=list)

    def report(self, *lines: str) -> None:
        """Print the lines that report a step, and keep them for the card."""
        for line in lines:
            print(line)
        self.arithmetic += lines

    def read(
        self,
        cases: Sequence[str],
        verdicts: Sequence[str],
        licenses: Mapping[str, str],
        **table: Any,
    ) -> None:
        """Read and join all files; report how many records were kept.

        NAME=FILE among `cases` sets the source of cases that have none, `licenses` the licence of a source's; `table` is as
        `read_cases` has it. RecordError for a source or licence that is no text; a verdict without a teacher, by an unknown
        rubric, on a case whose texts changed, or the second of a teacher on a case.
        """
        for named in cases:
            source, path = named_file(named)
            for case in read_cases(path, **table):
                with errors_at(f"{path}: case {case.id!r}"):
                    if case.id in self.cases:
                        raise RecordError("the id stands in another file already")
                    own_source = take(case.extra, "source", (str, NoneType), None) or source or None
                    license = take(case.extra, "license", (str, NoneType), None)
                about = {"source": own_source, "license": license or licenses.get(own_source or "")}
                self.cases[case.id] = replace(case, extra={**case.extra, **about})
        for place, verdict in placed_verdicts(verdicts, self.cases, with_reference=True):
            with errors_at(place):
                self._take(verdict)
        number = len(self.verdicts) + len(self.dropped)
        line = arithmetic("verdicts", number, Counter(record["reason"] for record in self.dropped))
        if not self.verdicts:
            raise RecordError(f"{line}: no verdict is left")
        by_teacher = Counter(teacher for _, teacher in self.verdicts)
        self.report(f"{len(self.cases):,} cases", f"{line}; {counted(by_teacher)}")

    def _take(self, verdict: Verdict) -> None:
        """Keep a verdict, or reject it; RecordError if somebody has to mend it."""
        if verdict.teacher is None:
            raise RecordError("'teacher' is missing; instructions are built from teacher verdicts")
        key = (verdict.case_id, verdict.teacher)
        case = self.cases.get(verdict.case_id)
        if case is None or not verdict.valid:
            return self._drop(verdict, "invalid" if case else "of no case here")
        rubric_among(self.rubrics, verdict.rubric)
        if key in self.verdicts:
            raise RecordError(f"a second verdict of the teacher {key[1]!r} on case {case.id!r}")
        if verdict.quality not in (None, "high", "low"):
            raise RecordError(f"'quality' must be high, low or null, not {verdict.quality!r}")
        # What no instruction uses is most of a teacher's record.
        extra = {name: value for name, value in verdict.extra.items() if name != "transcript"}
        self.verdicts[key] = replace(verdict, raw="", knowledge=None, extra=extra)

    def reject(self, what: str, faults: Mapping[Key, str], number: int | None = None) -> str:
        """Reject the verdicts that have a fault; return the line that reports it of all verdicts, or of a `number` of them."""
        number = len(self.verdicts) if number is None else number
        for key, fault in faults.items():
            self._drop(self.verdicts.pop(key), fault)
        return arithmetic(what, number, Counter(faults.values()))

    def _drop(self, verdict: Verdict, reason: str) -> None:
        record = {
            "case_id": verdict.case_id,
            "teacher": verdict.teacher,
            "judge": verdict.judge,
            "reason": reason,
        }
        self.dropped.append(record)
