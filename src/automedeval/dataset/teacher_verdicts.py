"""Judged cases: the verdicts of the teachers joined with their cases, in the order of neither file.

What is decided on (ids, teacher, quality) is in memory. The texts lie in a scratch database beside the output, and are read
again, row by row, once it is known what becomes of each.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from automedeval.records import Case, RecordError, Verdict, read_cases, read_placed
from automedeval.records.journal import Journal, arithmetic

Key = tuple[str, str]  # (case id, teacher)
# What only says how a verdict came about; most of a teacher's record, and no part of an instruction.
PROCEEDINGS = ("transcript", "knowledge")


@dataclass(slots=True)
class Fact:
    """What is known of one verdict without its texts; `row` is where these lie."""

    judge: str
    rubric: str
    quality: str | None
    row: int


class JudgedCases:
    """The verdicts that are still in the running, by case and teacher; a context manager over the scratch database.

    Args:
        database: file for the texts; it is of no use afterwards.
        dropped: takes one line for every verdict that is rejected.
    """

    def __init__(self, database: Path, dropped: Journal):
        self.facts: dict[Key, Fact] = {}
        self.dropped = dropped
        self._database = sqlite3.connect(database, isolation_level=None)
        # A killed run starts anew: nothing here has to survive.
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000;"
            "CREATE TABLE cases (id TEXT PRIMARY KEY, text TEXT);"
            "CREATE TABLE verdicts (number INTEGER PRIMARY KEY, text TEXT);"
        )

    def __enter__(self) -> "JudgedCases":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.close()

    def read(
        self,
        cases: Sequence[str],
        verdicts: Sequence[str],
        rubrics: Iterable[str],
        licenses: Mapping[str, str],
    ) -> list[str]:
        """Read and join all files; return the arithmetic.

        Args:
            cases: files; NAME=FILE says that its cases come from the source NAME, unless they say themselves.
            rubrics: names of the rubrics that are known.
            licenses: source → licence, for cases that do not say theirs.

        Raises:
            RecordError: a fault of a file; a verdict without a teacher, on a case that has changed since, by an unknown rubric.
        """
        self._database.execute("BEGIN")
        digests: dict[str, str] = {}
        for given in cases:
            source, _, path = given.rpartition("=")
            for case in read_cases(path):
                if case.id in digests:
                    raise RecordError(f"{path}: the id {case.id!r} stands in another file already")
                digests[case.id] = case.digest
                record = case.to_dict()
                if source:
                    record.setdefault("source", source)
                if record.get("source") in licenses:
                    record.setdefault("license", licenses[record["source"]])
                self._database.execute("INSERT INTO cases VALUES (?, ?)", (_name(case.id), json.dumps(record)))
        reasons: Counter = Counter()
        ranks: dict[Key, tuple] = {}
        known, read = set(rubrics), 0
        for path in verdicts:
            for place, verdict in read_placed(path, Verdict):
                read += 1
                teacher = verdict.extra.get("teacher")
                if not isinstance(teacher, str):
                    raise RecordError(f"{place}: 'teacher' is missing: only a teacher's verdicts make instructions")
                reason = self._fault(verdict, digests, known, place)
                key, rank = (verdict.case_id, teacher), (verdict.run, verdict.order, verdict.judge)
                if reason is None and key in self.facts:
                    # Of several orders or runs one trains; which, the files' order must not decide.
                    reason = "the teacher's second on the case"
                    if rank < ranks[key]:
                        self._drop(key, self.facts.pop(key).judge, reason)
                        reasons[reason] += 1
                        reason = None
                if reason is not None:
                    self._drop(key, verdict.judge, reason)
                    reasons[reason] += 1
                    continue
                ranks[key] = rank
                self.facts[key] = Fact(verdict.judge, verdict.rubric, _quality(verdict, place), self._insert(verdict))
        self._database.execute("COMMIT")
        if not self.facts:
            raise RecordError(f"{arithmetic('verdicts', read, reasons)}: nothing is left to make instructions of")
        teachers = Counter(teacher for _, teacher in self.facts)
        told = ", ".join(f"{name} {count:,}" for name, count in sorted(teachers.items()))
        return [f"{len(digests):,} cases", f"{arithmetic('verdicts', read, reasons)}; {told}"]

    @staticmethod
    def _fault(verdict: Verdict, digests: Mapping[str, str], rubrics: set[str], place: str) -> str | None:
        """Return why a verdict is no use; raise where somebody has to mend something."""
        if verdict.case_id not in digests:
            return "of no case here"
        if verdict.extra.get("case_digest", digests[verdict.case_id]) != digests[verdict.case_id]:
            raise RecordError(f"{place}: the case {verdict.case_id!r} has changed since the teacher judged it")
        if not verdict.valid:
            return "invalid"
        if verdict.rubric not in rubrics:
            raise RecordError(
                f"{place}: no rubric {verdict.rubric!r} among {', '.join(sorted(rubrics))}; give yours with --rubrics"
            )
        return None

    def _insert(self, verdict: Verdict) -> int:
        record = {key: value for key, value in verdict.to_dict().items() if key not in PROCEEDINGS} | {"raw": ""}
        return self._database.execute("INSERT INTO verdicts (text) VALUES (?)", (json.dumps(record),)).lastrowid

    def case(self, case_id: str) -> Case | None:
        """Return one case with its texts, None if there is none of this id."""
        found = self._database.execute("SELECT text FROM cases WHERE id = ?", (_name(case_id),)).fetchone()
        return None if found is None else Case.from_dict(json.loads(found[0]))

    def cases(self, case_ids: Iterable[str]) -> Iterator[Case]:
        """Yield cases with their texts, one at a time; an id that is not there is passed over."""
        return (case for case in map(self.case, case_ids) if case is not None)

    def pair(self, key: Key) -> tuple[Case, Verdict]:
        """Return one judged case with its texts."""
        (text,) = self._database.execute(
            "SELECT text FROM verdicts WHERE number = ?", (self.facts[key].row,)
        ).fetchone()
        return self.case(key[0]), Verdict.from_dict(json.loads(text))

    def pairs(self, keys: Iterable[Key]) -> Iterator[tuple[Case, Verdict]]:
        """Yield judged cases with their texts, one at a time."""
        return map(self.pair, keys)

    def judges(self) -> set[tuple[str, str]]:
        """Return (case id, judge) of every verdict, which is how ratings name it."""
        return {(case_id, fact.judge) for (case_id, _), fact in self.facts.items()}

    def filter(self, what: str, reason: Callable[[Key, Fact], str | None], keys: Iterable[Key] | None = None) -> str:
        """Reject every verdict, of all or of those with some keys, that a reason is given for; return the arithmetic."""
        keys = list(self.facts if keys is None else keys)
        reasons: Counter = Counter()
        for key in keys:
            fact = self.facts[key]
            if (why := reason(key, fact)) is not None:
                reasons[why] += 1
                self._drop(key, fact.judge, why)
                del self.facts[key]
        return arithmetic(what, len(keys), reasons)

    def _drop(self, key: Key, judge: str, reason: str) -> None:
        self.dropped.append({"case_id": key[0], "teacher": key[1], "judge": judge, "reason": reason})


def _name(case_id: str) -> str:
    """Return an id that a database takes: JSON can carry lone surrogates."""
    return json.dumps(case_id)


def _quality(verdict: Verdict, place: str) -> str | None:
    quality = verdict.extra.get("quality")
    if quality not in (None, "high", "low"):
        raise RecordError(f"{place}: 'quality' must be high, low or null, not {quality!r}")
    return quality
