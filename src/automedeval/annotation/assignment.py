"""Assign items to annotators: which items are free, in which order of slots, and the state of an assignment.

All functions read within one transaction of the database; `store` writes.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from sqlite3 import Connection

from automedeval.annotation.database import OPEN, DatabaseRow
from automedeval.annotation.study import (
    DECISION,
    HARM,
    PREFERENCE,
    RESPONSES,
    VERDICT,
    Annotator,
    Item,
    Study,
)
from automedeval.records import JsonObject


@dataclass(frozen=True)
class Assignment:
    """An item that is assigned to one annotator.

    `order` says which response is in which slot (indices of `Study.case_of(item).responses`) where
    responses are rated or the jury decides; of a "prefer" item, which of `item.judges` is on which
    side. Other verdicts have their own order.
    """

    id: int
    item: Item
    annotator: str
    order: tuple[int, ...]
    parts: tuple[str, ...]  # to answer, in this order; the judges' verdicts are in a random order
    answers: Mapping[str, JsonObject]  # by part
    drafts: Mapping[str, JsonObject]
    part: str | None  # to answer now; None if done or skipped
    version: int  # number of stored changes (answers, skips, undos); every form holds it
    state: str  # "open", "done" or "skipped"

    @property
    def slots(self) -> range:
        """Return the numbers of the slots, from 1."""
        return range(1, len(self.order) + 1)


@dataclass(frozen=True)
class Progress:
    """An annotator's tasks: done, skipped, open, and items that can still be assigned to them."""

    done: int
    skipped: int
    open: int
    left: int


def free_items(
    connection: Connection, study: Study, annotator: Annotator, since: float
) -> list[Item]:
    """Return the items that can be assigned to an annotator, the next one first.

    They are sorted by kind (in the order of the study's file), the items of the overlap first, then by the number of
    assignments, then in the study's order. Items that everybody answers are in the study's order alone: then a study that ends
    early has cases that all have answered. An annotator gets a case once under each kind. Open assignments without activity
    after the time `since` do not count.
    """
    counted = connection.execute(
        "SELECT item, count(*) AS number FROM assignments "
        "WHERE state = 'done' OR (state = 'open' AND touched_at > ?) GROUP BY item",
        [since],
    )
    taken = {row.item: row.number for row in counted}
    assigned = connection.execute(
        "SELECT kind, case_id FROM assignments WHERE annotator = ?", [annotator.name]
    )
    seen = {(row.kind, row.case_id) for row in assigned}
    free = []
    for number, (kind, plan) in enumerate(study.plans.items()):
        if annotator.role not in plan.roles:
            continue
        for place, item in enumerate(item for item in study.items if item.kind == kind):
            count = taken.get(item.key, 0)
            is_shared = place < plan.overlap
            # The overlap goes to everybody, however many answered it and then left the study.
            if (is_shared or count < item.needed) and (kind, item.case_id) not in seen:
                rank = (number, not is_shared, count if item.needed < plan.able else 0, place)
                free.append((rank, item))
    return [item for _, item in sorted(free, key=itemgetter(0))]


def new_row(study: Study, item: Item, annotator: Annotator) -> JsonObject:
    """Return the row of a new assignment, with slots and verdicts in a random order.

    The jury has the slots of the verdict on record.
    """
    rng = random.Random(f"{study.seed}:{annotator.name}:{item.key}")
    slots = list(range(len(study.case_of(item).responses)))
    parts = {"jury": [DECISION], "harm": [HARM], "rate": [RESPONSES]}.get(item.kind, [])
    if item.kind == "prefer":
        slots = [0, 1]
        parts = [PREFERENCE]
    else:
        parts += [VERDICT + judge for judge in rng.sample(item.judges, len(item.judges))]
    rng.shuffle(slots)
    if item.kind == "jury":
        slots = list(study.disputes[item.case_id].recorded.order)
    numbers = dict.fromkeys(("version", "since", "opened", "closed", "touched_at"), 0)
    return {
        "item": item.key,
        "kind": item.kind,
        "case_id": item.case_id,
        "judges": item.judges,
        "annotator": annotator.name,
        **numbers,
        "slots": slots,
        "parts": parts,
        "state": OPEN,
    }


def read_assignment(connection: Connection, row: DatabaseRow) -> Assignment:
    """Return an assignment with its stored content."""
    stored = connection.execute(
        "SELECT part, content FROM events WHERE assignment = ? AND what = 'answer' AND id > ? ORDER BY id",
        [row.id, row.since],
    )
    begun = connection.execute("SELECT part, content FROM drafts WHERE assignment = ?", [row.id])
    answers = {event.part: event.content for event in stored}
    drafts = {draft.part: draft.content for draft in begun}
    waiting = [part for part in row.parts if part not in answers and row.state == OPEN]
    return Assignment(
        id=row.id,
        item=item_of(row),
        annotator=row.annotator,
        order=tuple(row.slots),
        parts=tuple(row.parts),
        answers=answers,
        drafts=drafts,
        part=waiting[0] if waiting else None,
        version=row.version,
        state=row.state,
    )


def item_of(row: DatabaseRow) -> Item:
    return Item(row.item, row.kind, row.case_id, tuple(row.judges))
