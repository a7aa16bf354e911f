"""Join teacher verdicts with their cases, using a temporary SQLite file.

Ids, teacher and quality are in memory. The texts are in the SQLite file, beside the output, and are read row by row later.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.records import Case, RecordError, Verdict, named_file, read_cases, read_placed
from automedeval.records.journal import Journal, arithmetic

Key = tuple[str, str]  # (case id, teacher)
SECOND = "the teacher's second on the case"
# Fields that no instruction uses; they are most of a teacher's record.
PROCEEDINGS = ("transcript", "knowledge")


@dataclass(slots=True)
class Fact:
    """One verdict without its texts; `row` is its number in the SQLite file, `digest` that of the verdict."""

    judge: str
    quality: str | None
    row: int
    digest: str


class JudgedCases(AbstractContextManager):
    """Teacher verdicts with their cases, by (case id, teacher); a context manager that closes the SQLite file.

    Args:
        database: path of the SQLite file; delete it afterwards.
        dropped: gets one line for every rejected verdict.
    """

    def __init__(self, database: Path, dropped: Journal):
        self.facts: dict[Key, Fact] = {}
        self.dropped = dropped
        self._rows: dict[str, int] = {}  # case id → its number in the file
        self._database = sqlite3.connect(database, isolation_level=None)
        # A killed run starts from the beginning, so nothing here has to survive.
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000;"
            "CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT);"
        )

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def _put(self, record: Mapping[str, Any]) -> int:
        row = self._database.execute("INSERT INTO texts (text) VALUES (?)", (json.dumps(record),)).lastrowid
        assert row is not None  # of an INSERT
        return row

    def _get(self, number: int) -> dict[str, Any]:
        return json.loads(self._database.execute("SELECT text FROM texts WHERE number = ?", (number,)).fetchone()[0])

    def read(
        self,
        cases: Sequence[str],
        verdicts: Sequence[str],
        rubrics: Iterable[str],
        licenses: Mapping[str, str],
        blank: str | None = None,
    ) -> list[str]:
        """Read and join all files; return lines that report how many records were kept.

        Args:
            cases: files; NAME=FILE sets the source of cases that have none.
            licenses: source → licence, for cases without a licence.
            blank: as `read_cases` has it.

        Raises:
            RecordError: a fault of a file; a source or licence that is no text; a verdict without a teacher, by an unknown
                rubric, or on a case whose texts changed.
        """
        self._database.execute("BEGIN")
        digests: dict[str, str] = {}
        for named in cases:
            source, path = named_file(named)
            for case in read_cases(path, blank=blank):
                if case.id in digests:
                    raise RecordError(f"{path}: the id {case.id!r} stands in another file already")
                digests[case.id] = case.digest
                record = case.to_dict()
                for name in ("source", "license"):
                    if not isinstance(record.get(name), str | None):
                        value = json.dumps(record[name])
                        raise RecordError(f"{path}: case {case.id!r}: {name!r} must be a text or null, not {value}")
                record["source"] = record.get("source") or source or None
                record["license"] = record.get("license") or licenses.get(record["source"])
                self._rows[case.id] = self._put(record)
        reasons: Counter = Counter()
        ranks: dict[Key, tuple] = {}
        rubric_names, read = set(rubrics), 0
        for path in verdicts:
            for place, verdict in read_placed(path, Verdict):
                read += 1
                teacher = verdict.extra.get("teacher")
                if not isinstance(teacher, str):
                    raise RecordError(f"{place}: 'teacher' is missing; instructions are built from teacher verdicts")
                reason = self._fault(verdict, digests, rubric_names, place)
                rank = (verdict.run, verdict.order, verdict.judge, verdict.rubric, verdict.digest)
                key = (verdict.case_id, teacher)
                if reason is None and key in self.facts:
                    # One of several orders or runs is used; which one does not depend on the order of the files.
                    if rank < ranks[key]:
                        self._drop(key, self.facts.pop(key).judge, SECOND, reasons)
                    else:
                        reason = SECOND
                if reason is not None:
                    self._drop(key, verdict.judge, reason, reasons)
                    continue
                ranks[key] = rank
                quality = verdict.extra.get("quality")
                if quality not in (None, "high", "low"):
                    raise RecordError(f"{place}: 'quality' must be high, low or null, not {quality!r}")
                kept = {name: value for name, value in verdict.to_dict().items() if name not in PROCEEDINGS}
                self.facts[key] = Fact(verdict.judge, quality, self._put(kept | {"raw": ""}), verdict.digest)
        self._database.execute("COMMIT")
        if not self.facts:
            raise RecordError(f"{arithmetic('verdicts', read, reasons)}: no verdict is left")
        teachers = sorted(Counter(teacher for _, teacher in self.facts).items())
        counts = ", ".join(f"{name} {count:,}" for name, count in teachers)
        return [f"{len(digests):,} cases", f"{arithmetic('verdicts', read, reasons)}; {counts}"]

    @staticmethod
    def _fault(verdict: Verdict, digests: Mapping[str, str], rubrics: set[str], place: str) -> str | None:
        """Return why a verdict cannot be used, None if it can; raise RecordError if the input is faulty."""
        if verdict.case_id not in digests:
            return "of no case here"
        verdict.check(place, digests[verdict.case_id])
        if not verdict.valid:
            return "invalid"
        if verdict.rubric not in rubrics:
            names = ", ".join(sorted(rubrics))
            raise RecordError(f"{place}: no rubric {verdict.rubric!r} among {names}; give yours with --rubrics")
        return None

    def cases(self, case_ids: Iterable[str]) -> Iterator[Case]:
        """Yield cases with their texts, one at a time; unknown ids are skipped."""
        return (Case.from_dict(self._get(self._rows[each])) for each in case_ids if each in self._rows)

    def pair(self, key: Key, fact: Fact | None = None) -> tuple[Case, Verdict]:
        """Return one case and its verdict, with their texts; `fact` is that of a verdict that was rejected."""
        (case,) = self.cases(key[:1])
        return case, Verdict.from_dict(self._get((fact or self.facts[key]).row))

    def pairs(self, keys: Iterable[Key]) -> Iterator[tuple[Case, Verdict]]:
        """Yield cases and their verdicts, with their texts, one at a time."""
        return map(self.pair, keys)

    def digests(self) -> dict[tuple[str, str], set[str]]:
        """Return (case id, judge) → the digests of the verdicts; ratings of verdicts refer to them so."""
        by_verdict: dict[tuple[str, str], set[str]] = defaultdict(set)
        for (case_id, _), fact in self.facts.items():
            by_verdict[case_id, fact.judge].add(fact.digest)
        return by_verdict

    def filter(self, what: str, reason: Callable[[Key, Fact], str | None], keys: Iterable[Key] | None = None) -> str:
        """Reject the verdicts, all or those with these keys, for which there is a reason; return the line that reports it."""
        keys = list(self.facts if keys is None else keys)
        reasons: Counter = Counter()
        for key in keys:
            if (why := reason(key, self.facts[key])) is not None:
                self._drop(key, self.facts.pop(key).judge, why, reasons)
        return arithmetic(what, len(keys), reasons)

    def _drop(self, key: Key, judge: str, reason: str, reasons: Counter) -> None:
        reasons[reason] += 1
        self.dropped.append({"case_id": key[0], "teacher": key[1], "judge": judge, "reason": reason})
