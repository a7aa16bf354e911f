"""Define the tables of a study's database, and open transactions that read or write.

The database is SQLite in write-ahead mode, where a transaction is on the disk before it is confirmed, or PostgreSQL by URL.
Texts of people and files are stored as JSON in ASCII, because no database takes every character that JSON can hold.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from automedeval.records import RecordError

BUSY = 30.0  # seconds that a write waits for writes of other processes
THREADS = 64  # open connections: more than a server has threads
QUIET = {"hide_parameters": True}  # an error that is logged names no answer and no secret
LOCK = 4_712_025  # number of the PostgreSQL lock that serialises writes, as SQLite does


class Json(sa.TypeDecorator):
    """A value that is stored as its JSON in ASCII."""

    impl, cache_ok = sa.Text, True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return json.dumps(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else json.loads(value)


def _columns(**kinds: Any) -> list[sa.Column]:
    return [sa.Column(name, kind, nullable=False) for name, kind in kinds.items()]


METADATA = sa.MetaData()
SETTINGS = sa.Table("settings", METADATA, sa.Column("name", sa.Text, primary_key=True), *_columns(value=sa.Text))
INVITATIONS = sa.Table(
    "invitations",
    METADATA,
    sa.Column("annotator", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    *_columns(at=sa.Double),
)
OPEN, DONE, SKIPPED = "open", "done", "skipped"  # states of an assignment
# The state of each assignment. Events up to the number `since` no longer count, after an undo. `closed` is the number of the
# event that ended it, `opened` of the event that assigned or reopened it last (numbers, because a clock can be set back).
ASSIGNMENTS = sa.Table(
    "assignments",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    *_columns(item=Json, kind=sa.Text, case_id=Json, judges=Json, annotator=sa.Text),
    *_columns(slots=Json, parts=Json, state=sa.Text),
    *_columns(version=sa.Integer, since=sa.Integer, opened=sa.Integer, closed=sa.Integer, touched_at=sa.Double),
    sa.UniqueConstraint("annotator", "kind", "case_id"),
    sa.Index("assignments_by_state", "state", "touched_at", "item"),
    sqlite_autoincrement=True,
)
# Events, never changed and never deleted: "given", "answer", "skip", "undo".
EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("assignment", sa.ForeignKey("assignments.id"), nullable=False, index=True),
    *_columns(role=sa.Text, what=sa.Text, part=Json, content=Json),
    sa.Column("seconds", sa.Double),
    *_columns(at=sa.Double),
    sqlite_autoincrement=True,
)
DRAFTS = sa.Table(
    "drafts",
    METADATA,
    sa.Column("assignment", sa.ForeignKey("assignments.id"), primary_key=True),
    sa.Column("part", Json, primary_key=True),
    *_columns(content=Json),
)


class Database:
    """A study's database; threads and processes can share it.

    `url` is a SQLAlchemy URL, sqlite or postgresql; a password is read from PGPASSWORD or a .pgpass file. RecordError, which
    names `place`, is raised if the database cannot be opened, or belongs to a study of another `fingerprint`.
    """

    def __init__(self, url: str, fingerprint: str, place: str):
        self._writing = threading.Lock()  # threads wait here, which is fairer than SQLite's retries
        shown = url.removeprefix("sqlite:///")
        try:
            with ExitStack() as opened:
                self._engine = _engine(sa.make_url(url))
                opened.callback(self.close)
                with self.write() as connection:
                    METADATA.create_all(connection)
                    put(connection, SETTINGS, {"name": "study"}, anew=False, value=fingerprint)
                    stored = setting(connection, "study")
                if stored != fingerprint:
                    raise RecordError(
                        f"{place}: database: {shown} belongs to another study, or the cases, verdicts or rubrics changed "
                        f"({stored}, now {fingerprint}): choose another database"
                    )
                opened.pop_all()
        except (SQLAlchemyError, ImportError, OSError) as error:
            reason = " ".join(str(getattr(error, "orig", None) or error).split())
            raise RecordError(f"{place}: database: {shown} cannot be opened: {reason}") from None

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction that can write; such transactions run one after another."""
        with self._writing, self._engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a transaction that reads a consistent state, also during writes."""
        with self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection


def setting(connection: sa.Connection, name: str) -> str | None:
    """Return the value of a setting, None if there is none."""
    return connection.scalar(sa.select(SETTINGS.c.value).where(SETTINGS.c.name == name))


def put(connection: sa.Connection, table: sa.Table, key: Mapping[str, Any], anew: bool = True, **values: Any) -> bool:
    """Store one row with the values of `key` in place of an earlier one, without `anew` only if there is none.

    Return whether it was stored.
    """
    if not anew and connection.execute(sa.select(table).filter_by(**key)).first():
        return False
    connection.execute(sa.delete(table).filter_by(**key))
    connection.execute(sa.insert(table).values(**key, **values))
    return True


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        # The driver that the package names, whatever SQLAlchemy's default is.
        url = url.set(drivername="postgresql+psycopg")
        return sa.create_engine(url, **QUIET, pool_size=16, max_overflow=32, pool_pre_ping=True)
    file = Path(url.database or "")  # a study's reader refuses a database in memory
    file.parent.mkdir(parents=True, exist_ok=True)
    # Only the user who runs the study can read the answers; SQLite gives its other files the same rights.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    options = {"timeout": BUSY, "isolation_level": None}
    engine = sa.create_engine(url, **QUIET, connect_args=options, pool_size=THREADS, max_overflow=0)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # The write lock is taken at once: a transaction that reads first would fail if another one writes meanwhile.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
