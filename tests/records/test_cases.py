"""Tables of answers as people have them: the same cases come out of each, and what is unclear is asked in one line."""

import csv
import json
import sys

import pandas
import pytest

from automedeval.records import Case, RecordError, columns_of, read_cases

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


def write_lines(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


FILES = {
    "wide.csv": write_csv,
    "excel.csv": lambda file, rows: write_csv(file, rows, "utf-8-sig", delimiter=";", lineterminator="\r\n"),
    "tabs.tsv": lambda file, rows: write_csv(file, rows, delimiter="\t"),
    "pandas.csv": lambda file, rows: pandas.DataFrame(rows).to_csv(file),
    "list.json": lambda file, rows: file.write_text(json.dumps(rows)),
    "lines.jsonl": write_lines,
    "records.parquet": lambda file, rows: pandas.DataFrame(rows).to_parquet(file),
}


@pytest.mark.parametrize("rows", [WIDE, LONG], ids=["wide", "long"])
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_table_holds_the_same_cases(tmp_path, name, rows):
    FILES[name](tmp_path / name, rows)
    found = {case.question: case for case in read_cases(tmp_path / name)}
    assert set(found) == set(QUESTIONS)
    for row in WIDE:
        given = {response.model: response.text for response in found[row["question"]].responses}
        assert given == {model: row[model] for model in ("rowan-7b", "larch-7b") if row[model]}, (
            "a blank is no response"
        )
    assert len({case.id for case in found.values()}) == 3


def test_a_spreadsheet_is_read_where_its_reader_is_installed(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl")
    pandas.DataFrame(WIDE).to_excel(tmp_path / "a.xlsx", index=False)
    write_csv(tmp_path / "a.csv", WIDE)
    assert list(read_cases(tmp_path / "a.xlsx")) == list(read_cases(tmp_path / "a.csv"))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(RecordError, match=r"a\.xlsx: save it as 'CSV UTF-8', or install openpyxl"):
        list(read_cases(tmp_path / "a.xlsx"))


def test_ids_are_of_the_question_alone(tmp_path):
    write_csv(tmp_path / "a.csv", WIDE)
    write_csv(tmp_path / "b.csv", [{**row, "third": "More.", "reference": "R."} for row in reversed(WIDE)])
    ids = [{case.question: case.id for case in read_cases(tmp_path / name)} for name in ("a.csv", "b.csv")]
    assert ids[0] == ids[1]
    write_csv(tmp_path / "c.csv", [WIDE[0], {**WIDE[0], "larch-7b": "Other."}, WIDE[0]])
    first, *others = read_cases(tmp_path / "c.csv")
    assert [case.id for case in others] == [f"{first.id}-2", f"{first.id}-3"], (
        "a repeated question is a case of its own"
    )


def test_own_ids_references_and_topics_are_kept_and_numbers_are_no_responses(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(
        "ID,Question,Ground truth,Category,rowan,Score rowan,url,\n"
        "7,What?,This.,Gout,A.,4.5,u,\n"
        "8,Why?,,,B.,3,u,\n"
        ",,,,,,,\n"
    )
    first, second = read_cases(file)
    assert first == Case.from_dict(
        {
            "id": "7",
            "question": "What?",
            "reference": "This.",
            "topic": "Gout",
            "responses": [{"model": "rowan", "text": "A."}],
        }
    )
    assert (second.reference, second.topic) == (None, None)
    assert str(columns_of(file)).endswith("topic = 'Category', id = 'ID', responses = 'rowan'")
    assert columns_of(write(tmp_path / "b.jsonl", json.dumps(first.to_dict()))) is None


def test_the_rows_of_one_id_are_a_case(tmp_path):
    rows = [
        {"case_id": name, "prompt": "Why?", "system": model, "output": f"{name} {model}", "gold": gold}
        for name in "xy"
        for model, gold in (("m1", ""), ("m2", "G."))
    ]
    write_csv(tmp_path / "a.csv", rows)
    found = list(read_cases(tmp_path / "a.csv"))
    assert [(case.id, case.question, case.models, case.reference) for case in found] == [
        ("x", "Why?", ["m1", "m2"], "G."),
        ("y", "Why?", ["m1", "m2"], "G."),
    ]
    write_csv(tmp_path / "b.csv", [{**row, "case_id": number} for number, row in enumerate(rows[:2])])
    (case,) = read_cases(tmp_path / "b.csv")  # ids of rows, not of cases
    assert case.models == ["m1", "m2"]


def test_a_case_without_responses_is_read_where_that_is_asked(tmp_path):
    file = write(tmp_path / "a.csv", "question\nWhat?\n")
    (case,) = read_cases(file, least_responses=0)
    assert (case.question, case.responses) == ("What?", ())


def write(file, text, encoding="utf-8"):
    file.write_text(text, encoding=encoding)
    return file


FAULTS = {
    "no question": ("Q,A\na,b\n", "a.csv: no column is called question; the columns are Q, A; automedeval prepare "),
    "two questions": ("prompt,query,m\na,b,c\n", "'prompt' or 'query' may be the question"),
    "unclear": ("question,answer,m\na,b,c\n", "'answer' may be the reference, or a candidate's responses"),
    "no responses": ("question,reference,score\na,b,3\n", "no column has responses"),
    "no answer": ("question,model,text\na,m,c\n", "beside 'model', one column must be called answer"),
    "one column twice": ("question,m,m\na,b,c\n", "two columns are called 'm'"),
    "blank row": ("question,m\na,b\nc,\n", "a.csv:3: case 'q-[0-9a-f]{12}' has no response"),
    "blank question": ("question,m\n ,b\n", "a.csv:2: case 'q-.*': 'question' must not be empty"),
    "reserved": ("question,tie\na,b\n", "a.csv:2: a model cannot be called 'tie'"),
    "repeated id": ("id,question,m\n1,a,b\n1,c,d\n", "a.csv:3: the id '1' stands at .*a.csv:2 already"),
    "blank id": ("id,question,m\n1,a,b\n,c,d\n", None),
    "twice": ("question,model,answer\na,m,b\na,m,c\n", "has two responses of the model 'm'"),
    "two questions of an id": (
        "id,question,model,answer\n1,a,m,b\n1,c,n,d\n",
        "a.csv:3: another question than .*a.csv:2",
    ),
    "no model": ("question,model,answer\na,,b\n", "a.csv:2: a response's 'model' must not be empty"),
    "empty": ("question,m\n", "a.csv: the file is empty"),
}


@pytest.mark.parametrize(("text", "told"), FAULTS.values(), ids=FAULTS)
def test_what_is_unclear_or_wrong_is_told(tmp_path, text, told):
    file = write(tmp_path / "a.csv", text)
    if told is None:
        assert [case.id[:2] for case in read_cases(file)] == ["1", "q-"]
        return
    with pytest.raises(RecordError, match=told):
        list(read_cases(file))


def test_another_encoding_is_refused_and_not_guessed(tmp_path):
    file = write(tmp_path / "a.csv", "question,m\nWhat?,Yes.\nFieber?,Übermäßig.\n", "cp1252")
    with pytest.raises(RecordError, match=r"a.csv: not UTF-8 \(line 3\); in a spreadsheet, save it as 'CSV UTF-8'"):
        list(read_cases(file))


def test_rows_of_other_records_are_still_told_as_such(tmp_path):
    file = write(tmp_path / "ratings.jsonl", '{"case_id": "a", "model": "m", "score": 3}\n')
    with pytest.raises(RecordError, match=r"ratings\.jsonl:1: 'id' is missing"):
        list(read_cases(file))
