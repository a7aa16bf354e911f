"""Hostile tables through every reader: what a line does not count is neither lost nor invented."""

import csv
import json
import re
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automedeval.records import RecordError
from automedeval.records.cases import read_cases, table_of

KINDS = ("csv", "tsv", "xlsx", "json", "jsonl", "parquet")
MODELS = ("rowan", "GPT 4", "gpt 4", "Lärche", "42", "nan", "a=b", "Unnamed model", "case")
BLANKS = (None, "", "  ", "\u00a0", "\n")
WORDS = ("NA", "None", "nan", "5", "4,5 %", "2026-01-02 03:04:05", 'Yes; no, "yes"', "a\n\nb")
TEXTS = st.one_of(
    st.sampled_from((*WORDS, "x" * 40_000)),
    st.text("aß漢😀 \n\t,;\"'5%\u200b", max_size=12),
    st.sampled_from(BLANKS),
)
ABOUT = {
    "reference": ("R.", 'Übel, "sehr"', *BLANKS),
    "topic": ("gout", *BLANKS),
    "url": ("http://x", *BLANKS),
    "case_id": ("c1", "7"),
    "score": ("4.5", "", None),
}
RULES = ("lowest", "skip", None)
SLOW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def blank(cell):
    return cell is None or not cell.strip()


def write(file, names, rows, draw):
    cells = [names, *([row[name] for name in names] for row in rows)]
    if file.suffix in (".csv", ".tsv"):
        separators = "\t" if file.suffix == ".tsv" else ",;"
        separator = draw(st.sampled_from(separators), label="separator")
        end = draw(st.sampled_from(["\n", "\r\n", "\r"]), label="end of a line")
        encoding = draw(st.sampled_from(["utf-8", "utf-8-sig"]), label="encoding")
        with open(file, "w", encoding=encoding, newline="") as stream:
            style = {"delimiter": separator, "lineterminator": end}
            csv.writer(stream, quoting=csv.QUOTE_ALL, **style).writerows(cells)
    elif file.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in cells:
            book.active.append(row)
        book.create_sheet("empty")
        book.save(file)
        state_dimension(file, draw(st.sampled_from(["A1", "A1:C99", "B2:C3"]), label="dimension"))
    elif file.suffix == ".parquet":
        columns = {name: pyarrow.array([row[name] for row in rows], "string") for name in names}
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
    else:
        lines = [json.dumps({name: row[name] for name in names}) for row in rows]
        file.write_text("\n".join(lines) if file.suffix == ".jsonl" else f"[{','.join(lines)}]")


