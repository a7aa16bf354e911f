"""Tasks and answers in SQLite: given out fairly, checked field by field, stored once, never lost, taken back on request."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.small_study import PHYSICIANS, a_study, finish, finish_all, send
from doubles.study_page import write_study
from tables import refused, rows_of

from automedeval.annotation.store import NotYours, Stale, Store
from automedeval.annotation.study import read_study
from automedeval.annotation.validation import Invalid


def test_orders_of_responses_sides_and_verdicts_are_random_and_kept(open_store):
    store = open_store(number=30, rate={}, prefer={"judges": ["x", "y"]})
    orders, parts, sides, seen = set(), set(), set(), {}
    while (task := store.next("ann")) is not None:
        seen[task.id] = task.order
        (sides if task.item.kind == "prefer" else orders).add(task.order)
        parts |= {task.parts} if task.item.kind == "rate" else set()
        finish(store, task)
    assert (len(seen), len(orders)) == (60, 6), "every permutation of three responses"
    assert sides == {(0, 1), (1, 0)}
    assert parts == {
        ("responses", "verdict:x", "verdict:y"),
        ("responses", "verdict:y", "verdict:x"),
    }
    assert {number: store.assignment("ann", number).order for number in seen} == seen


@pytest.mark.parametrize("raters", [1, 3])
def test_fifty_items_are_shared_out_evenly_among_seven(open_store, raters):
    people = {f"p{at}": "chief" for at in range(7)}
    store = open_store(number=50, physicians=people, verdicts=None, rate={"raters": raters})
    assigned = Counter()
    while tasks := [task for name in people if (task := store.next(name)) is not None]:
        for task in tasks:
            assigned[task.item.key] += 1
            finish(store, task)
        counts = [assigned[item.key] for item in store.study.items]
        assert max(counts) - min(counts) <= 1
    pairs = [(answer.annotator, answer.item.case_id) for answer in store.answers()]
    assert len(pairs) == len(set(pairs)) == 50 * raters
    done = Counter(annotator for annotator, _ in pairs).values()
    assert max(done) - min(done) <= 1


def test_what_everybody_answers_comes_in_one_order_so_that_an_early_end_leaves_whole_cases(
    open_store,
):
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


def test_the_overlap_goes_to_everybody_who_is_there_now(open_store, tmp_path):
    """One leaves after answering, and another comes: the three of now answer the overlap, two answer each of the rest."""
    plan = {"overlap": 2, "raters": 2, "judges": []}
    store = open_store(a_study(tmp_path, 4, rate=plan))
    finish_all(store, "ann", "bob")
    people = {"bob": "attending", "cleo": "chief", "dora": "chief"}
    after = open_store(a_study(tmp_path, 4, people, rate=plan))
    assert [after.progress(name).left for name in people] == [0, 2, 2]
    finish_all(after, "cleo", "dora")
    answers = Counter(int(answer.item.case_id[-1]) for answer in after.answers())
    assert answers == {0: 4, 1: 4, 2: 2, 3: 2}


def test_after_an_hour_a_task_goes_to_another_and_nothing_is_lost(open_store, clock):
    store = open_store(number=1)
    task = send(store, store.next("ann"))
    store.keep_draft("ann", task.id, task.part, {"comment": ["half"]})
    assert store.next("bob") is None
    clock.now += 3599
    store.keep_draft("ann", task.id, task.part, {"comment": ["half a"]})  # the hour begins anew
    clock.now += 3599
    assert store.next("bob") is None
    assert store.progress("bob").left == 0
    clock.now += 2
    assert store.progress("bob").left == 1
    other = store.next("bob")
    assert other.item == task.item
    assert store.next("cleo") is None
    back = store.next("ann")
    assert (back.id, back.part) == (task.id, "verdict:x")
    assert back.drafts[back.part]["comment"] == "half a"
    finish(store, back)
    finish(store, other)
    assert Counter(answer.annotator for answer in store.answers()) == {"ann": 2, "bob": 2}


def test_stores_that_write_at_once_lose_nothing_and_store_nothing_twice(
    open_store, tmp_path, database
):
    names = [f"p{at}" for at in range(6)]
    plan = {"raters": 2, "overlap": 2, "judges": ["x"]}
    study = a_study(tmp_path, 20, dict.fromkeys(names, "chief"), rate=plan)

    def work(some):
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
    stored = [(answer.annotator, answer.item.case_id, answer.part) for answer in store.answers()]
    assert len(set(stored)) == len(stored)
    per_item = Counter(case_id for _, case_id, _ in stored)  # of two parts each
    assert per_item == {f"case-{at}": 12 if at < 2 else 4 for at in range(20)}
    files = Path(database).parent.iterdir()
    assert not [file for file in files if file.stat().st_mode & 0o077], "nobody else reads them"


def test_another_studys_database_is_refused_and_more_annotators_are_welcome(
    open_store, tmp_path, database
):
    store = open_store()
    finish(store, store.next("ann"))
    people = PHYSICIANS | {"dora": "chief"}
    plan = {"raters": 4, "judges": ["y"]}
    wider = open_store(a_study(tmp_path, physicians=people, rate=plan))
    assert wider.next("dora") is not None
    fewer = open_store(a_study(tmp_path, physicians={"bob": "attending"}))
    assert [answer.annotator for answer in fewer.answers()] == ["ann"] * 2, (
        "who has left has not left in vain"
    )
    with pytest.raises(NotYours):
        fewer.next("ann")
    with refused(tmp_path, "database: ", " belongs to another study, or ", " changed"):
        open_store(a_study(tmp_path, number=5))


def test_a_database_that_cannot_be_opened_is_one_line(tmp_path):
    study = a_study(tmp_path)
    (tmp_path / "text").write_text("no database " * 100)
    for wrong in (tmp_path, tmp_path / "text", tmp_path / "text/inside.sqlite"):
        with refused(f"{tmp_path}/study.yaml: database: ", "cannot be opened: "):
            Store(replace(study, database=str(wrong)))
    assert (tmp_path / "text").read_text() == "no database " * 100


# --- answers ------------------------------------------------------------------------------------------------------------


def test_an_answer_is_stored_once(open_store, clock):
    store = open_store()
    task = store.next("ann")
    clock.now += 60
    after = send(store, task)
    assert send(store, task) == after, "the same form sent twice is the same success"
    (answer,) = store.answers()
    assert (answer.annotator, answer.role) == ("ann", "attending")
    assert (answer.part, answer.order) == ("responses", task.order)
    assert answer.item == replace(task.item, needed=0)
    _, line = store.history()
    assert line["when"] == "1970-01-12T13:47:40.000+00:00"
    with pytest.raises(Stale):
        send(store, replace(task, version=7))
    assert send(store, after) == send(store, after)
    with pytest.raises(Stale):
        send(store, task)  # its part was not the one that was stored last
    assert len(list(store.answers())) == 2


def test_a_skipped_task_goes_to_another_and_its_stored_part_counts(open_store):
    store = open_store(number=1)
    task = send(store, store.next("ann"))
    with pytest.raises(Stale):
        store.skip("ann", task.id, "No.", 0)
    for _ in range(2):  # the same form sent twice is the same success
        store.skip("ann", task.id, "Not my field.", task.version)
    skipped = store.assignment("ann", task.id)
    assert (skipped.state, skipped.part) == ("skipped", None)
    assert store.next("ann") is None, "nobody gets the same case twice"
    assert store.next("bob").item == task.item
    assert [answer.part for answer in store.answers()] == ["responses"]
    assert store.progress("ann").skipped == 1
    *_, skip, _ = store.history()
    assert (skip["content"], skip["counts"]) == ({"reason": "Not my field."}, None)


def test_undo_reopens_the_last_task_with_its_answers_as_drafts(open_store):
    store = open_store()
    assert store.undo("ann") is None
    first = finish(store, store.next("ann"))
    second = finish(store, store.next("ann"))
    third = store.next("ann")
    undone = store.undo("ann")
    assert (undone.id, undone.part, undone.answers) == (second.id, "responses", {})
    assert undone.drafts == second.answers
    assert store.undo("ann") == undone, "the button pressed twice takes back one task"
    assert store.next("ann").id == second.id
    with pytest.raises(Stale):
        send(store, replace(undone, version=second.version))  # a form from before
    assert finish(store, undone).state == "done"
    assert store.next("ann").id == third.id
    assert Counter(answer.assignment for answer in store.answers()) == {first.id: 2, second.id: 2}
    events = [event for event in store.history() if event["assignment"] == second.id]
    told = [(event["what"], event["counts"]) for event in events]
    lost = ("answer", False)
    kept = ("answer", True)
    assert told == [("given", None), lost, lost, ("undo", None), kept, kept]
    assert store.undo("bob") is None


def test_only_a_chief_is_the_jury_and_an_undecided_form_is_none(open_store, tmp_path):
    store = open_store(read_study(write_study(tmp_path, ("jury",))))
    assert store.next("physician-1") is None
    task = store.next("physician-2")
    assert task.parts == ("decision",)
    before = store.study.disputes[task.item.case_id].recorded
    other = {str(slot): 1 + before.scores[index] % 5 for slot, index in enumerate(task.order, 1)}
    for wrong in [*rows_of(__file__)["forms of a jury"], {"rationale": "x" * 20_001}]:
        form = {"decision": "revise", "rationale": "Because.", **wrong}
        with pytest.raises(Invalid):
            send(store, task, form | {"scores": other | wrong.get("scores", {})})
    store.keep_draft("physician-2", task.id, "decision", {"scores-2": ["3"], "rationale": ["Hm"]})
    draft = {"decision": None, "rationale": "Hm", "scores": [None, 3, None]}
    assert store.next("physician-2").drafts["decision"] == draft
    revised = {"decision": "revise", "rationale": "Because.", "scores": other}
    assert send(store, task, revised).state == "done"
    assert send(store, store.next("physician-2"), {"decision": "keep"}).state == "done"
    assert store.next("physician-2") is None
