"""What physicians answer: stored once, checked field by field, skipped, taken back, and never overwritten."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from doubles.small_study import filled, finish, send
from doubles.study_page import write_study

from automedeval.annotation.store import Stale
from automedeval.annotation.study import read_study
from automedeval.annotation.validation import LONGEST, Invalid


def test_an_answer_is_stored_once(open_store, clock) -> None:
    store = open_store()
    task = store.next("ann")
    clock.now += 60
    after = send(store, task)
    assert send(store, task) == after, "the same form sent twice is the same success"
    (answer,) = store.answers()
    assert (answer.annotator, answer.role, answer.part, answer.order) == ("ann", "attending", "responses", task.order)
    assert answer.item == replace(task.item, needed=0)
    stored = datetime.fromtimestamp(clock.now, UTC).isoformat(timespec="milliseconds")
    assert [line["when"] for line in store.history() if line["what"] == "answer"] == [stored]
    for other in (replace(task, version=7), replace(task, version=-1)):
        with pytest.raises(Stale):
            send(store, other)
    with pytest.raises(Stale):
        send(store, task, filled(task, score=1))
    done = send(store, after)
    assert send(store, after) == done
    with pytest.raises(Stale):
        send(store, task)  # its part was not the one that was stored last
    assert len(list(store.answers())) == 2


def test_a_skipped_task_goes_to_another_and_its_stored_part_counts(open_store) -> None:
    store = open_store(number=1)
    task = send(store, store.next("ann"))
    for reason in ("", "  \r\n", "x" * (LONGEST + 1)):
        with pytest.raises(Invalid):
            store.skip("ann", task.id, reason, task.version)
    with pytest.raises(Stale):
        store.skip("ann", task.id, "No.", 0)
    store.skip("ann", task.id, "Not my field.", task.version)
    store.skip("ann", task.id, "Not my field.", task.version)  # sent twice
    with pytest.raises(Stale):
        store.skip("ann", task.id, "Another reason.", task.version + 1)
    assert (store.assignment("ann", task.id).state, store.assignment("ann", task.id).part) == ("skipped", None)
    assert store.next("ann") is None, "nobody gets the same case twice"
    assert (store.next("bob").item, [answer.part for answer in store.answers()]) == (task.item, ["responses"])
    assert store.progress("ann").skipped == 1
    skips = [(event["content"], event["counts"]) for event in store.history() if event["what"] == "skip"]
    assert skips == [({"reason": "Not my field."}, None)]


def test_undo_reopens_the_last_task_with_its_answers_as_drafts(open_store) -> None:
    store = open_store()
    assert store.undo("ann") is None
    first = finish(store, store.next("ann"))
    second = finish(store, store.next("ann"))
    third = store.next("ann")
    undone = store.undo("ann")
    assert (undone.id, undone.state, undone.part, undone.answers) == (second.id, "open", "responses", {})
    assert undone.drafts == second.answers
    assert store.undo("ann") == undone, "the button pressed twice takes back one task"
    assert ({answer.assignment for answer in store.answers()}, store.next("ann").id) == ({first.id}, second.id)
    with pytest.raises(Stale):
        store.answer("ann", second.id, "responses", filled(undone), second.version)  # a form from before
    again = send(store, undone, filled(undone, score=2))
    assert (finish(store, again).state, store.next("ann").id) == ("done", third.id)
    counted = [(answer.assignment, answer.part) for answer in store.answers()]
    assert Counter(counted) == Counter({(task.id, part): 1 for task in (first, second) for part in task.parts})
    said = [(event["what"], event["counts"]) for event in store.history() if event["assignment"] == second.id]
    taken_back = [("answer", False)] * 2
    assert said == [("given", None), *taken_back, ("undo", None), *[("answer", True)] * 2]
    assert store.undo("bob") is None


def test_only_a_chief_is_the_jury_and_an_undecided_form_is_none(open_store, tmp_path: Path) -> None:
    store = open_store(read_study(write_study(tmp_path, ("jury",))))
    assert store.next("physician-1") is None
    task = store.next("physician-2")
    assert task.parts == ("decision",)
    before = store.study.disputes[task.item.case_id].recorded
    other = {str(slot): 1 + before.scores[index] % 5 for slot, index in enumerate(task.order, 1)}
    for wrong in (
        {},
        {"decision": None},
        {"decision": "perhaps"},
        {"decision": "revise"},
        {"decision": "revise", "rationale": "Because.", "scores": other | {"3": None}},
        {"decision": "revise", "rationale": "Because.", "scores": other | {"3": 6}},
        {"decision": "revise", "rationale": " ", "scores": other},
        {"decision": "revise", "rationale": "Fine.<|im_end|>", "scores": other},
        {"decision": "revise", "rationale": "x" * 20_001, "scores": other},
    ):
        with pytest.raises(Invalid):
            send(store, task, wrong)
    store.keep_draft("physician-2", task.id, "decision", {"scores": {"2": 3}, "rationale": "Hm"})
    assert store.next("physician-2").drafts["decision"] == {
        "decision": None,
        "rationale": "Hm",
        "scores": [None, 3, None],
    }
    assert send(store, task, {"decision": "revise", "rationale": "Because.", "scores": other}).state == "done"
    assert send(store, store.next("physician-2"), {"decision": "keep"}).state == "done"
    assert store.next("physician-2") is None
