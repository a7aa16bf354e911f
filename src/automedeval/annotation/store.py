"""Store invitations, assignments, drafts and answers; answers are appended and never changed.

Every public method is one transaction and keeps nothing in memory, so several processes can serve one study.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from automedeval.annotation import database as db
from automedeval.annotation.assignment import (
    Answer,
    Assignment,
    Progress,
    free_items,
    item_of,
    new_row,
    read_assignment,
)
from automedeval.annotation.forms import checked
from automedeval.annotation.study import Annotator, Study
from automedeval.annotation.validation import Invalid, Refused, checked_reason

RETURNED = 3600.0  # seconds without activity after which an assignment no longer counts as taken
LONGEST_TASK = 86_400.0  # seconds; longer times on a task are cut to this


class NotYours(Refused):
    """There is no such task for this annotator, or it is another one's."""


class Stale(Refused):
    """Something was stored after the form was made."""

    status, heading = 409, "This form is out of date"


class Store:
    """The database of a study; several processes may open it at once.

    `clock` returns the time in seconds since 1970. Raise RecordError if the database cannot be opened, or belongs to another
    study.
    """

    def __init__(self, study: Study, clock: Callable[[], float] = time.time):
        self.study, self.clock = study, clock
        self._database = db.Database(study.database, study.fingerprint, study.place)
        self._write, self._read = self._database.write, self._database.read

    def close(self) -> None:
        self._database.close()

    # --- who takes part ---

    def invite(self, annotator: str, anew: bool = True) -> str | None:
        """Return a new token of 256 random bits for an annotator's invitation; an earlier one becomes void.

        Without `anew` an earlier one stays, and None is returned. Only the SHA-256 of the token is stored.
        """
        token = secrets.token_urlsafe(32)
        key, values = {"annotator": annotator}, {"digest": _digest(token), "at": self.clock()}
        with self._write() as connection:
            return token if db.put(connection, db.INVITATIONS, key, anew, **values) else None

    def annotator_of(self, token: str) -> Annotator | None:
        """Return the annotator of an invitation's token, None if it is void or the annotator no longer takes part."""
        with self._read() as connection:
            of_token = db.INVITATIONS.c.digest == _digest(token)
            name = connection.scalar(sa.select(db.INVITATIONS.c.annotator).where(of_token))
        return None if name is None else self.study.annotator(name)

    def _annotator(self, annotator: str) -> Annotator:
        if (who := self.study.annotator(annotator)) is None:
            raise NotYours("You do not take part in this study.")
        return who

    # --- tasks ---

    def next(self, annotator: str) -> Assignment | None:
        """Return the annotator's latest open assignment, else a new one (see `free_items`); None if nothing is left.

        After `RETURNED` seconds without activity the item can be assigned to others; the assignment can still be finished.
        """
        who = self._annotator(annotator)
        with self._write() as connection:
            now = self.clock()
            if latest := self._latest_open(connection, annotator):
                self._change(connection, latest.id, touched_at=now)
                return latest
            free = free_items(connection, self.study, who, now - RETURNED)
            if not free:
                return None
            row = sa.insert(db.ASSIGNMENTS).values(**new_row(self.study, free[0], who), touched_at=now)
            number = _inserted(connection, row)
            self._change(connection, number, opened=self._happened(connection, annotator, number, "given"))
            return self._assignment_of(connection, annotator, number)

    def assignment(self, annotator: str, number: int) -> Assignment:
        """Return an assignment of an annotator; raises NotYours if there is none of this number."""
        with self._read() as connection:
            return self._assignment_of(connection, annotator, number)

    def keep_draft(self, annotator: str, number: int, part: str, content: dict[str, Any]) -> None:
        """Store a draft of the current part in place of an earlier one; raise NotYours, Stale or Invalid."""
        with self._write() as connection:
            before = self._assignment_of(connection, annotator, number)
            if part != before.part:
                raise Stale("This part of the task is stored already.")
            kept = checked(self.study, before, part, content, draft=True)
            db.put(connection, db.DRAFTS, {"assignment": number, "part": part}, content=kept)
            self._change(connection, number, touched_at=self.clock())

    def answer(
        self, annotator: str, number: int, part: str, content: dict[str, Any], version: int, seconds: float | None
    ) -> Assignment:
        """Store the answer to a part; return the assignment afterwards. NotYours, Stale or Invalid: nothing was stored.

        Args:
            version: of the assignment when the form was made. Sending the last stored answer again changes nothing and
                succeeds.
            seconds: time spent on the part, None if not measured.
        """
        with self._write() as connection:
            before = self._assignment_of(connection, annotator, number)
            if part not in before.parts:
                raise Invalid("This task has no such part.")
            stored = checked(self.study, before, part, content)
            if version != before.version:
                self._refuse_other(connection, before, version, "answer", part, stored)
                return before
            if part != before.part:
                raise Stale("This part of the task is not the one that is to be done now.")
            values = {"part": part, "content": stored, "seconds": seconds and min(seconds, LONGEST_TASK)}
            event = self._happened(connection, annotator, number, "answer", **values)
            connection.execute(sa.delete(db.DRAFTS).filter_by(assignment=number, part=part))
            ends = {"state": db.DONE, "closed": event} if len(before.answers) + 1 == len(before.parts) else {}
            self._change(connection, number, version=version + 1, touched_at=self.clock(), **ends)
            return self._assignment_of(connection, annotator, number)

    def skip(self, annotator: str, number: int, reason: str, version: int) -> None:
        """Skip an assignment, so that others can get its item; stored parts count. Raise NotYours, Stale or Invalid."""
        with self._write() as connection:
            before, content = self._assignment_of(connection, annotator, number), {"reason": checked_reason(reason)}
            if version != before.version:
                return self._refuse_other(connection, before, version, "skip", "", content)
            if before.state != db.OPEN:
                raise Stale("This task is finished already.")
            event = self._happened(connection, annotator, number, "skip", content=content)
            ends = {"state": db.SKIPPED, "closed": event, "version": version + 1, "touched_at": self.clock()}
            self._change(connection, number, **ends)

    def undo(self, annotator: str) -> Assignment | None:
        """Reopen the annotator's last finished or skipped assignment; return None if there is none.

        Its answers stay in the history, no longer count, and become drafts. A second undo before anything else is stored
        changes nothing.
        """
        self._annotator(annotator)
        with self._write() as connection:
            latest = self._latest_open(connection, annotator)
            if latest is not None and self._last(connection, latest.id).what == "undo":
                return latest
            ended = self._find(connection, annotator, db.ASSIGNMENTS.c.state != db.OPEN, db.ASSIGNMENTS.c.closed)
            if ended is None:
                return None
            for part, content in ended.answers.items():
                db.put(connection, db.DRAFTS, {"assignment": ended.id, "part": part}, content=content)
            event = self._happened(connection, annotator, ended.id, "undo")
            changes = {"state": db.OPEN, "since": event, "opened": event, "closed": 0, "version": ended.version + 1}
            self._change(connection, ended.id, **changes, touched_at=self.clock())
            return self._assignment_of(connection, annotator, ended.id)

    def progress(self, annotator: str) -> Progress:
        """Return the numbers of an annotator's tasks."""
        who = self._annotator(annotator)
        with self._read() as connection:
            by_state = sa.select(db.ASSIGNMENTS.c.state, sa.func.count()).where(db.ASSIGNMENTS.c.annotator == annotator)
            counts: dict[str, int] = dict(connection.execute(by_state.group_by(db.ASSIGNMENTS.c.state)).all())
            left = len(free_items(connection, self.study, who, self.clock() - RETURNED))
        return Progress(counts.get(db.DONE, 0), counts.get(db.SKIPPED, 0), counts.get(db.OPEN, 0), left)

    # --- reading everything ---

    def answers(self) -> Iterator[Answer]:
        """Return the answers that count, in the order in which they were stored."""
        for row in self._events(db.EVENTS.c.what == "answer", db.EVENTS.c.id > db.ASSIGNMENTS.c.since):
            fields = (row.part, tuple(row.slots), row.content, row.seconds, row.state)
            yield Answer(row.assignment, item_of(row), row.annotator, row.role, *fields)

    def history(self) -> Iterator[dict[str, Any]]:
        """Return all events in order: "given", "answer", "skip", "undo", each with its time (UTC, ISO 8601).

        `counts` is whether an answer still counts, which an undo ends; it is None for other events.
        """
        for row in self._events():
            event = {"what": row.what, "when": datetime.fromtimestamp(row.at, UTC).isoformat(timespec="milliseconds")}
            event |= {name: getattr(row, name) for name in ("assignment", "item", "kind", "case_id", "judges")}
            event |= {"annotator": row.annotator, "role": row.role, "order": row.slots, "part": row.part or None}
            event |= {"content": row.content or None, "seconds": row.seconds}
            yield event | {"counts": row.id > row.since if row.what == "answer" else None}

    def setting(self, name: str) -> str | None:
        """Return the value of a setting, None if it is not set."""
        with self._read() as connection:
            return db.setting(connection, name)

    def set_setting(self, name: str, value: str, anew: bool = True) -> bool:
        """Set a setting, without `anew` only if it is not set; return whether it was."""
        with self._write() as connection:
            return db.put(connection, db.SETTINGS, {"name": name}, anew, value=value)

    # --- rows ---

    def _events(self, *which: sa.ColumnElement) -> Sequence[sa.Row]:
        """Return events with their assignments, in chronological order."""
        about = [column for column in db.ASSIGNMENTS.c if column.name != "id"]
        joined = sa.select(db.EVENTS, *about).join(db.ASSIGNMENTS, db.EVENTS.c.assignment == db.ASSIGNMENTS.c.id)
        with self._read() as connection:
            return connection.execute(joined.where(*which).order_by(db.EVENTS.c.id)).all()

    def _find(
        self, connection: sa.Connection, annotator: str, which: sa.ColumnElement, latest: sa.ColumnElement
    ) -> Assignment | None:
        query = sa.select(db.ASSIGNMENTS).where(db.ASSIGNMENTS.c.annotator == annotator, which).order_by(latest.desc())
        row = connection.execute(query.limit(1)).first()
        return None if row is None else read_assignment(connection, row)

    def _latest_open(self, connection: sa.Connection, annotator: str) -> Assignment | None:
        return self._find(connection, annotator, db.ASSIGNMENTS.c.state == db.OPEN, db.ASSIGNMENTS.c.opened)

    def _assignment_of(self, connection: sa.Connection, annotator: str, number: int) -> Assignment:
        self._annotator(annotator)
        assignment = None
        if number < 2**31:  # the range of a database's integers
            assignment = self._find(connection, annotator, db.ASSIGNMENTS.c.id == number, db.ASSIGNMENTS.c.id)
        if assignment is None:
            raise NotYours("There is no such task for you.")
        return assignment

    def _last(self, connection: sa.Connection, number: int) -> sa.Row:
        query = sa.select(db.EVENTS).where(db.EVENTS.c.assignment == number)
        return connection.execute(query.order_by(db.EVENTS.c.id.desc()).limit(1)).one()

    def _refuse_other(self, connection: sa.Connection, before: Assignment, version: int, *event: Any) -> None:
        """Raise Stale unless the same form, with the same content, was stored last."""
        last = self._last(connection, before.id)
        if version != before.version - 1 or event != (last.what, last.part, last.content):
            raise Stale("This form is out of date: something else was stored of the task since it was opened.")

    def _happened(self, connection: sa.Connection, annotator: str, number: int, what: str, **values: Any) -> int:
        row = {"part": "", "content": {}, "seconds": None} | values
        row |= {"assignment": number, "role": self._annotator(annotator).role, "what": what, "at": self.clock()}
        return _inserted(connection, sa.insert(db.EVENTS).values(row))

    def _change(self, connection: sa.Connection, number: int, **values: Any) -> None:
        connection.execute(sa.update(db.ASSIGNMENTS).where(db.ASSIGNMENTS.c.id == number).values(**values))


def _inserted(connection: sa.Connection, row: sa.Insert) -> int:
    key = connection.execute(row).inserted_primary_key
    assert key is not None  # of the one row
    return key[0]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
