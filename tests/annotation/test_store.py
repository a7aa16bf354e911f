"""The physicians' answers in SQLite: given out fairly, stored once, never lost, taken back on request."""

import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.small_study import PHYSICIANS, a_study, finish, send
from programs import ROOT
from tables import refused

from automedeval.annotation.store import NotYours, Stale, Store


def test_an_invitation_is_known_by_its_token_alone(open_store, database: str) -> None:
    store = open_store()
    token = store.invite("ann")
    assert len(token) >= 22, "at least 128 bits in base 64"
    assert store.annotator_of(token) == store.study.annotator("ann")
    again = store.invite("ann")
    assert store.annotator_of(token) is None
    assert store.annotator_of(again).name == "ann"
    for wrong in ("", "x", again + "x", "' OR 1=1 --", "\0"):
        assert store.annotator_of(wrong) is None
    for file in Path(database).parent.glob(f"{Path(database).name}*"):
        assert again.encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0, "only the owner reads it"


def test_orders_of_responses_sides_and_verdicts_are_random_and_kept(open_store) -> None:
    store = open_store(number=30, rate={}, prefer={"judges": ["x", "y"]})
    orders, parts, sides, seen = set(), set(), set(), {}
    while (task := store.next("ann")) is not None:
        seen[task.id] = task.order
        (sides if task.item.kind == "prefer" else orders).add(task.order)
        parts |= {task.parts} if task.item.kind == "rate" else set()
        finish(store, task)
    assert (len(seen), len(orders)) == (60, 6), "every permutation of three responses"
    assert sides == {(0, 1), (1, 0)}
    assert parts == {("responses", "verdict:x", "verdict:y"), ("responses", "verdict:y", "verdict:x")}
    assert {number: store.assignment("ann", number).order for number in seen} == seen


@pytest.mark.parametrize("raters", [1, 3])
def test_fifty_items_are_shared_out_evenly_among_seven(open_store, raters: int) -> None:
    names = [f"p{at}" for at in range(7)]
    store = open_store(number=50, physicians=dict.fromkeys(names, "chief"), verdicts=None, rate={"raters": raters})
    assigned, done = Counter(), Counter()
    while tasks := [task for name in names if (task := store.next(name)) is not None]:
        for task in tasks:
            assigned[task.item.key] += 1
            done[task.annotator] += 1
            finish(store, task)
        counts = [assigned[item.key] for item in store.study.items]
        assert max(counts) - min(counts) <= 1
    assert set(assigned.values()) == {raters}
    assert max(done.values()) - min(done.values()) <= 1
    pairs = [(answer.annotator, answer.item.case_id) for answer in store.answers()]
    assert len(pairs) == len(set(pairs)) == 50 * raters


def test_what_everybody_answers_comes_in_one_order_so_that_an_early_end_leaves_whole_cases(open_store) -> None:
    store = open_store(number=10, rate={"raters": 3, "judges": []})
    first = [store.next(name) for name in ("ann", "bob", "cleo")]  # at the same time, as it were
    assert [task.item.case_id for task in first] == ["case-0"] * 3
    for task in first:
        finish(store, task)
    for name, tasks in (("ann", 4), ("bob", 3), ("cleo", 2)):
        for _ in range(tasks):
            finish(store, store.next(name))
    rated = Counter(answer.item.case_id for answer in store.answers())
    assert rated == {"case-0": 3, "case-1": 3, "case-2": 3, "case-3": 2, "case-4": 1}


def test_the_overlap_goes_to_everybody_who_is_there_now(open_store, tmp_path: Path) -> None:
    """One leaves after answering, and another comes: the three of now answer the overlap, two answer each of the rest."""
    plan = {"overlap": 2, "raters": 2, "judges": []}
    store = open_store(a_study(tmp_path, 4, rate=plan))
    for name in ("ann", "bob"):
        while (task := store.next(name)) is not None:
            finish(store, task)
    after = open_store(a_study(tmp_path, 4, {"bob": "attending", "cleo": "chief", "dora": "chief"}, rate=plan))
    assert [after.progress(name).left for name in ("bob", "cleo", "dora")] == [0, 2, 2]
    for name in ("cleo", "dora"):
        while (task := after.next(name)) is not None:
            finish(after, task)
    answers = Counter(int(answer.item.case_id[-1]) for answer in after.answers())
    assert answers == {0: 4, 1: 4, 2: 2, 3: 2}


