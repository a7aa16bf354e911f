"""Assignments: which item is given to whom, in which order of slots, and what became of it.

Everything here reads one transaction's state of the database; `store` decides what is written.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from automedeval.annotation.database import ASSIGNMENTS, DRAFTS, EVENTS
from automedeval.annotation.study import DECISION, PREFERENCE, RESPONSES, VERDICT, Annotator, Item, Study

OPEN, DONE, SKIPPED = "open", "done", "skipped"


@dataclass(frozen=True)
class Assignment:
    """An item given to one annotator.

    Args:
        order: which response stands in which slot (indices of `Study.case_of(item).responses`, random, stored); of a
            "prefer" item, which of `item.judges` stands on which side.
        parts: what is to be answered, in this order; the judges' verdicts come in a random order.
        answers: what is stored of each part that is answered; `drafts`, what is half-filled.
        part: what is to be done now, None when done or skipped.
        version: how often something was stored of it (answers, skips, undos); a form carries it.
        state: "open", "done" or "skipped".
    """

    id: int
    item: Item
    annotator: str
    order: tuple[int, ...]
    parts: tuple[str, ...]
    answers: Mapping[str, dict[str, Any]]
    drafts: Mapping[str, dict[str, Any]]
    part: str | None
    version: int
    state: str


@dataclass(frozen=True)
class Answer:
    """One part as it was stored: what it holds, when and by whom.

    `seconds` were spent on it (None: not measured), `at` is in seconds since 1970, `role` the annotator's at that time.
    """

    assignment: int
    item: Item
    annotator: str
    role: str
    part: str
    order: tuple[int, ...]
    content: dict[str, Any]
    seconds: float | None
    at: float


@dataclass(frozen=True)
class Progress:
    """How far an annotator is: tasks done, skipped, open, and items that could still be given to them now."""

    done: int
    skipped: int
    open: int
    left: int


def free_items(connection: sa.Connection, study: Study, who: Annotator, since: float) -> list[Item]:
    """Return the items that can be given to an annotator, the one that comes first in front.

    Kinds come in the order of the study's file, in each the overlap's items first, then those that were taken least often, then
    the study's order. Nobody gets a case twice under one kind.

    Args:
        since: an open assignment that was not touched after this time counts as taken no longer.
    """
    table = ASSIGNMENTS.c
    counts = sa.or_(table.state == DONE, sa.and_(table.state == OPEN, table.touched_at > since))
    counted = sa.select(table.item, sa.func.count()).where(counts).group_by(table.item)
    taken = {json.loads(item): count for item, count in connection.execute(counted)}
    own = connection.execute(sa.select(table.kind, table.case_id).where(table.annotator == who.name))
    seen = {(kind, json.loads(case_id)) for kind, case_id in own}
    kinds, places = list(study.plans), dict.fromkeys(study.plans, 0)
    free: list[tuple[tuple[int, bool, int, int], Item]] = []
    for item in study.items:
        plan, place = study.plans[item.kind], places[item.kind]
        places[item.kind] += 1
        count = taken.get(item.key, 0)
        if who.role in plan.roles and count < item.needed and (item.kind, item.case_id) not in seen:
            free.append(((kinds.index(item.kind), place >= plan.overlap, count, place), item))
    return [item for _, item in sorted(free, key=lambda pair: pair[0])]


def new_row(study: Study, item: Item, who: Annotator) -> dict[str, Any]:
    """Return the row of a new assignment, with slots and verdicts in a random order."""
    rng = random.Random(f"{study.seed}:{who.name}:{item.key}".encode("utf-8", "backslashreplace"))
    if item.kind == "prefer":
        slots, parts = [0, 1], [PREFERENCE]
    elif item.kind == "jury":
        slots, parts = list(study.disputes[item.case_id].order), [DECISION]
    else:
        slots = list(range(len(study.cases[item.case_id].responses)))
        may_verify = who.role in study.plans["rate"].verify_roles
        judges = rng.sample(item.judges, len(item.judges)) if may_verify else []
        parts = [RESPONSES, *(VERDICT + judge for judge in judges)]
    rng.shuffle(slots)
    told = {"item": item.key, "case_id": item.case_id, "judges": item.judges, "slots": slots, "parts": parts}
    row = {name: json.dumps(value) for name, value in told.items()}
    numbers = dict.fromkeys(("version", "since", "opened", "closed"), 0)
    return row | numbers | {"kind": item.kind, "annotator": who.name, "state": OPEN}


def read_assignment(connection: sa.Connection, row: sa.Row, needed: Mapping[str, int]) -> Assignment:
    """Return an assignment with what is stored of it; `needed` is how many annotators the items need, by key."""
    counting = sa.and_(EVENTS.c.assignment == row.id, EVENTS.c.what == "answer", EVENTS.c.id > row.since)
    stored = connection.execute(sa.select(EVENTS.c.part, EVENTS.c.content).where(counting).order_by(EVENTS.c.id))
    answers = {json.loads(part): json.loads(content) for part, content in stored}
    drafts = connection.execute(sa.select(DRAFTS.c.part, DRAFTS.c.content).where(DRAFTS.c.assignment == row.id))
    parts = tuple(json.loads(row.parts))
    missing = [part for part in parts if part not in answers] if row.state == OPEN else []
    return Assignment(
        row.id,
        item_of(row, needed),
        row.annotator,
        tuple(json.loads(row.slots)),
        parts,
        answers,
        {json.loads(part): json.loads(content) for part, content in drafts},
        missing[0] if missing else None,
        row.version,
        row.state,
    )


def read_events(connection: sa.Connection, which: sa.ColumnElement) -> list[sa.Row]:
    """Return events with their assignments, in the order in which they happened."""
    about = [column for column in ASSIGNMENTS.c if column.name != "id"]
    joined = sa.select(EVENTS, *about).join(ASSIGNMENTS, EVENTS.c.assignment == ASSIGNMENTS.c.id)
    return connection.execute(joined.where(which).order_by(EVENTS.c.id)).all()


def item_of(row: sa.Row, needed: Mapping[str, int] | None = None) -> Item:
    """Return the item of an assignment as it was given out; one that the study has no longer is needed by nobody."""
    key = json.loads(row.item)
    judges = tuple(json.loads(row.judges))
    return Item(key, row.kind, json.loads(row.case_id), judges, (needed or {}).get(key, 0))
