"""The jury: its file, its decisions, and people's readings that were kept aside."""

import pytest
from doubles.agreement_study import read, write
from doubles.introspection_study import MODELS, case_of, rationale_of, recorded_of, verdict_of
from tables import rows_of

from automedeval.introspection.jury import DECIDED, QUEUE, read_jury, read_rulings, write_queue
from automedeval.records import RecordError
from automedeval.rubrics.rationale import split_steps

ORDERS = {0: (2, 0, 1), 1: (0, 1, 2), 2: (1, 2, 0)}
VERDICTS = {at: verdict_of(case_of(at), (4, 2, 5), "teacher", order=order) for at, order in ORDERS.items()}
RECORDED = {f"case-{at}": recorded_of(verdict, case_of(at)) for at, verdict in VERDICTS.items()}
LINE = {"case_id": "case-0", "judge": "teacher", "annotator": "chief", "decision": "revise", "scores": [1, 2, 3]}
OPEN = {"judge": "teacher", **dict.fromkeys(("annotator", "decision", "rationale", "scores"))}


@pytest.fixture
def jury(tmp_path):
    return lambda *lines: write(tmp_path / "jury.jsonl", lines)


def models_in_steps(reading):
    steps = split_steps(reading.rationale)
    return [steps[slot].split()[0] for slot in (1, 2, 3)]


def test_decisions_are_read_and_open_lines_decide_nothing(jury) -> None:
    decided = {**LINE, "rationale": rationale_of(MODELS, (0, 1, 2)), "order": [0, 1, 2]}
    kept, undecided = {"case_id": "case-1", "decision": "keep"}, {**OPEN, "case_id": "case-2"}
    rulings = read_rulings(jury(decided, kept, undecided), RECORDED)
    assert set(rulings) == {"case-0", "case-1"}
    revised, recorded = rulings["case-0"], RECORDED["case-0"]
    assert (revised.decision, revised.annotator) == ("revise", "chief")
    assert revised.reading.scores == tuple((1, 2, 3)[index] for index in recorded.order)
    assert models_in_steps(revised.reading) == [MODELS[index] for index in recorded.order]
    assert (rulings["case-1"].decision, rulings["case-1"].reading) == ("keep", None)


def test_without_an_order_the_rationale_speaks_of_the_rows_slots(jury) -> None:
    order = RECORDED["case-0"].order
    rulings = read_rulings(jury({**LINE, "rationale": rationale_of(MODELS, order)}), RECORDED)
    assert models_in_steps(rulings["case-0"].reading) == [MODELS[index] for index in order]


@pytest.mark.parametrize(("change", "said"), rows_of(__file__)["test_a_line_that_does_not_fit_is_refused"])
def test_a_line_that_does_not_fit_is_refused(jury, change, said) -> None:
    with pytest.raises(RecordError, match=said):
        read_rulings(jury({**LINE, **change}, LINE), RECORDED)


def test_the_queue_has_a_line_for_each_case_and_no_decision(tmp_path) -> None:
    write_queue(tmp_path, [])
    assert not (tmp_path / QUEUE).exists()
    write_queue(tmp_path, list(RECORDED.values())[1:])
    first, second = read(tmp_path / QUEUE)
    about = {"order": list(RECORDED["case-1"].order), "models": list(MODELS), "digest": first["digest"]}
    assert first == {**OPEN, "case_id": "case-1", **about}
    assert read_jury(tmp_path, RECORDED) == {}
    (tmp_path / DECIDED).mkdir()
    write(tmp_path / DECIDED / QUEUE, [first | {"decision": "keep"}, second])
    assert set(read_jury(tmp_path, RECORDED)) == {"case-1"}
    for filled in ({"decision": "keep"}, {"rationale": "Not sure yet."}):
        write(tmp_path / QUEUE, [first, second | filled])
        with pytest.raises(RecordError, match=r"jury.jsonl:2: the queue is written anew .* move the file to .*decided"):
            read_jury(tmp_path, RECORDED)


def test_a_decision_holds_for_the_answers_that_were_seen(jury, tmp_path) -> None:
    one = RECORDED["case-0"]
    write_queue(tmp_path, [one])
    (line,) = read(tmp_path / QUEUE)
    filled = line | {"decision": "revise", "scores": [1, 2, 3]}
    assert set(read_rulings(jury(filled), RECORDED)) == {"case-0"}
    others = [{"model": name, "text": f"Another answer of {name}."} for name in MODELS]
    new, order = case_of(0, responses=others), ORDERS[0]
    answers = recorded_of(verdict_of(new, (4, 2, 5), "teacher", order=order), new)
    verdict = recorded_of(verdict_of(one.case, (4, 2, 4), "teacher", order=order), one.case)
    for changed in (answers, verdict):
        said = r"jury.jsonl:1: the answers of case 'case-0' or its verdict on record changed"
        with pytest.raises(RecordError, match=said):
            read_rulings(jury(filled), {**RECORDED, "case-0": changed})
