"""The database of a study: its tables, and how it is opened, read and written.

SQLite by default, in write-ahead mode, where a transaction is on the disk before it is confirmed; PostgreSQL by URL.

Texts that people or files gave are stored as JSON in ASCII: no database takes every character that JSON can carry.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from automedeval.records import RecordError

BUSY = 30.0  # seconds that a write waits for other processes' writes
THREADS = 64  # connections that are kept open: more than a server has threads
LOCK = 4_712_025  # PostgreSQL: writes of one study's processes follow one another, as in SQLite
METADATA = sa.MetaData()
SETTINGS = sa.Table(
    "settings", METADATA, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False)
)
INVITATIONS = sa.Table(
    "invitations",
    METADATA,
    sa.Column("annotator", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("at", sa.Double, nullable=False),
)
# The state of each assignment. Events up to the number `since` count no longer: an undo took them back. `closed` is the number
# of the event that ended it, `opened` that of the one that gave it out or reopened it last (a clock can be set back).
ASSIGNMENTS = sa.Table(
    "assignments",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("item", "kind", "case_id", "judges", "annotator")),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("slots", "parts", "state")),
    *(sa.Column(name, sa.Integer, nullable=False) for name in ("version", "since", "opened", "closed")),
    sa.Column("touched_at", sa.Double, nullable=False),
    sa.UniqueConstraint("annotator", "kind", "case_id"),
    sa.Index("assignments_by_state", "state", "touched_at", "item"),
    sqlite_autoincrement=True,
)
# What happened, never changed and never deleted: "given", "answer", "skip", "undo".
EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("assignment", sa.ForeignKey("assignments.id"), nullable=False, index=True),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("role", "what", "part", "content")),
    sa.Column("seconds", sa.Double),
    sa.Column("at", sa.Double, nullable=False),
    sqlite_autoincrement=True,
)
DRAFTS = sa.Table(
    "drafts",
    METADATA,
    sa.Column("assignment", sa.ForeignKey("assignments.id"), primary_key=True),
    sa.Column("part", sa.Text, primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
)
FAILURES = sa.Table(
    "failures",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("who", sa.Text, nullable=False, index=True),
    sa.Column("at", sa.Double, nullable=False),
)


class Database:
    """A study's database; threads and processes may share it.

    Args:
        url: of SQLAlchemy, sqlite or postgresql. A password comes from the environment (PGPASSWORD) or a .pgpass file.
        fingerprint: of the study. The database of another one is refused.
        place: the study's file, for errors.

    Raises:
        RecordError: the database cannot be opened, or is another study's.
    """

    def __init__(self, url: str, fingerprint: str, place: str):
        self._writing = threading.Lock()  # threads queue up here, which is fairer than SQLite's trying again
        shown = url.removeprefix("sqlite:///")
        self._engine: sa.Engine | None = None
        try:
            self._engine = _engine(sa.make_url(url))
            with self.write() as connection:
                METADATA.create_all(connection)
                found = setting(connection, "study")
                if found is None:
                    connection.execute(sa.insert(SETTINGS).values(name="study", value=fingerprint))
        except (SQLAlchemyError, ImportError, OSError) as error:
            self.close()
            told = " ".join(str(getattr(error, "orig", None) or error).split())
            raise RecordError(f"{place}: database: {shown} cannot be opened: {told}") from None
        if found not in (None, fingerprint):
            self.close()
            raise RecordError(
                f"{place}: database: {shown} is another study's, or the cases, verdicts or rubrics have changed since "
                f"({found}, now {fingerprint}): choose another database"
            )

    def close(self) -> None:
        """Close all connections."""
        if self._engine is not None:
            self._engine.dispose()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction that may write; such transactions follow one another."""
        with self._writing, self._engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a transaction that reads one state of everything, whatever is written meanwhile."""
        with self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection


def setting(connection: sa.Connection, name: str) -> str | None:
    """Return the value of a setting, None if there is none."""
    return connection.scalar(sa.select(SETTINGS.c.value).where(SETTINGS.c.name == name))


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        # The driver that the package names, whatever SQLAlchemy's default is.
        url = url.set(drivername="postgresql+psycopg")
        return sa.create_engine(url, pool_size=16, max_overflow=32, pool_pre_ping=True)
    file = Path(url.database)
    file.parent.mkdir(parents=True, exist_ok=True)
    # What physicians said is for the one who runs the study; SQLite gives its other files the rights of this one.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    engine = sa.create_engine(
        url, connect_args={"timeout": BUSY, "isolation_level": None}, pool_size=THREADS, max_overflow=0
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # The right to write is taken at once: a transaction that reads first and is overtaken could not go on.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
