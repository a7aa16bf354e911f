"""Write files so that a crash loses nothing: append to a JSON Lines file, or replace a file as a whole.

A line is complete when it ends with a newline. Text after the last newline was cut off by a crash or a full disk; the next
writer removes it. A lock refuses a second writer.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from automedeval.records.errors import RecordError, foreign_errors_at
from automedeval.records.readers import lock_file, read_lines


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the name of a file to write; on leaving, it takes the place of `path`, and after an error it is deleted.

    The folder that both lie in is made. The name is this writer's own: of several processes that write one file at once, the
    last one's content stays, whole. A device or a pipe cannot be replaced, and is written itself.
    RecordError if the file cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    scratch = target.with_name(f".automedeval-{uuid.uuid4().hex}.tmp")
    try:
        with foreign_errors_at(path, OSError):
            if path.exists() and not path.is_file():
                yield path
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            yield scratch
            scratch.replace(target)
    finally:
        with suppress(OSError):
            scratch.unlink()


def write_whole(path: Path, content: str) -> None:
    """Write a file so that every reader gets either the old content or the complete new one; else RecordError."""
    with replacing(path) as scratch:
        scratch.write_bytes(content.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """Write a value as a JSON file, by `write_whole`; ValueError for NaN or infinity."""
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def json_lines(records: Iterable[Mapping]) -> str:
    """Return records as the text of a JSON Lines file."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def write_lines(path: Path, records: Iterable[Mapping]) -> None:
    """Write a JSON Lines file so that every reader gets either the old one or the complete new one; else RecordError."""
    with (
        replacing(path) as scratch,
        open(scratch, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
    ):
        file.writelines(json_lines([record]) for record in records)


@dataclass(frozen=True)
class Processes:
    """The processes that share a run: the rank of this one, their number, and how they wait for all."""

    rank: int = 0
    count: int = 1
    wait: Callable[[], object] = lambda: None


ALONE = Processes()


def lock(path: Path, doing: str) -> FileLock:
    """Lock a path for this process until `release` of the returned lock or its end, by a file `.NAME.lock` beside it.

    The folder that both lie in is made; the path itself need not exist. `doing` says in errors what the lock's holder does.
    RecordError if another process holds the lock, or the file beside the path cannot be written.
    """
    file_lock = FileLock(lock_file(path))
    with foreign_errors_at(f"{path}: cannot be written", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file_lock.acquire(timeout=1)  # processes of one run take turns
        except Timeout:
            raise RecordError(f"{path}: another process is {doing}") from None
    return file_lock


@dataclass(eq=False)
class Journal:
    """Append records to a JSON Lines file; one writer at a time. Use it as a context manager.

    RecordError on entering, when another process is writing the file; on appending, when the disk is full.
    """

    path: Path
    appended: int = 0

    def __enter__(self) -> "Journal":
        self._lock = lock(self.path, "writing this file")
        # Unbuffered: a buffer that failed to reach a full disk would be written again on closing.
        self._file = open(self.path, "ab", buffering=0)
        self._remove_torn_line()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._lock.release()

    def _remove_torn_line(self) -> None:
        """Remove the bytes after the last newline."""
        with open(self.path, "rb") as file:
            end = sum(len(line) for line in file if line.endswith(b"\n"))
        os.truncate(self.path, end)

    def records(self) -> Iterator[dict]:
        """Yield the records of the file."""
        return (record for _, record in read_lines(self.path))

    def append(self, record: dict) -> None:
        """Write one record, completely or not at all."""
        text = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        # as `write_whole`: the escape of a lone surrogate is JSON
        line = text.encode("utf-8", "backslashreplace")
        before = self._file.seek(0, os.SEEK_END)
        rest = memoryview(line)
        try:
            with foreign_errors_at(self.path, OSError, advice="; what was written before is whole"):
                while rest:  # a nearly full disk takes part of a line before it refuses
                    rest = rest[self._file.write(rest) :]
        except RecordError:
            os.truncate(self.path, before)
            raise
        self.appended += 1

    def sync(self) -> None:
        """Wait until the appended records are on the disk."""
        os.fsync(self._file.fileno())


def now() -> str:
    """Return the time in UTC, to the second, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def arithmetic(
    what: str,
    before: int,
    reasons: Mapping[str, int],
    kept: str = "kept",
    rejected: str = "rejected",
) -> str:
    """Return the line that every filter prints: `9,874 verdicts → 9,569 kept, 305 rejected (fluency: 126, …)`."""
    out = sum(reasons.values())
    counts = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(reasons.items()))
    line = f"{before:,} {what} → {before - out:,} {kept}, {out:,} {rejected}"
    return f"{line} ({counts})" if counts else line
