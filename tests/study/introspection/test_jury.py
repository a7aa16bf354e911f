"""The jury: its file, its decisions, and people's readings that were kept aside."""

import pytest
from doubles.agreement_study import read, write
from doubles.introspection_study import MODELS, case_of, rationale_of, recorded_of, verdict_of
from tables import rows_of

from automedeval.records import RecordError
from automedeval.rubrics.rationale import split_steps
from automedeval.study.introspection.jury import (
    DECIDED,
    QUEUE,
    read_jury,
    read_rulings,
    write_queue,
)

ORDERS = {0: (2, 0, 1), 1: (0, 1, 2), 2: (1, 2, 0)}
VERDICTS = {
    at: verdict_of(case_of(at), (4, 2, 5), "teacher", order=order) for at, order in ORDERS.items()
}
RECORDED = {f"case-{at}": recorded_of(verdict, case_of(at)) for at, verdict in VERDICTS.items()}
FILLED = {"annotator": "chief", "decision": "revise", "scores": [1, 2, 3]}
OPEN = {"judge": "teacher", **dict.fromkeys(("annotator", "decision", "rationale", "scores"))}


@pytest.fixture
def jury(tmp_path):
    return lambda *lines: write(tmp_path / "jury.jsonl", lines)


@pytest.fixture
def queued(tmp_path):
    """Return the lines of the queue."""
    write_queue(tmp_path, list(RECORDED.values()))
    return read(tmp_path / QUEUE)


def test_decisions_are_read_and_open_lines_decide_nothing(jury, queued):
    first, second, third = queued
    recorded = RECORDED["case-0"]
    revised = first | FILLED | {"rationale": rationale_of(MODELS, recorded.order)}
    rulings = read_rulings(jury(revised, second | {"decision": "keep"}, third), RECORDED)
    assert set(rulings) == {"case-0", "case-1"}
    revised = rulings["case-0"]
    assert (revised.decision, revised.annotator) == ("revise", "chief")
    assert revised.reading.scores == tuple((1, 2, 3)[index] for index in recorded.order)
    steps = split_steps(revised.reading.rationale)
    assert [steps[slot].split()[0] for slot in (1, 2, 3)] == [
        MODELS[index] for index in recorded.order
    ]
    assert (rulings["case-1"].decision, rulings["case-1"].reading) == ("keep", None)


@pytest.mark.parametrize(
    ("change", "said"), rows_of(__file__)["test_a_line_that_does_not_fit_is_refused"]
)
def test_a_line_that_does_not_fit_is_refused(jury, queued, change, said):
    line = queued[0] | FILLED
    with pytest.raises(RecordError, match=said):
        read_rulings(jury(line | change, line), RECORDED)


def test_the_queue_has_a_line_for_each_case_and_no_decision(tmp_path):
    write_queue(tmp_path, [])
    assert not (tmp_path / QUEUE).exists()
    write_queue(tmp_path, list(RECORDED.values())[1:])
    first, second = read(tmp_path / QUEUE)
    about = {
        "order": list(RECORDED["case-1"].order),
        "models": list(MODELS),
        "digest": first["digest"],
    }
    assert first == {**OPEN, "case_id": "case-1", **about}
    assert read_jury(tmp_path, RECORDED) == {}
    (tmp_path / DECIDED).mkdir()
    write(tmp_path / DECIDED / QUEUE, [first | {"decision": "keep"}, second])
    assert set(read_jury(tmp_path, RECORDED)) == {"case-1"}
    for filled in ({"decision": "keep"}, {"rationale": "Not sure yet."}):
        write(tmp_path / QUEUE, [first, second | filled])
        with pytest.raises(
            RecordError,
            match=r"jury.jsonl:2: the queue is written anew .* move the file to .*decided",
        ):
            read_jury(tmp_path, RECORDED)


def test_a_decision_holds_for_the_answers_that_were_seen(jury, queued):
    one, filled = RECORDED["case-0"], queued[0] | FILLED
    assert set(read_rulings(jury(filled), RECORDED)) == {"case-0"}
    others = [{"model": name, "text": f"Another answer of {name}."} for name in MODELS]
    new, order = case_of(0, responses=others), ORDERS[0]
    answers = recorded_of(verdict_of(new, (4, 2, 5), "teacher", order=order), new)
    verdict = recorded_of(verdict_of(one.case, (4, 2, 4), "teacher", order=order), one.case)
    for changed in (answers, verdict):
        said = r"jury.jsonl:1: 'digest' is not that of the queue: the answers of case 'case-0' or its verdict on record"
        with pytest.raises(RecordError, match=said):
            read_rulings(jury(filled), {**RECORDED, "case-0": changed})