def test_after_an_hour_a_task_goes_to_another_and_nothing_is_lost(open_store, clock) -> None:
    store = open_store(number=1)
    task = send(store, store.next("ann"))
    store.keep_draft("ann", task.id, task.part, {"comment": "half"})
    assert store.next("bob") is None
    clock.now += 3599
    store.keep_draft("ann", task.id, task.part, {"comment": "half a"})  # the hour begins anew
    clock.now += 3599
    assert store.next("bob") is None
    assert store.progress("bob").left == 0
    clock.now += 2
    assert store.progress("bob").left == 1
    other = store.next("bob")
    assert other.item == task.item
    assert store.next("cleo") is None
    back = store.next("ann")
    assert (back.id, back.part, back.drafts[back.part]["comment"]) == (task.id, "verdict:x", "half a")
    finish(store, back)
    finish(store, other)
    assert Counter(answer.annotator for answer in store.answers()) == {"ann": 2, "bob": 2}


def test_stores_that_write_at_once_lose_nothing_and_store_nothing_twice(open_store, tmp_path: Path) -> None:
    names = [f"p{at}" for at in range(6)]
    study = a_study(tmp_path, 20, dict.fromkeys(names, "chief"), rate={"raters": 2, "overlap": 2, "judges": ["x"]})

    def work(some: list[str]) -> None:
        store = open_store(study)  # all of them make the tables at the same time
        while some:
            for name in list(some):
                if (task := store.next(name)) is None:
                    some.remove(name)
                    continue
                with suppress(Stale):  # another one sent the same task
                    finish(store, task)

    with ThreadPoolExecutor(3) as pool:  # two of them sign in as the same person
        list(pool.map(work, [names[:3], names[3:], names[2:4]]))
    store = open_store(study)
    assert all(store.next(name) is None for name in names)
    stored = Counter((answer.annotator, answer.item.case_id, answer.part) for answer in store.answers())
    assert set(stored.values()) == {1}
    per_item = Counter(case_id for _, case_id, part in stored if part == "responses")
    assert per_item == {f"case-{at}": 6 if at < 2 else 2 for at in range(20)}
    assert len(stored) == 2 * sum(per_item.values())


def test_another_studys_database_is_refused_and_more_annotators_are_welcome(
    open_store, tmp_path: Path, database: str
) -> None:
    store = open_store()
    finish(store, store.next("ann"))
    more = a_study(tmp_path, physicians={**PHYSICIANS, "dora": "chief"}, rate={"raters": 4, "judges": ["y"]})
    wider = open_store(more)
    assert wider.next("dora") is not None
    fewer = open_store(a_study(tmp_path, physicians={"bob": "attending"}))
    assert [answer.annotator for answer in fewer.answers()] == ["ann"] * 2, "who has left has not left in vain"
    with pytest.raises(NotYours):
        fewer.next("ann")
    with refused(tmp_path, "database: ", " belongs to another study, or ", " changed"):
        open_store(a_study(tmp_path, number=5))


def test_a_study_goes_on_in_the_database_of_an_earlier_version(open_store, database: str) -> None:
    """Two cases are rated, one is skipped, one taken back, one half filled; then both people go on."""
    written = (ROOT / "tests/fixtures/written_by_9445386/annotation.sql").read_text()
    Path(database).parent.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(written)
    store = open_store(prefer={"judges": ["x", "y"]})
    whats = ["given", "answer", "answer", "given", "answer", "given", "skip", "given", "answer", "answer", "undo"]
    assert [event["what"] for event in store.history()] == whats
    assert {answer.annotator for answer in store.answers()} == {"ann"}
    assert [answer.part for answer in store.answers()] == ["responses", "verdict:x", "responses"]
    assert store.next("ann").drafts["verdict:x"]["comment"] == "half"
    for name in ("ann", "bob"):
        finish(store, store.next(name))
    assert [store.progress(name).done for name in ("ann", "bob")] == [2, 1]


def test_a_database_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    (tmp_path / "text").write_text("no database " * 100)
    for wrong in (tmp_path, tmp_path / "text", tmp_path / "text" / "inside.sqlite"):
        with refused(f"{tmp_path}/study.yaml: database: ", "cannot be opened: "):
            Store(replace(study, database=str(wrong)))
    assert (tmp_path / "text").read_text() == "no database " * 100
