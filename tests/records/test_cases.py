"""Tables of answers as people have them: the same cases come out of each, and what is unclear is asked in one line."""

import json
import re

import openpyxl
import pandas
import pytest
from tables import rows_of

from automedeval.records import Case, RecordError, Response
from automedeval.records.arguments import BLANK
from automedeval.records.cases import read_cases, table_of

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
    more = [{**row, "third": "More.", "reference": "R."} for row in reversed(WIDE)]
    ids, of_more = (
        {case.question: case.id for case in read_rows(tmp_path, r, blank="skip")}
        for r in (WIDE, more)
    )
    assert ids == of_more
    first, *others = read_rows(tmp_path, [WIDE[0], {**WIDE[0], "larch-7b": "Other."}, WIDE[0]])
    ids = [case.id for case in others]
    assert ids == [f"{first.id}-2", f"{first.id}-3"], "a repeated question is a case of its own"


def test_own_ids_references_and_topics_are_kept_and_numbers_are_no_responses(tmp_path):
    file = tmp_path / "a.csv"
    head = "ID,Question,Ground truth,Category,rowan,Score rowan,url,\n"
    file.write_text(f"{head}7,What?,This.,Gout,A.,4.5,u,\n8,Why?,,,B.,3,u,\n,,,,,,,\n")
    first, second = read_cases(file)
    assert first == Case("7", "What?", (Response("rowan", "A."),), "This.", "Gout", {"row": 1})
    assert (second.reference, second.topic) == (None, None)
    table = table_of(file)
    assert str(table.columns).endswith(
        "Question, rowan (answers), Ground truth (reference), Category (topic), ID"
    )
    assert table.notes[1:] == ["not read: Score rowan (no text), url", "2 rows, 2 cases"]
    assert table_of(write(tmp_path / "b.jsonl", json.dumps(first.to_dict()))) is None


def test_the_rows_of_one_id_are_a_case(tmp_path):
    each = [(name, *row) for name in "xy" for row in (("m1", ""), ("m2", "R."))]
    rows = [
        {"case_id": name, "prompt": "Why?", "model": m, "output": f"{name} {m}", "gold": g}
        for name, m, g in each
    ]
    cases = [
        (case.id, case.question, case.models, case.reference) for case in read_rows(tmp_path, rows)
    ]
    assert cases == [(name, "Why?", ["m1", "m2"], "R.") for name in "xy"]
    # ids of rows, not of cases
    (case,) = read_rows(
        tmp_path, [{**row, "case_id": number} for number, row in enumerate(rows[:2])]
    )
    assert case.models == ["m1", "m2"]


FAULTS = ROWS["test_what_is_unclear_or_would_be_lost_or_invented_stops"]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_what_is_unclear_or_would_be_lost_or_invented_stops(tmp_path, fault):
    file = write(tmp_path / f"a.{fault.get('kind', 'csv')}", fault["text"])
    with pytest.raises(RecordError, match=fault["said"]):
        list(read_cases(file, blank="lowest"))


@pytest.mark.parametrize("cell", [each for given in ROWS["references"].values() for each in given])
def test_a_reference_is_a_text(tmp_path, cell):
    rows = [{"question": "Why?", "m": "So.", "reference": cell}]
    why = next(why for why, given in ROWS["references"].items() if cell in given)
    if why == "texts":
        assert [case.reference for case in read_rows(tmp_path, rows)] == [cell]
    else:
        with pytest.raises(
            RecordError, match="a.csv:[23]: " + re.escape(f"the reference is {cell!r}, {why}: ")
        ):
            read_rows(tmp_path, rows)


CELLS = ROWS["cells of an answer"]


@pytest.mark.parametrize("cell", [*CELLS["failures"], *CELLS["answers"]])
def test_an_error_of_a_program_is_as_a_blank_cell_and_an_answer_on_errors_stays(tmp_path, cell):
    rows = [{"question": f"Why {at}?", "m": text} for at, text in enumerate(["", cell, "Rest."])]
    failed = cell in CELLS["failures"]
    texts = {
        rule: [case.responses[0].text for case in read_rows(tmp_path, rows, blank=rule)]
        for rule in BLANK
    }
    assert texts == {
        "lowest": ["", "" if failed else cell, "Rest."],
        "skip": [cell] * (not failed) + ["Rest."],
    }
    with pytest.raises(
        RecordError, match="2 of 3 .* or an error of a program" if failed else r"1 of 3 .* blank \("
    ):
        read_rows(tmp_path, rows)


def test_a_case_without_an_id_gets_one_beside_one_that_has(tmp_path):
    file = write(tmp_path / "a.csv", "id,question,m\n1,a,b\n,c,d\n")
    assert [case.id[:2] for case in read_cases(file)] == ["1", "c-"]


def test_a_case_without_responses_is_read_where_that_is_asked(tmp_path):
    (case,) = read_cases(write(tmp_path / "a.csv", "question\nWhat?\n"), least_responses=0)
    assert (case.question, case.responses) == ("What?", ())


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_a_csv_ends_its_lines_as_it_likes_and_a_name_may_have_the_other_separator(tmp_path, end):
    text = 'question;"rowan";larchEWhy?;"aEb";cE'
    (tmp_path / "a.csv").write_bytes(text.replace("E", end).encode())
    (case,) = read_cases(tmp_path / "a.csv")
    assert [response.text for response in case.responses] == [f"a{end}b", "c"]
    (tmp_path / "b.csv").write_bytes(f'"question";"m 1, x"{end}"a;b";"c, d"{end}'.encode())
    assert table_of(tmp_path / "b.csv").columns.responses == ("m 1, x",)


def test_a_first_row_without_answers_is_one_of_a_table_too(tmp_path):
    file = write(
        tmp_path / "a.jsonl", '{"question": "a", "m": null}\n{"question": "b", "m": "c"}\n'
    )
    assert [len(case.responses) for case in read_cases(file, blank="lowest")] == [1, 1]


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


SHEETS = ROWS["test_a_cell_of_a_spreadsheet_that_is_no_text_stops_where_it_is_read"]


@pytest.mark.parametrize(("cells", "message"), SHEETS.values(), ids=SHEETS)
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
    assert [[each.text for each in case.responses] for case in read_cases(file)] == [
        ["b", "5"],
        ["d", "TRUE"],
    ]
    assert table_of(file).notes[1] == "not read: mean (no text)"