def state_dimension(file, stated):
    """Let the sheet state another size than it has, as of an earlier content."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    dimension = f'<dimension ref="{stated}"'.encode()
    parts[sheet] = re.sub(rb'<dimension ref="[^"]*"', dimension, parts[sheet])
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def read_back(rows, data, rule, kind):
    """Write rows as a table and read it; return the notes and the cases, or no notes and the error."""
    names = data.draw(st.permutations(list(rows[0])), label="columns")
    if kind == "xlsx":  # a cell has at most 32,767 letters
        rows = [{name: cell and cell[:32_000] for name, cell in row.items()} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"t.{kind}"
        write(file, names, rows, data.draw)
        try:
            notes = "; ".join(table_of(file, blank=rule).notes)
            return rows, notes, list(read_cases(file, blank=rule))
        except RecordError as error:
            return rows, "", str(error).removeprefix(f"{file}: ")


def settled(cells, rule):
    """Return what a reader may give of {model: cell}."""
    texts = {model: "" if blank(cell) else cell for model, cell in cells.items()}
    return {model: text for model, text in texts.items() if text or rule == "lowest"}


def read_of(case):
    return {each.model: each.text for each in case.responses}, case.reference, case.topic


@pytest.mark.parametrize("kind", KINDS)
@settings(SLOW, max_examples=25)
@given(
    data=st.data(),
    models=st.lists(st.sampled_from(MODELS), min_size=1, max_size=4, unique=True),
    about=st.lists(st.sampled_from(list(ABOUT)), unique=True),
    rule=st.sampled_from(RULES),
)
def test_a_wide_table_loses_no_row_no_column_and_no_cell(kind, data, models, about, rule):
    cells = {name: st.sampled_from(ABOUT[name]) for name in about} | dict.fromkeys(models, TEXTS)
    drawn = data.draw(st.lists(st.fixed_dictionaries(cells), max_size=4), label="rows")
    first = dict.fromkeys(about, "7") | dict.fromkeys(models, "Because.")
    rows = [
        {**row, "question": f"Why {at}?", "id": f"i{at}"} for at, row in enumerate([first, *drawn])
    ]
    rows, notes, cases = read_back(rows, data, rule, kind)
    missing = Counter(model for model in models for row in rows if blank(row[model]))
    counted = f"{missing.total()} of {len(rows) * len(models)} answers are blank"
    if rule is None and missing:
        assert cases.startswith(counted)
        assert all(f"{model} {count}" in cases for model, count in missing.items())
        return
    for name in set(about) - {"reference", "topic"}:
        assert re.search(rf"not read: .*\b{name}\b", notes)
    assert (counted in notes) == bool(missing)
    expected = {}
    for row in rows:
        texts = settled({model: row[model] for model in models}, rule)
        told = [None if blank(row.get(name)) else row[name] for name in ("reference", "topic")]
        expected |= {row["id"]: (row["question"], texts, *told)} if texts else {}
    assert ("left out" in notes) == (len(expected) < len(rows))
    assert {case.id: (case.question, *read_of(case)) for case in cases} == expected


@SLOW
@given(
    st.data(),
    st.sampled_from(KINDS),
    st.sampled_from(["no ids", "ids of cases", "ids of rows"]),
    st.sampled_from(RULES),
)
def test_a_long_table_loses_no_row_no_topic_and_no_reference(data, kind, ids, rule):
    """Each question stands in rows whose blanks differ; topic and reference stand in some of its rows."""
    asked = st.sampled_from(["Is aspirin safe?", "Why 5 mg?", "漢 what?"])
    pairs = st.lists(st.tuples(asked, st.sampled_from(MODELS)), min_size=1, max_size=8, unique=True)
    groups, rows = {}, []
    for number, (question, model) in enumerate(data.draw(pairs, label="rows")):
        spaced = [question, f"{question} ", question.replace(" ", "  ", 1), f"\n{question}"]
        row = {"question": data.draw(st.sampled_from(spaced)), "model": model}
        row["answer"] = data.draw(TEXTS) if number else "Yes."
        row |= {
            name: data.draw(st.sampled_from(["R.", *BLANKS])) for name in ("topic", "reference")
        }
        if ids != "no ids":
            row["id"] = f"r{number}" if ids == "ids of rows" else f"c{question}"
        rows.append(row)
    rows, notes, cases = read_back(rows, data, rule, kind)
    for row in rows:
        groups.setdefault(" ".join(row["question"].split()), []).append(row)
    missing = sum(blank(row["answer"]) for row in rows)
    counted = f"{missing} of {len(rows)} answers are blank"
    if rule is None and missing:
        assert cases.startswith(counted)
        return
    expected = {}
    for question, group in groups.items():
        texts = settled({row["model"]: row["answer"] for row in group}, rule)
        told = [
            None if all(blank(row[name]) for row in group) else "R."
            for name in ("reference", "topic")
        ]
        expected |= {question: (texts, *told)} if texts else {}
    assert {" ".join(case.question.split()): read_of(case) for case in cases} == expected
    assert len(cases) == len(expected)
    assert f"{len(rows)} rows, {len(groups)} cases" in notes
    assert (counted in notes) == bool(missing)
    named = {case.id for case in cases}
    if ids == "ids of cases":
        assert named == {f"c{question}" for question in expected}
    elif ids == "ids of rows":
        assert ("'id' names rows" in notes) == (len(groups) < len(rows))
        assert named <= {row["id"] for row in rows} or len(groups) < len(rows)
