import pytest
from tables import each_row, rows_of

from automedeval.records import Case, RecordError, Response
from automedeval.records.tables.cases import read_table
from automedeval.records.tables.rows import read_rows
from automedeval.study.dataset.sources import (
    LAYOUTS,
    excluded,
    identified,
    recognised,
    rows_as_cases,
    table_as_cases,
)

QUESTION = "What are the symptoms of gout?"
CASE, WIKIDOC, MEDTEXT = rows_of(__file__)["rows"]


def cases_of(*rows, layout=None):
    placed = [(f"f:{number}", row) for number, row in enumerate(rows, 1)]
    layout = layout or recognised(rows[0])
    return [row.case for row in identified(rows_as_cases(placed, layout))]


@each_row("layout, row, asked, trusted")
def test_a_row_is_recognised_and_becomes_a_case(layout, row, asked, trusted):
    assert recognised(row).name == layout
    (made,) = cases_of(row)
    assert (made.question, made.reference, made.topic) == (asked, trusted, None)


def test_a_case_stays_as_it_is_and_a_row_keeps_its_id():
    assert cases_of(CASE, layout=LAYOUTS["cases"]) == [Case.from_dict(CASE)]
    assert cases_of(MEDTEXT)[0].id == "medtext-7/1-2"


@each_row("row")
def test_a_table_of_answers_is_no_public_set(row):
    assert recognised(row) is None


def test_a_table_takes_any_columns():
    def made(*columns, truth="Pain."):
        row = {"ask": QUESTION, "truth": truth, "A": "Hm.", "B": "", "subject": "Gout"}
        columns = ["question=ask", *columns]
        table = read_table("f", [("f:1", row)], "skip", columns, least_responses=0)
        (row,) = table_as_cases(table, "set")
        return row.case

    case = made("reference=truth", "A", "topic=subject", "B")
    assert case.responses == (Response("A", "Hm."),), "a blank cell was not asked"
    assert (case.reference, case.topic) == ("Pain.", "Gout")
    assert case.id == "set-what-are-the-symptoms-of-gout-939b9d"  # six digits over the question
    assert made("reference=truth", "A", truth=" ").reference is None
    excluded = made("reference=truth", truth=" ")
    assert excluded.reference == "", "an empty answer, which is excluded"
    assert made().reference is None


def test_ids_come_from_the_content_wherever_a_row_stands():
    rows = [WIKIDOC | {"input": f"{QUESTION} {number}"} for number in range(5)]
    ids = [case.id for case in cases_of(*rows)]
    assert [case.id for case in cases_of(*reversed(rows))] == ids[::-1]
    assert {len(name) for name in ids} == {len("wikidoc-") + 12}
    (other,) = cases_of(rows[0] | {"output": "Other."})
    assert other.id not in ids


def test_no_two_cases_have_one_id():
    first, second = cases_of(WIKIDOC, WIKIDOC)
    assert second.id == f"{first.id}-2"
    other = MEDTEXT | {"Completion": "Something else."}
    ids = [case.id for case in cases_of(MEDTEXT, other, other, MEDTEXT)]
    assert ids == ["medtext-7/1-2", "medtext-7/1-2-2", "medtext-7/1-2-3", "medtext-7/1-2-4"]
    with pytest.raises(RecordError, match="f:2: the id 'c1' stands at f:1 already"):
        cases_of(CASE, {**CASE, "question": "Other?"})


@each_row("rows, told")
def test_a_faulty_row_is_named(rows, told):
    with pytest.raises(RecordError, match=told):
        cases_of(*rows)


@each_row("name, content, told")
def test_a_file_that_holds_no_rows_is_named(tmp_path, name, content, told):
    if content is not None:
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(RecordError, match=told):
        list(read_rows(str(tmp_path / name)))


@each_row("question, reference, name")
def test_what_the_packaged_patterns_leave_out(question, reference, name):
    case = Case("c", question, (), reference)
    assert excluded(case) == name
