"""The jury: its file, its decisions, and people's readings that were kept aside."""

import pytest
from doubles.agreement_study import read, write
from doubles.introspection_study import MODELS, case_of, rationale_of, recorded_of
from tables import each_row

from automedeval.records import RecordError
from automedeval.rubrics.rationale import split_steps
from automedeval.study.introspection.jury import (
    DECIDED,
    QUEUE,
    read_jury,
    write_queue,
)

SCORES = (4, 2, 5)
CASES = [case_of(number) for number in range(3)]
ORDERS = [(2, 0, 1), (0, 1, 2), (1, 2, 0)]
RECORDED = {case.id: recorded_of(case, SCORES, order=order) for case, order in zip(CASES, ORDERS)}
FILLED = {"annotator": "chief", "decision": "revise", "scores": [1, 2, 3]}
ABOUT = ("order", "models", "digest")
OPEN = {"judge": "teacher", **dict.fromkeys(("annotator", "decision", "rationale", "scores"))}


@pytest.fixture
def queued(tmp_path):
    """Return the lines of the queue."""
    write_queue(tmp_path, list(RECORDED.values()))
    return read(tmp_path / QUEUE)


@pytest.fixture
def decide(tmp_path):
    """Return what writes lines of decisions, and reads them."""

    def decided(*lines, recorded=RECORDED):
        write(tmp_path / DECIDED / QUEUE, lines)
        return read_jury(tmp_path, recorded)

    return decided


def test_decisions_are_read_and_open_lines_decide_nothing(decide, queued):
    first, second, third = queued
    assert first == {**OPEN, "case_id": "case-0", **{name: first[name] for name in ABOUT}}
    order = RECORDED["case-0"].order
    assert (first["order"], first["models"]) == (list(order), list(MODELS))
    revised = first | FILLED | {"rationale": rationale_of(MODELS, order)}
    rulings = decide(revised, second | {"decision": "keep"}, third)
    assert set(rulings) == {"case-0", "case-1"}
    decided = {"decided_by": "jury", "annotator": "chief", "decision": "revise"}
    assert rulings["case-0"].items() >= decided.items()
    assert rulings["case-0"]["revised_verdict"]["scores"] == FILLED["scores"]
    steps = split_steps(rulings["case-0"]["revised_verdict"]["rationale"])
    assert [steps[slot].split()[0] for slot in (1, 2, 3)] == [MODELS[at] for at in order]
    assert rulings["case-1"] == {"decided_by": "jury", "annotator": None, "decision": "keep"}


@each_row("change, said")
def test_a_line_that_does_not_fit_is_refused(decide, queued, change, said):
    line = queued[0] | FILLED
    with pytest.raises(RecordError, match=said):
        decide(line | change, line)


def test_the_queue_is_not_the_place_of_decisions(tmp_path, queued):
    write_queue(tmp_path, [])
    assert read(tmp_path / QUEUE) == []
    assert read_jury(tmp_path, RECORDED) == {}
    for filled in ({"decision": "keep"}, {"rationale": "Not sure yet."}):
        write(tmp_path / QUEUE, [queued[0], queued[1] | filled])
        with pytest.raises(RecordError, match=r"jury.jsonl:2: .* move the file to .*decided"):
            read_jury(tmp_path, RECORDED)


def test_a_decision_holds_for_the_answers_that_were_seen(decide, queued):
    others = [{"model": name, "text": f"Another answer of {name}."} for name in MODELS]
    new = case_of(0, responses=others)
    order = ORDERS[0]
    answers = recorded_of(new, SCORES, order=order)
    verdict = recorded_of(CASES[0], (4, 2, 4), order=order)
    for changed in (answers, verdict):
        with pytest.raises(RecordError, match=r"jury.jsonl:1: 'digest' is not that of the queue"):
            decide(queued[0] | FILLED, recorded={**RECORDED, "case-0": changed})
