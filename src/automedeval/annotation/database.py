"""Define the tables of a study's SQLite database, and open transactions.

It is in write-ahead mode, where a transaction is on the disk before it is confirmed. Texts of people and files are stored as
JSON in ASCII, because a database takes no half of a character, which JSON can hold.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from automedeval.records import RecordError, foreign_errors_at

BUSY = 30.0  # seconds that a transaction waits for those of other processes
OPEN = "open"  # states of an assignment
DONE = "done"
SKIPPED = "skipped"
JSON = {"item", "case_id", "judges", "slots", "parts", "part", "content"}  # columns
TABLES = (resources.files("automedeval.annotation") / "templates/tables.sql").read_text(
    encoding="utf-8"
)


class DatabaseRow(SimpleNamespace):
    """A row of a table by the names of its columns, with what JSON held."""

    def __init__(self, cursor: sqlite3.Cursor, values: tuple):
        names = [column[0] for column in cursor.description]
        super().__init__(
            **{
                name: json.loads(value) if name in JSON else value
                for name, value in zip(names, values)
            }
        )


class Database:
    """A study's database in a file; threads and processes can share it.

    RecordError, which names `place`, is raised if it cannot be opened, or belongs to a study of another `fingerprint`.
    """

    def __init__(self, file: str, fingerprint: str, place: str):
        # One connection that threads wait for: SQLite has one writer at a time in any case.
        self._lock = threading.Lock()
        path = Path(file).absolute()
        unopened = foreign_errors_at(
            f"{place}: database: {file} cannot be opened", sqlite3.Error, OSError
        )
        with unopened, ExitStack() as opened:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Only the user who runs the study can read the answers; SQLite gives its other files the same rights.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(
                path, BUSY, isolation_level=None, check_same_thread=False
            )
            opened.callback(self.close)
            self._connection.row_factory = DatabaseRow
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            with self.transaction():
                for statement in TABLES.split(";"):
                    self._connection.execute(statement)
                self._put("settings", "IGNORE", name="study", value=fingerprint)
                stored = self._setting("study")
            if stored != fingerprint:
                raise RecordError(
                    f"{place}: database: {file} belongs to another study, or the cases, verdicts or rubrics changed "
                    f"({stored}, now {fingerprint}): "
                    "choose another database; to export its ratings, put the files back as they were"
                )
            opened.pop_all()

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction, which sees no other's changes; they run one after another. Rows are read and put in one."""
        with self._lock, self._connection:
            # The write lock is taken at once: a transaction that reads first would fail if another one writes meanwhile.
            self._connection.execute("BEGIN IMMEDIATE")
            yield

    def _setting(self, name: str) -> str:
        query = "SELECT value FROM settings WHERE name = ?"
        return self._connection.execute(query, [name]).fetchone().value

    def _put(self, table: str, clash: str = "ABORT", **values: Any) -> int:
        """Store a row; return its number, 0 if it was not stored.

        What happens to one with the same key: "REPLACE" puts the new one in its place, "IGNORE" leaves it, "ABORT" is an error.
        """
        names = ", ".join(values)
        places = ", ".join("?" * len(values))
        encoded = [json.dumps(value) if name in JSON else value for name, value in values.items()]
        cursor = self._connection.execute(
            f"INSERT OR {clash} INTO {table} ({names}) VALUES ({places})", encoded
        )
        return cursor.lastrowid or 0 if cursor.rowcount == 1 else 0
