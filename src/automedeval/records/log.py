"""The log of a long run, which can be interrupted, resumed and shared by processes.

One process appends to the file itself. Of several processes each appends to a part of its own beside the file; the first
process joins the parts at the end of the run, and at the start of a run that follows an interrupted one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from automedeval.records.errors import RecordError, errors_at
from automedeval.records.journal import ALONE, Journal, Processes, write_lines
from automedeval.records.readers import lock_file, read_records
from automedeval.records.types import LogRecord

_SYNC = 64  # appended records between two waits for the disk


def replaced_file(path: Path) -> Path:
    """Return the file beside a log for what was paid and no longer counts, or made no record."""
    return path.with_name(f"replaced-{path.name}")


@dataclass(eq=False)
class Log:
    """Append one author's missing records to a file. Use as a context manager; processes enter and leave it together.

    A record counts as done only if the same author wrote it with the same settings, a fingerprint of everything that changes
    it, about the same texts. The file may hold records of other authors. RecordError on entering, when another process is
    writing the file; on appending, when the disk is full.

    `renewed` maps a case to the digest of its texts: on entering, records about texts that have changed since are moved to
    `replaced_file`, to be done anew; `changed` are the ids of their cases. Without it they are refused.

    `alike` are the settings of earlier runs that differ in nothing but the limit of new tokens: their records count as
    done, but those with the keys `again` that were cut off at it, which are moved as well.
    """

    path: Path
    kind: type[LogRecord]
    author: tuple[str, ...]
    settings: str
    processes: Processes = ALONE
    renewed: Mapping[str, str] = field(default_factory=dict)
    alike: Collection[str] = ()
    again: Collection[tuple] = ()
    new = 0  # records that this run added, on leaving those of all processes

    def __post_init__(self) -> None:
        path = self.path
        self.by = " by ".join(self.author)
        self.run_file = path.with_name(f"run-{self.settings}.json")
        self.changed = set[str]()
        name = path.name
        if self.processes.count > 1:
            name = f"{path.stem}.part{self.processes.rank}.jsonl"
        self._journal = Journal(path.with_name(name))

    def __enter__(self) -> "Log":
        if self.processes.rank == 0:
            self.join_parts()
            self._set_aside()
        self.processes.wait()
        self._journal.__enter__()
        return self

    def __exit__(self, error: type | None, *rest: object) -> None:
        self._journal.__exit__(error, *rest)
        if error is not None:
            return  # a process that fails does not wait: the launcher stops the others
        self.processes.wait()
        if self.processes.count > 1:
            if self.processes.rank == 0:
                self.new = self.join_parts()
            self.processes.wait()

    def join_parts(self) -> int:
        """Move the records of all parts into the file, none twice, and drop torn last lines; return how many were moved."""
        parts = sorted(self.path.parent.glob(f"{self.path.stem}.part*.jsonl"))
        if not parts and not self.path.exists():
            return 0
        with Journal(self.path) as whole:
            # The file is read only where something may be in it twice: a set of all keys is large.
            there = {record.identity for record in self._read()} if parts else set()
            for part in parts:
                # drops a torn line, and refuses while another process writes the part
                with Journal(part):
                    for record in read_records(part, self.kind):
                        if record.identity not in there:
                            there.add(record.identity)
                            whole.append(record.to_dict())
            whole.sync()
        for part in parts:
            part.unlink()
            lock_file(part).unlink(missing_ok=True)
        return whole.appended

    def _set_aside(self) -> None:
        """Move the author's records about texts that have changed, see `renewed`, to a file beside."""
        self.changed = {record.case_id for record in self._read() if self._is_old(record)}
        if not self.changed:
            return
        with Journal(self.path), Journal(replaced_file(self.path)) as replaced:
            others = []
            for record in self._read():
                if self._is_old(record):
                    replaced.append(record.to_dict())
                else:
                    others.append(record.to_dict())
            replaced.sync()
            write_lines(self.path, others)

    def _is_old(self, record: Any) -> bool:
        if record.author != self.author or record.settings not in (self.settings, *self.alike):
            return False
        if record.case_id not in self.renewed:
            return False
        is_cut = record.settings in self.alike and record.truncated
        is_asked = is_cut and record.key in self.again
        return is_asked or record.has_changed(self.renewed[record.case_id])

    def notes(self, what: str = "cases changed in texts or answers") -> list[str]:
        """Return a line on the cases whose records were moved, if there are any, and `what` happened to them."""
        if not self.changed:
            return []
        if self.again:
            what = "cases had answers cut off, or changed"
        return [
            f"{len(self.changed)} of {len(self.renewed)} {what}: asked anew, "
            f"what was there before is in {replaced_file(self.path)}"
        ]

    def records(self) -> Iterator[Any]:
        """Yield the author's records that the file holds."""
        return (record for record in self._read() if record.author == self.author)

    @property
    def is_shared(self) -> bool:
        """Whether the file has records of other authors too."""
        return any(record.author != self.author for record in self._read())

    def done(self, digests: Mapping[str, str]) -> set[tuple]:
        """Return the keys of the author's records on these cases. Inside the context nobody else adds to them.

        `digests` maps a case to the digest of its texts. RecordError if the file has a record of this author with other
        settings, or on a case whose texts have changed.
        """
        keys = set()
        for record in self.records():
            if record.settings not in (self.settings, *self.alike):
                raise RecordError(
                    f"{self.path} holds records of {self.by} with other weights, wording or "
                    f"settings ({record.settings}, now {self.settings}): choose another --output"
                )
            if record.case_id in digests and not self._is_old(record):
                with errors_at(self.path):
                    record.check("choose another --output", digests[record.case_id])
                keys.add(record.key)
        return keys

    def fill(
        self, records: Iterable[Any], missing: int, unit: str = "verdict", name: str | None = None
    ) -> None:
        """Append records as they come, inside the context; a progress bar counts up to the number of missing ones."""
        with tqdm(total=missing, unit=unit, desc=name, disable=self.processes.rank > 0) as bar:
            for record in records:
                self._journal.append(record.to_dict())
                bar.update()
                if self._journal.appended % _SYNC == 0:
                    self._journal.sync()
        self._journal.sync()
        self.new = self._journal.appended

    def _read(self) -> Iterator[Any]:
        return read_records(self.path, self.kind) if self.path.exists() else iter(())
