"""Store invitations, assignments, drafts and answers; answers are appended and never changed.

Every public method is one transaction and keeps nothing in memory, so several processes can serve one study.
"""

import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from automedeval.annotation import database as db
from automedeval.annotation.assignment import (
    Assignment,
    Progress,
    free_items,
    item_of,
    new_row,
    read_assignment,
)
from automedeval.annotation.forms import read_answer
from automedeval.annotation.study import Annotator, Study
from automedeval.annotation.validation import Refused, checked_reason
from automedeval.records import JsonObject

# Columns that the history tells as they are.
TOLD = ("assignment", "item", "kind", "case_id", "judges", "annotator", "role")
Form = Mapping[str, Sequence[str]]  # what a browser sends: name of a field → its values
RETURNED = 3600.0  # seconds without activity after which an assignment no longer counts as taken


class NotYours(Refused):
    """There is no such task for this annotator, or it is another one's."""


class Stale(Refused):
    """Something was stored after the form was made."""

    status = 409
    heading = "This form is out of date"


class Store(db.Database):
    """The database of a study; `clock` returns the time in seconds since 1970. RecordError as `Database`."""

    def __init__(self, study: Study, clock: Callable[[], float] = time.time):
        super().__init__(study.database, study.fingerprint, study.place)
        self.study = study
        self.clock = clock

    # --- who takes part ---

    def invite(self, annotator: str, anew: bool = True) -> str | None:
        """Return a new token of 256 random bits for an annotator's invitation; an earlier one becomes void.

        Without `anew` an earlier one stays, and None is returned. Only the SHA-256 of the token is stored.
        """
        token = secrets.token_urlsafe(32)
        clash = "REPLACE" if anew else "IGNORE"
        at = self.clock()
        with self.transaction():
            is_new = self._put(
                "invitations", clash, annotator=annotator, digest=_digest(token), at=at
            )
        return token if is_new else None

    def annotator_of(self, token: str) -> Annotator | None:
        """Return the annotator of an invitation's token, None if it is void or the annotator no longer takes part."""
        with self.transaction():
            query = "SELECT annotator FROM invitations WHERE digest = ?"
            row = self._connection.execute(query, [_digest(token)]).fetchone()
        return None if row is None else self.study.annotators.get(row.annotator)

    def _annotator(self, annotator: str) -> Annotator:
        if (who := self.study.annotators.get(annotator)) is None:
            raise NotYours("You do not take part in this study.")
        return who

    # --- tasks ---

    def next(self, annotator: str) -> Assignment | None:
        """Return the annotator's latest open assignment, else a new one (see `free_items`); None if nothing is left.

        After `RETURNED` seconds without activity the item can be assigned to others; the assignment can still be finished.
        """
        who = self._annotator(annotator)
        with self.transaction():
            if latest := self._latest_open(annotator):
                self._touch(latest.id)
                return latest
            free = free_items(self._connection, self.study, who, self.clock() - RETURNED)
            if not free:
                return None
            number = self._put("assignments", **new_row(self.study, free[0], who))
            self._touch(number, opened=self._happened(annotator, number, "given"))
            return self._assignment_of(annotator, number)

    def assignment(self, annotator: str, number: int) -> Assignment:
        """Return an assignment of an annotator; raises NotYours if there is none of this number."""
        with self.transaction():
            return self._assignment_of(annotator, number)

    def keep_draft(self, annotator: str, number: int, part: str, form: Form) -> None:
        """Store a draft of the current part in place of an earlier one; raise NotYours, Stale or Invalid."""
        with self.transaction():
            before = self._assignment_of(annotator, number)
            if part != before.part:
                raise Stale("This part of the task is stored already.")
            draft = read_answer(self.study, before, part, form, draft=True)
            self._put("drafts", "REPLACE", assignment=number, part=part, content=draft)
            self._touch(number)

    def answer(
        self, annotator: str, number: int, part: str, form: Form, version: int
    ) -> Assignment:
        """Store the answer to a part; return the assignment afterwards. NotYours, Stale or Invalid: nothing was stored.

        `version` is that of the assignment when the form was made. Sending the last stored answer again changes nothing and
        succeeds.
        """
        with self.transaction():
            before = self._assignment_of(annotator, number)
            stored = read_answer(self.study, before, part, form)
            if version != before.version:
                self._refuse_other(before, version, "answer", part, stored)
                return before
            if part != before.part:
                raise Stale("This part of the task is not the one that is to be done now.")
            event = self._happened(annotator, number, "answer", part=part, content=stored)
            self._connection.execute(
                "DELETE FROM drafts WHERE assignment = ? AND part = ?", [number, json.dumps(part)]
            )
            is_last = len(before.answers) + 1 == len(before.parts)
            ends = {"state": db.DONE, "closed": event} if is_last else {}
            self._touch(number, version=version + 1, **ends)
            return self._assignment_of(annotator, number)

    def skip(self, annotator: str, number: int, reason: str, version: int) -> None:
        """Skip an assignment, so that others can get its item; stored parts count. Raise NotYours, Stale or Invalid."""
        with self.transaction():
            before = self._assignment_of(annotator, number)
            content = {"reason": checked_reason(reason)}
            if version != before.version:
                return self._refuse_other(before, version, "skip", "", content)
            if before.state != db.OPEN:
                raise Stale("This task is finished already.")
            event = self._happened(annotator, number, "skip", content=content)
            self._touch(number, state=db.SKIPPED, closed=event, version=version + 1)

    def undo(self, annotator: str) -> Assignment | None:
        """Reopen the annotator's last finished or skipped assignment; return None if there is none.

        Its answers stay in the history, no longer count, and become drafts. A second undo before anything else is stored
        changes nothing.
        """
        with self.transaction():
            latest = self._latest_open(annotator)
            if latest is not None and self._last(latest.id).what == "undo":
                return latest
            ended = self._find(annotator, "state != 'open' ORDER BY closed DESC")
            if ended is None:
                return None
            for part, content in ended.answers.items():
                self._put("drafts", "REPLACE", assignment=ended.id, part=part, content=content)
            event = self._happened(annotator, ended.id, "undo")
            self._touch(
                ended.id,
                state=db.OPEN,
                since=event,
                opened=event,
                closed=0,
                version=ended.version + 1,
            )
            return self._assignment_of(annotator, ended.id)

    def progress(self, annotator: str) -> Progress:
        """Return the numbers of an annotator's tasks."""
        who = self._annotator(annotator)
        with self.transaction():
            by_state = "SELECT state, count(*) AS number FROM assignments WHERE annotator = ? GROUP BY state"
            rows = self._connection.execute(by_state, [annotator])
            counts = Counter({row.state: row.number for row in rows})
            left = len(free_items(self._connection, self.study, who, self.clock() - RETURNED))
        return Progress(counts[db.DONE], counts[db.SKIPPED], counts[db.OPEN], left)

    # --- reading everything ---

    def answers(self) -> Iterator[db.DatabaseRow]:
        """Return the answers that count, in the order in which they were stored, each with its `Item` and `order`.

        `role` is the annotator's at that time.
        """
        for row in self._events("WHERE what = 'answer' AND events.id > since"):
            row.item = item_of(row)
            row.order = tuple(row.slots)
            yield row

    def history(self) -> Iterator[JsonObject]:
        """Return all events in order: "given", "answer", "skip", "undo", each with its time (UTC, ISO 8601).

        `counts` is whether an answer still counts, which an undo ends; it is None for other events.
        """
        for row in self._events():
            when = datetime.fromtimestamp(row.at, UTC).isoformat(timespec="milliseconds")
            yield {
                "what": row.what,
                "when": when,
                **{name: getattr(row, name) for name in TOLD},
                "order": row.slots,
                "part": row.part or None,
                "content": row.content or None,
                "counts": row.id > row.since if row.what == "answer" else None,
            }

    def secret(self) -> str:
        """Return the secret that signs the sessions, which is made once."""
        with self.transaction():
            self._put("settings", "IGNORE", name="session_secret", value=secrets.token_urlsafe(32))
            return self._setting("session_secret")

    # --- rows ---

    def _events(self, which: str = "") -> list[db.DatabaseRow]:
        """Return events with their assignments, in chronological order."""
        joined = f"SELECT * FROM assignments JOIN events ON assignment = assignments.id {which} ORDER BY events.id"
        with self.transaction():
            return self._connection.execute(joined).fetchall()

    def _find(self, annotator: str, which: str, *values: Any) -> Assignment | None:
        query = f"SELECT * FROM assignments WHERE annotator = ? AND {which} LIMIT 1"
        row = self._connection.execute(query, [annotator, *values]).fetchone()
        return None if row is None else read_assignment(self._connection, row)

    def _latest_open(self, annotator: str) -> Assignment | None:
        return self._find(annotator, "state = 'open' ORDER BY opened DESC")

    def _assignment_of(self, annotator: str, number: int) -> Assignment:
        # Above 2^63 there is none, and SQLite takes no such number.
        assignment = self._find(annotator, "id = ?", number) if number < 2**63 else None
        if assignment is None:
            raise NotYours("There is no such task for you.")
        return assignment

    def _last(self, number: int) -> db.DatabaseRow:
        query = "SELECT * FROM events WHERE assignment = ? ORDER BY id DESC LIMIT 1"
        return self._connection.execute(query, [number]).fetchone()

    def _refuse_other(self, before: Assignment, version: int, *event: Any) -> None:
        """Raise Stale unless the same form, with the same content, was stored last."""
        last = self._last(before.id)
        if version != before.version - 1 or event != (last.what, last.part, last.content):
            raise Stale(
                "This form is out of date: something else was stored of the task since it was opened."
            )

    def _happened(
        self,
        annotator: str,
        number: int,
        what: str,
        part: str = "",
        content: JsonObject | None = None,
    ) -> int:
        """Append an event of an assignment; return its number."""
        role = self._annotator(annotator).role
        return self._put(
            "events", assignment=number, what=what, role=role, at=self.clock(),
            part=part, content=content or {},
        )  # fmt: skip

    def _touch(self, number: int, **values: Any) -> None:
        """Change columns of an assignment, and note that it was worked on now."""
        values["touched_at"] = self.clock()
        changes = ", ".join(f"{name} = ?" for name in values)
        query = f"UPDATE assignments SET {changes} WHERE id = ?"
        self._connection.execute(query, [*values.values(), number])


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
