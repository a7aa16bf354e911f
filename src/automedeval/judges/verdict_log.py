"""The verdicts of a folder: what is there already, what is still to be judged, and one file in the end.

A single process appends to `verdicts.jsonl`. Of several processes each appends to a part of its own beside it, and the first
one joins the parts, at the end and at the start of a run that follows an interrupted one. A verdict counts as there only if
the same judge with the same settings gave it.
"""

from collections.abc import Iterator
from pathlib import Path

from automedeval.records import RecordError, Verdict, read_records, verdict_key
from automedeval.records.journal import Journal


class VerdictLog:
    """The verdicts of one output folder, seen by one of `processes` processes.

    Args:
        folder: holds verdicts.jsonl.
        judge, rubric, settings: names and fingerprint of the judge that is about to write.
        rank, processes: which process this is, and of how many.
    """

    def __init__(self, folder: Path, judge: str, rubric: str, settings: str, rank: int = 0, processes: int = 1):
        self.path = folder / "verdicts.jsonl"
        self.judge, self.rubric, self.settings = judge, rubric, settings
        self.run_file = folder / f"run-{settings}.json"
        self.rank, self.processes = rank, processes
        self.part = self.path if processes == 1 else folder / f"verdicts.part{rank}.jsonl"

    def join_parts(self) -> int:
        """Move the verdicts of all parts into verdicts.jsonl, none twice, and drop a torn last line; return how many came."""
        parts = sorted(self.path.parent.glob("verdicts.part*.jsonl"))
        if not parts and not self.path.exists():
            return 0
        with Journal(self.path) as whole:
            # What is there is read only where something may be there twice: a set of all verdicts is large.
            there = {self._identity(verdict) for verdict in self._read(self.path)} if parts else set()
            moved = 0
            for part in parts:
                with Journal(part):  # drops a torn line, and refuses while somebody writes the part
                    for verdict in self._read(part):
                        if self._identity(verdict) not in there:
                            there.add(self._identity(verdict))
                            whole.append(verdict.to_dict())
                            moved += 1
            whole.sync()
        for part in parts:
            part.unlink()
            part.with_name(f".{part.name}.lock").unlink(missing_ok=True)
        return moved

    def done(self, digests: dict[str, str]) -> set[tuple]:
        """Return the keys of what this judge has judged already by this rubric, of the cases with these `Case.digest`s.

        Raises:
            RecordError: the folder has verdicts of a judge, a rubric or a case of this name that was not the same.
        """
        keys = set()
        for verdict in self._read(self.path):
            if (verdict.judge, verdict.rubric) != (self.judge, self.rubric):
                continue
            if verdict.extra.get("settings") != self.settings:
                raise RecordError(
                    f"{self.path} holds verdicts of {self.judge} by {self.rubric} with other weights, wording or settings "
                    f"({verdict.extra.get('settings')}, now {self.settings}): choose another --output or --judge_name"
                )
            if verdict.case_id not in digests:
                continue
            if verdict.extra.get("case_digest") != digests[verdict.case_id]:
                raise RecordError(
                    f"{self.path} holds a verdict on case {verdict.case_id!r} as it was before its texts changed: "
                    "choose another --output"
                )
            keys.add(verdict_key(verdict))
        return keys

    def mine(self) -> Iterator[Verdict]:
        """Yield this judge's verdicts by this rubric."""
        for verdict in self._read(self.path):
            if (verdict.judge, verdict.rubric) == (self.judge, self.rubric):
                yield verdict

    @staticmethod
    def _identity(verdict: Verdict) -> tuple:
        return (verdict.judge, verdict.rubric, *verdict_key(verdict))

    @staticmethod
    def _read(path: Path) -> Iterator[Verdict]:
        return read_records(path, Verdict) if path.exists() else iter(())
