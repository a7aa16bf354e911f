"""What physicians did: invitations, assignments, drafts, and answers that are only ever added to.

Every public method is one transaction and keeps nothing in memory, so that several processes may serve one study.
"""

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from automedeval.annotation.assignment import (
    DONE,
    OPEN,
    SKIPPED,
    Answer,
    Assignment,
    Progress,
    free_items,
    item_of,
    new_row,
    read_assignment,
    read_events,
)
from automedeval.annotation.database import (
    ASSIGNMENTS,
    DRAFTS,
    EVENTS,
    FAILURES,
    INVITATIONS,
    SETTINGS,
    Database,
    setting,
)
from automedeval.annotation.study import Annotator, Study
from automedeval.annotation.validation import Invalid, checked, checked_reason
from automedeval.records import AutoMedEvalError, RecordError

LONGEST_TASK = 86_400.0  # seconds; a page that stayed open longer measures nothing
KEPT = 86_400.0  # seconds that failed attempts are kept


class NotYours(AutoMedEvalError):
    """There is no such task for this annotator; the message is one plain sentence for the physician."""


class Stale(AutoMedEvalError):
    """The form was made before something else was stored; the message is one plain sentence for the physician."""


class Store:
    """The database of a study; several processes may open it at once.

    Args:
        clock: returns the time in seconds since 1970.
        return_after: seconds after which an assignment that nobody touched no longer counts as taken.

    Raises:
        RecordError: the database cannot be opened, or is another study's.
    """

    def __init__(self, study: Study, clock: Callable[[], float] = time.time, return_after: float = 3600.0):
        self.study, self.clock, self.return_after = study, clock, return_after
        self._database = Database(study.database, study.fingerprint, study.place)
        self._needed = {item.key: item.needed for item in study.items}
        self._write, self._read = self._database.write, self._database.read

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    # --- who takes part ---

    def invite(self, annotator: str) -> str:
        """Return a fresh token for an annotator's invitation, of 256 random bits; an earlier one is void.

        Only the token's SHA-256 is stored.

        Raises:
            RecordError: nobody of this name takes part.
        """
        if self.study.annotator(annotator) is None:
            names = ", ".join(each.name for each in self.study.annotators)
            raise RecordError(f"{self.study.place}: annotators: {annotator!r} is none of {names}")
        token = secrets.token_urlsafe(32)
        with self._write() as connection:
            connection.execute(sa.delete(INVITATIONS).where(INVITATIONS.c.annotator == annotator))
            row = {"annotator": annotator, "digest": _digest(token), "at": self.clock()}
            connection.execute(sa.insert(INVITATIONS), row)
        return token

    def invited(self) -> set[str]:
        """Return who has an invitation."""
        with self._read() as connection:
            return set(connection.scalars(sa.select(INVITATIONS.c.annotator)))

    def annotator_of(self, token: str) -> Annotator | None:
        """Return whose invitation a token is, None if it is void or its annotator takes part no longer."""
        with self._read() as connection:
            name = connection.scalar(sa.select(INVITATIONS.c.annotator).where(INVITATIONS.c.digest == _digest(token)))
        return None if name is None else self.study.annotator(name)

    def _known(self, annotator: str) -> Annotator:
        if (found := self.study.annotator(annotator)) is None:
            raise NotYours("You do not take part in this study.")
        return found

    # --- tasks ---

    def next(self, annotator: str) -> Assignment | None:
        """Return the annotator's open assignment, the latest first, else a new one; None if nothing is left.

        See `free_items` for which one. An assignment that nobody touched for `return_after` seconds counts as taken no longer;
        who comes back to it can still finish it.
        """
        who = self._known(annotator)
        with self._write() as connection:
            now = self.clock()
            row = self._latest_open(connection, annotator)
            if row is not None:
                self._change(connection, row.id, touched_at=now)
                return self._read_assignment(connection, row)
            free = free_items(connection, self.study, who, now - self.return_after)
            if not free:
                return None
            row = sa.insert(ASSIGNMENTS).values(**new_row(self.study, free[0], who), touched_at=now)
            number = connection.execute(row).inserted_primary_key[0]
            self._change(connection, number, opened=self._happened(connection, number, who.role, "given"))
            return self._read_assignment(connection, self._row(connection, annotator, number))

    def assignment(self, annotator: str, number: int) -> Assignment:
        """Return an assignment of an annotator; raises NotYours if there is none of this number."""
        self._known(annotator)
        with self._read() as connection:
            return self._read_assignment(connection, self._row(connection, annotator, number))

    def keep_draft(self, annotator: str, number: int, part: str, content: dict[str, Any]) -> None:
        """Keep what is half-filled of the part that is to be done now; the last one wins, and the hour begins anew.

        Raises:
            NotYours, Stale, Invalid: nothing was kept.
        """
        self._known(annotator)
        with self._write() as connection:
            before = self._read_assignment(connection, self._row(connection, annotator, number))
            if part != before.part:
                raise Stale("This part of the task is stored already.")
            kept = checked(self.study, before.item, before.order, part, content, draft=True)
            self._put_draft(connection, number, part, kept)
            self._change(connection, number, touched_at=self.clock())

    def answer(
        self, annotator: str, number: int, part: str, content: dict[str, Any], version: int, seconds: float | None
    ) -> Assignment:
        """Store the answer to a part, once and for all, and return what the assignment has become.

        Args:
            version: of the assignment when the form was made. The same answer once more, to the part that was stored last, is
                the same success.
            seconds: spent on the part, None where nobody measured it.

        Raises:
            NotYours, Stale, Invalid: nothing was stored.
        """
        who = self._known(annotator)
        with self._write() as connection:
            row = self._row(connection, annotator, number)
            before = self._read_assignment(connection, row)
            if part not in before.parts:
                raise Invalid("This task has no such part.")
            stored = checked(self.study, before.item, before.order, part, content)
            if version != before.version:
                self._refuse_other(connection, before, version, "answer", part, stored)
                return before
            if part != before.part:
                raise Stale("This part of the task is not the one that is to be done now.")
            event = self._happened(connection, number, who.role, "answer", part, stored, _duration(seconds))
            drafts = sa.and_(DRAFTS.c.assignment == number, DRAFTS.c.part == json.dumps(part))
            connection.execute(sa.delete(DRAFTS).where(drafts))
            ends = {"state": DONE, "closed": event} if len(before.answers) + 1 == len(before.parts) else {}
            self._change(connection, number, version=version + 1, touched_at=self.clock(), **ends)
            return self._read_assignment(connection, self._row(connection, annotator, number))

    def skip(self, annotator: str, number: int, reason: str, version: int) -> None:
        """Lay an assignment aside and keep why; the item goes to another. Parts that are stored stay and count.

        Raises:
            NotYours, Stale, Invalid: nothing was stored.
        """
        who = self._known(annotator)
        with self._write() as connection:
            before = self._read_assignment(connection, self._row(connection, annotator, number))
            content = {"reason": checked_reason(reason)}
            if version != before.version:
                return self._refuse_other(connection, before, version, "skip", "", content)
            if before.state != OPEN:
                raise Stale("This task is finished already.")
            event = self._happened(connection, number, who.role, "skip", content=content)
            ends = {"state": SKIPPED, "closed": event, "version": version + 1, "touched_at": self.clock()}
            self._change(connection, number, **ends)

    def undo(self, annotator: str) -> Assignment | None:
        """Reopen the annotator's last finished or skipped assignment; None if there is none.

        Its answers stay in the history, count no longer, and become drafts. While nothing was stored of it since, a second undo
        changes nothing more.
        """
        who = self._known(annotator)
        with self._write() as connection:
            latest = self._latest_open(connection, annotator)
            if latest is not None and self._last(connection, latest.id).what == "undo":
                return self._read_assignment(connection, latest)
            own = sa.and_(ASSIGNMENTS.c.annotator == annotator, ASSIGNMENTS.c.state != OPEN)
            ended = sa.select(ASSIGNMENTS).where(own).order_by(ASSIGNMENTS.c.closed.desc())
            row = connection.execute(ended.limit(1)).first()
            if row is None:
                return None
            for part, content in self._read_assignment(connection, row).answers.items():
                self._put_draft(connection, row.id, part, content)
            event = self._happened(connection, row.id, who.role, "undo")
            changes = {"state": OPEN, "since": event, "opened": event, "closed": 0, "version": row.version + 1}
            self._change(connection, row.id, **changes, touched_at=self.clock())
            return self._read_assignment(connection, self._row(connection, annotator, row.id))

    def progress(self, annotator: str) -> Progress:
        """Return how far an annotator is."""
        who = self._known(annotator)
        with self._read() as connection:
            by_state = sa.select(ASSIGNMENTS.c.state, sa.func.count()).where(ASSIGNMENTS.c.annotator == annotator)
            counts = dict(connection.execute(by_state.group_by(ASSIGNMENTS.c.state)).all())
            left = len(free_items(connection, self.study, who, self.clock() - self.return_after))
        return Progress(counts.get(DONE, 0), counts.get(SKIPPED, 0), counts.get(OPEN, 0), left)

    # --- what is there ---

    def answers(self) -> Iterator[Answer]:
        """Return the answers that count now, in the order in which they were stored."""
        with self._read() as connection:
            rows = read_events(connection, sa.and_(EVENTS.c.what == "answer", EVENTS.c.id > ASSIGNMENTS.c.since))
        for row in rows:
            yield Answer(
                row.assignment,
                item_of(row),
                row.annotator,
                row.role,
                json.loads(row.part),
                tuple(json.loads(row.slots)),
                json.loads(row.content),
                row.seconds,
                row.at,
            )

    def history(self) -> Iterator[dict[str, Any]]:
        """Return all that ever happened, in order: "given", "answer", "skip", "undo", each with its time (UTC, ISO 8601).

        `counts` says of an answer whether it still counts, or an undo took it back; it is None for the rest.
        """
        with self._read() as connection:
            rows = read_events(connection, sa.true())
        for row in rows:
            item, when = item_of(row), datetime.fromtimestamp(row.at, UTC)
            yield {
                "what": row.what,
                "when": when.isoformat(timespec="milliseconds"),
                "assignment": row.assignment,
                "item": item.key,
                "kind": item.kind,
                "case_id": item.case_id,
                "judges": list(item.judges),
                "annotator": row.annotator,
                "role": row.role,
                "order": json.loads(row.slots),
                "part": json.loads(row.part) or None,
                "content": json.loads(row.content) or None,
                "seconds": row.seconds,
                "counts": row.id > row.since if row.what == "answer" else None,
            }

    def setting(self, name: str) -> str | None:
        """Return what `set_setting` kept under a name, None if nothing was."""
        with self._read() as connection:
            return setting(connection, name)

    def set_setting(self, name: str, value: str) -> None:
        """Keep a text under a name, in the place of an earlier one; the name "study" is the store's own."""
        if name == "study":
            raise ValueError("the setting 'study' is the store's own")
        with self._write() as connection:
            connection.execute(sa.delete(SETTINGS).where(SETTINGS.c.name == name))
            connection.execute(sa.insert(SETTINGS).values(name=name, value=value))

    def failures(self, who: str, within: float) -> int:
        """Return how many attempts of somebody failed within so many seconds, of a day at most."""
        with self._read() as connection:
            failed = sa.and_(FAILURES.c.who == json.dumps(who), FAILURES.c.at > self.clock() - within)
            return connection.scalar(sa.select(sa.func.count()).where(failed))

    def fail(self, who: str) -> None:
        """Keep that an attempt of somebody failed."""
        with self._write() as connection:
            now = self.clock()
            connection.execute(sa.delete(FAILURES).where(FAILURES.c.at < now - KEPT))
            connection.execute(sa.insert(FAILURES).values(who=json.dumps(who), at=now))

    # --- rows ---

    def _row(self, connection: sa.Connection, annotator: str, number: int) -> sa.Row:
        own = sa.and_(ASSIGNMENTS.c.id == number, ASSIGNMENTS.c.annotator == annotator)
        row = None
        if type(number) is int and 0 < number < 2**31:  # what a database holds as a number
            row = connection.execute(sa.select(ASSIGNMENTS).where(own)).first()
        if row is None:
            raise NotYours("There is no such task for you.")
        return row

    def _latest_open(self, connection: sa.Connection, annotator: str) -> sa.Row | None:
        own = sa.and_(ASSIGNMENTS.c.annotator == annotator, ASSIGNMENTS.c.state == OPEN)
        return connection.execute(
            sa.select(ASSIGNMENTS).where(own).order_by(ASSIGNMENTS.c.opened.desc()).limit(1)
        ).first()

    def _read_assignment(self, connection: sa.Connection, row: sa.Row) -> Assignment:
        return read_assignment(connection, row, self._needed)

    def _last(self, connection: sa.Connection, number: int) -> sa.Row:
        own = sa.select(EVENTS).where(EVENTS.c.assignment == number)
        return connection.execute(own.order_by(EVENTS.c.id.desc()).limit(1)).one()

    def _refuse_other(
        self, connection: sa.Connection, before: Assignment, version: int, what: str, part: str, content: dict[str, Any]
    ) -> None:
        """Raise Stale unless just this was stored last, from the form that is sent again."""
        last = self._last(connection, before.id)
        same = (last.what, json.loads(last.part), json.loads(last.content)) == (what, part, content)
        if not (same and version == before.version - 1):
            raise Stale("This form is out of date: something else was stored of the task since it was opened.")

    def _happened(
        self,
        connection: sa.Connection,
        number: int,
        role: str,
        what: str,
        part: str = "",
        content: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> int:
        told = {"part": json.dumps(part), "content": json.dumps(content or {}), "seconds": seconds, "at": self.clock()}
        row = sa.insert(EVENTS).values(assignment=number, role=role, what=what, **told)
        return connection.execute(row).inserted_primary_key[0]

    def _change(self, connection: sa.Connection, number: int, **values: Any) -> None:
        connection.execute(sa.update(ASSIGNMENTS).where(ASSIGNMENTS.c.id == number).values(**values))

    def _put_draft(self, connection: sa.Connection, number: int, part: str, content: Mapping[str, Any]) -> None:
        row = {"assignment": number, "part": json.dumps(part)}
        own = sa.and_(*(DRAFTS.c[name] == value for name, value in row.items()))
        connection.execute(sa.delete(DRAFTS).where(own))
        connection.execute(sa.insert(DRAFTS).values(**row, content=json.dumps(content)))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _duration(seconds: object) -> float | None:
    """Return a time on task, of a day at most, or None; raises Invalid for what is no time."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
        raise Invalid("The time on the task is not a time.")
    return min(float(seconds), LONGEST_TASK)
