"""Tables of answers as people have them: the same cases come out of each, and what is unclear is asked in one line."""

import re

import openpyxl
import pandas
import pytest
from tables import each_row, refused, rows_of

from automedeval.records import Case, RecordError, Response
from automedeval.records.tables.cases import CaseFile, read_cases

ROWS = rows_of(__file__)
WIDE = ROWS["a row for each question"]


def write(file, text):
    file.write_text(text, encoding="utf-8")
    return file


def read_rows(folder, rows, **options):
    """Return the cases of a table, as pandas writes it."""
    pandas.DataFrame(rows).to_csv(folder / "a.csv", index=False)
    return list(read_cases(folder / "a.csv", **options))


def test_ids_are_of_the_question_alone(tmp_path):
    more = [row | {"third": "More.", "reference": "R."} for row in reversed(WIDE)]
    cases = read_rows(tmp_path, WIDE, blank="skip")
    others = read_rows(tmp_path, more, blank="skip")
    ids = {case.question: case.id for case in cases}
    assert ids == {case.question: case.id for case in others}


def test_the_order_of_rows_changes_no_question_of_a_long_table(tmp_path):
    asked = ["What  is fever?", "What is fever?"]
    rows = [{"question": text, "model": text, "answer": "Heat."} for text in asked]
    (case,) = read_rows(tmp_path, rows)
    (turned,) = read_rows(tmp_path, rows[::-1])
    assert (case.id, case.question) == (turned.id, asked[1])


def test_own_ids_references_and_topics_are_kept_and_numbers_are_no_responses(tmp_path):
    head = "ID,Question,Ground truth,Category,rowan,Score rowan,url\n"
    text = f"{head}7,What?,This.,Gout,A.,4.5,u\n8,Why?,,,B.,3,u\n,,,,,,\n9,What?,This.,,A.,4,u\n"
    file = write(tmp_path / "a.csv", text)
    first, second, _ = read_cases(file)
    assert first == Case("7", "What?", (Response("rowan", "A."),), "This.", "Gout", {"row": 1})
    assert (second.reference, second.topic) == (None, None)
    assert CaseFile(file).table.line == f"{file}: {ROWS['notes on a table']}"


@each_row("fault")
def test_what_is_unclear_or_would_be_lost_or_invented_stops(tmp_path, fault):
    file = write(tmp_path / f"a.{fault.get('kind', 'csv')}", fault["text"])
    with pytest.raises(RecordError, match=fault["said"]):
        list(read_cases(file, blank="lowest"))


REFERENCES = [(why, cell) for why, cells in ROWS["references"].items() for cell in cells]


@pytest.mark.parametrize(("why", "cell"), REFERENCES)
def test_a_reference_is_a_text(tmp_path, why, cell):
    rows = [{"question": "Why?", "m": "So.", "reference": cell}]
    if why == "texts":
        (case,) = read_rows(tmp_path, rows)
        assert case.reference == cell
    else:
        with refused(tmp_path / "a.csv", f"the reference is {cell!r}: "):
            read_rows(tmp_path, rows)


CELLS = ROWS["cells of an answer"]


@pytest.mark.parametrize("cell", [*CELLS["failures"], *CELLS["answers"]])
def test_an_error_of_a_program_is_as_a_blank_cell_and_an_answer_on_errors_stays(tmp_path, cell):
    rows = [{"question": f"Why {at}?", "m": text} for at, text in enumerate(["", cell, "Rest."])]
    kept = [cell, "Rest."] if cell in CELLS["answers"] else ["Rest."]
    lowest = read_rows(tmp_path, rows, blank="lowest")
    skipped = read_rows(tmp_path, rows, blank="skip")
    assert [case.responses[0].text for case in lowest] == [""] * (3 - len(kept)) + kept
    assert [case.responses[0].text for case in skipped] == kept
    with refused(tmp_path / "a.csv", f"{3 - len(kept)} of 3 answers are blank"):
        read_rows(tmp_path, rows)


@each_row("name, text, options, read")
def test_a_table_may_be_so(tmp_path, name, text, options, read):
    (tmp_path / name).write_bytes(text.encode())
    cases = []
    for case in read_cases(tmp_path / name, **options):
        answers = {response.model: response.text for response in case.responses}
        cases.append([re.sub("[0-9a-f]{6}", "*", case.id), case.question, case.reference, answers])
    assert cases == read


def spreadsheet(file, cells):
    """Write two cases of rowan and larch, and what stands in some cells, as of another sheet (SHEET!A1)."""
    book = openpyxl.Workbook()
    for row in (["question", "rowan", "larch"], ["a", "b", 5], ["c", "d", True]):
        book.active.append(row)
    for cell, value in cells.items():
        sheet, _, name = cell.rpartition("!")
        place = book.create_sheet(sheet) if sheet else book.active
        place[name] = value
    book.save(file)
    return file


@each_row("cells, message")
def test_a_cell_of_a_spreadsheet_that_is_no_text_stops_where_it_is_read(tmp_path, cells, message):
    with pytest.raises(RecordError, match=message):
        list(read_cases(spreadsheet(tmp_path / "a.xlsx", cells)))


def test_an_error_beside_the_answers_stops_nothing_and_numbers_are_answers_as_the_sheet_shows_them(
    tmp_path, monkeypatch
):
    # a sheet may state a size that it has no more
    monkeypatch.setattr(
        openpyxl.worksheet.worksheet.Worksheet, "calculate_dimension", lambda _: "A1"
    )
    file = spreadsheet(tmp_path / "a.xlsx", {"D1": "mean", "D3": "#DIV/0!"})
    answers = [[response.text for response in case.responses] for case in read_cases(file)]
    assert answers == [["b", "5"], ["d", "TRUE"]]
    assert "; not read: mean (no text); " in CaseFile(file).table.line
