"""Tables of answers as people have them: the same cases come out of each, and what is unclear is asked in one line."""

import csv
import json
from datetime import datetime

import openpyxl
import pandas
import pytest
from tables import rows_of

from automedeval.records import Case, RecordError, Response, read_cases, table_of

QUESTIONS = ["Is 4 g of paracetamol\na day safe?", "Darf ich Ibuprofen; bei Fieber, nehmen?", "What is “gout”?"]
WIDE = [
    {"question": QUESTIONS[0], "rowan-7b": "Yes, at most.", "larch-7b": "No."},
    {"question": QUESTIONS[1], "rowan-7b": "", "larch-7b": "Übermäßig nicht; nein."},
    {"question": QUESTIONS[2], "rowan-7b": "Pain.", "larch-7b": 'A "pain".'},
]
LONG = [
    {"question": row["question"], "model": model, "answer": row[model]}
    for model in ("rowan-7b", "larch-7b")
    for row in WIDE
    if row[model]
]


def write_csv(file, rows, encoding="utf-8", **style):
    with open(file, "w", encoding=encoding, newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), **style)
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("rows", [WIDE, LONG], ids=["wide", "long"])
def test_a_table_of_pandas_with_its_index_holds_the_same_cases(tmp_path, rows):
    pandas.DataFrame(rows).to_csv(tmp_path / "a.csv")
    cases = {case.question: case for case in read_cases(tmp_path / "a.csv", blank="skip")}
    assert set(cases) == set(QUESTIONS)
    for row in WIDE:
        texts = {response.model: response.text for response in cases[row["question"]].responses}
        assert texts == {model: row[model] for model in ("rowan-7b", "larch-7b") if row[model]}
    assert len({case.id for case in cases.values()}) == 3


def test_ids_are_of_the_question_alone(tmp_path):
    write_csv(tmp_path / "a.csv", WIDE)
    write_csv(tmp_path / "b.csv", [{**row, "third": "More.", "reference": "R."} for row in reversed(WIDE)])
    ids = [{case.question: case.id for case in read_cases(tmp_path / name, 1, "skip")} for name in ("a.csv", "b.csv")]
    assert ids[0] == ids[1]
    write_csv(tmp_path / "c.csv", [WIDE[0], {**WIDE[0], "larch-7b": "Other."}, WIDE[0]])
    first, *others = read_cases(tmp_path / "c.csv")
    assert [case.id for case in others] == [f"{first.id}-2", f"{first.id}-3"], (
        "a repeated question is a case of its own"
    )


def test_own_ids_references_and_topics_are_kept_and_numbers_are_no_responses(tmp_path):
    file = tmp_path / "a.csv"
    head = "ID,Question,Ground truth,Category,rowan,Score rowan,url,\n"
    file.write_text(f"{head}7,What?,This.,Gout,A.,4.5,u,\n8,Why?,,,B.,3,u,\n,,,,,,,\n")
    first, second = read_cases(file)
    assert first == Case("7", "What?", (Response("rowan", "A."),), "This.", "Gout", {"row": 1})
    assert (second.reference, second.topic) == (None, None)
    table = table_of(file)
    assert str(table.columns).endswith("Question, rowan (answers), Ground truth (reference), Category (topic), ID")
    assert table.notes[1:] == ["not read: Score rowan (no text), url", "2 rows, 2 cases"]
    assert table_of(write(tmp_path / "b.jsonl", json.dumps(first.to_dict()))) is None


def test_the_rows_of_one_id_are_a_case(tmp_path):
    rows = [
        {"case_id": name, "prompt": "Why?", "system": model, "output": f"{name} {model}", "gold": gold}
        for name in "xy"
        for model, gold in (("m1", ""), ("m2", "G."))
    ]
    write_csv(tmp_path / "a.csv", rows)
    cases = list(read_cases(tmp_path / "a.csv"))
    assert [(case.id, case.question, case.models, case.reference) for case in cases] == [
        ("x", "Why?", ["m1", "m2"], "G."),
        ("y", "Why?", ["m1", "m2"], "G."),
    ]
    write_csv(tmp_path / "b.csv", [{**row, "case_id": number} for number, row in enumerate(rows[:2])])
    (case,) = read_cases(tmp_path / "b.csv")  # ids of rows, not of cases
    assert case.models == ["m1", "m2"]


def write(file, text, encoding="utf-8"):
    file.write_text(text, encoding=encoding)
    return file


FAULTS = rows_of(__file__)["test_what_is_unclear_or_would_be_lost_or_invented_stops"]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_what_is_unclear_or_would_be_lost_or_invented_stops(tmp_path, fault):
    file = write(tmp_path / f"a.{fault.get('kind', 'csv')}", fault["text"])
    with pytest.raises(RecordError, match=fault["said"]):
        list(read_cases(file, blank="lowest"))


def test_a_case_without_an_id_gets_one_beside_one_that_has(tmp_path):
    file = write(tmp_path / "a.csv", "id,question,m\n1,a,b\n,c,d\n")
    assert [case.id[:2] for case in read_cases(file)] == ["1", "c-"]


def test_a_case_without_responses_is_read_where_that_is_asked(tmp_path):
    (case,) = read_cases(write(tmp_path / "a.csv", "question\nWhat?\n"), least_responses=0)
    assert (case.question, case.responses) == ("What?", ())


def test_another_encoding_is_refused_and_not_guessed(tmp_path):
    file = write(tmp_path / "a.csv", "question,m\nWhat?,Yes.\nFieber?,Übermäßig.\n", "cp1252")
    with pytest.raises(RecordError, match=r"a.csv: not UTF-8 \(line 3\); in a spreadsheet, save it as 'CSV UTF-8'"):
        list(read_cases(file))


def test_rows_of_other_records_are_still_told_as_such(tmp_path):
    file = write(tmp_path / "ratings.jsonl", '{"case_id": "a", "model": "m", "score": 3}\n')
    with pytest.raises(RecordError, match=r"ratings\.jsonl:1: 'id' is missing"):
        list(read_cases(file))


def test_a_csv_ends_its_lines_as_it_likes_and_a_header_may_have_two(tmp_path):
    text = '"question\n(of a patient)";"rowan";larch\rWhy?;"a\rb";c\r'
    for end in ("\r", "\n", "\r\n"):
        write(tmp_path / "a.csv", text.replace("\r", end)).write_bytes(text.replace("\r", end).encode())
        with pytest.raises(RecordError, match=r"the columns are question \(of a patient\), rowan, larch; "):
            list(read_cases(tmp_path / "a.csv"))
        (tmp_path / "b.csv").write_bytes(text.replace("\n(of a patient)", "").replace("\r", end).encode())
        (case,) = read_cases(tmp_path / "b.csv")
        assert [each.text for each in case.responses] == [f"a{end}b", "c"]


def test_a_column_that_is_no_candidate_is_told(tmp_path):
    """Two names for one role, numbers alone, a list, a blank column: none is a candidate, and none disappears."""
    rows = [{"id": "1", "case_id": "c-1", "question": "a", "m": "b", "doses": "5", "found": ["x"], "empty": None}]
    table = table_of(write(tmp_path / "a.json", json.dumps(rows)))
    assert table.columns.responses == ("m",)
    assert table.notes[1] == "not read: case_id, doses (no text), found (no text), empty (no text)"


def test_a_first_row_without_answers_is_one_of_a_table_too(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"question": "a", "m": null}\n{"question": "b", "m": "c"}\n')
    assert [len(case.responses) for case in read_cases(file, blank="lowest")] == [1, 1]


SHEETS = {
    "an error": ({"B3": "#NAME?"}, r"a.xlsx: row 3: 'rowan' must be text, not the error #NAME\?"),
    "a formula without a value": (
        {"B3": "=== Answer"},
        "row 3: 'rowan' must be text, not a formula whose value is not in",
    ),
    "a date": ({"B3": datetime(2026, 1, 2)}, "row 3: 'rowan' must be text, not 2026-01-02"),
    "an error beside": ({"D1": "mean", "D3": "#DIV/0!"}, None),
    "text beside the table": ({"E3": "more"}, "'Unnamed: 4' holds text, and the file has no name for it"),
}


@pytest.mark.parametrize(("cells", "message"), SHEETS.values(), ids=SHEETS)
def test_a_cell_of_a_spreadsheet_that_is_no_text_stops_where_it_is_read(tmp_path, cells, message):
    book = openpyxl.Workbook()
    for row in (["question", "rowan", "larch"], ["a", "b", 5], ["c", "d", True]):
        book.active.append(row)
    for place, value in cells.items():
        book.active[place] = value
    book.save(tmp_path / "a.xlsx")
    if message:
        with pytest.raises(RecordError, match=message):
            list(read_cases(tmp_path / "a.xlsx"))
        return
    # larch answers 5 and TRUE, as the sheet shows them
    assert [[each.text for each in case.responses] for case in read_cases(tmp_path / "a.xlsx")] == [
        ["b", "5"],
        ["d", "TRUE"],
    ]
    assert table_of(tmp_path / "a.xlsx").notes[1] == "not read: mean (no text)"


def test_a_second_sheet_is_not_passed_over(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["question", "m"])
    book.active.append(["a", "b"])
    book.create_sheet("more").append(["question"])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(
        RecordError, match=r"a\.xlsx: the sheets 'Sheet', 'more' have cells; save the one with the answers"
    ):
        list(read_cases(tmp_path / "a.xlsx"))
