"""Hostile tables through every reader: what a line does not count is neither lost nor invented."""

import csv
import tempfile
from pathlib import Path

import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automedeval.records import RecordError
from automedeval.records.tables.cases import CaseFile

KINDS = ("csv", "tsv", "xlsx", "json", "jsonl", "parquet")
MODELS = ("rowan", "GPT 4", "gpt 4", "Lärche", "42", "nan", "a=b", "Unnamed model", "case")
BLANKS = (None, "", "  ", "\u00a0", "\n")
WORDS = ("NA", "None", "nan", "5", "4,5 %", "2026-01-02 03:04:05", 'Yes; no, "yes"', "a\n\nb")
TEXTS = st.one_of(
    st.sampled_from((*WORDS, "x" * 30_000)),
    st.text("aß漢😀 \n\t,;\"'5%\u200b", max_size=12),
    st.sampled_from(BLANKS),
)
STYLES = st.fixed_dictionaries(
    {
        "sep": st.sampled_from(",;"),
        "lineterminator": st.sampled_from(["\n", "\r\n", "\r"]),
        "encoding": st.sampled_from(["utf-8", "utf-8-sig"]),
        "index": st.booleans(),
    }
)
ABOUT = {
    "reference": ("R.", 'Übel, "sehr"', *BLANKS),
    "topic": ("gout", *BLANKS),
    "url": ("http://x", *BLANKS),
    "score": ("4.5", "", None),
}


def write(file, rows, data):
    columns = data.draw(st.permutations(list(rows[0])), label="columns")
    table = pandas.DataFrame(rows)[columns]
    if file.suffix in (".csv", ".tsv"):
        style = data.draw(STYLES, label="style")
        if file.suffix == ".tsv":
            style["sep"] = "\t"
        table.to_csv(file, quoting=csv.QUOTE_ALL, **style)
    elif file.suffix == ".xlsx":
        table.to_excel(file, index=False)
    elif file.suffix == ".parquet":
        table.to_parquet(file, index=False)
    else:
        table.to_json(file, orient="records", lines=file.suffix == ".jsonl")


def laid_out(table, models, shape):
    """Return the rows of a wide table, or of a long one, in which the question of a case has more and more blanks."""
    rows = []
    for number, cells in enumerate(table):
        about = {name: cells[name] for name in ABOUT} | {"question": f"Why {number}?"}
        if shape != "long":
            about["id"] = f"i{number}"
        if shape == "wide":
            rows.append(about | {model: cells[model] for model in models})
            continue
        for at, model in enumerate(models, 1):
            spaced = about["question"].replace(" ", " " * at)
            rows.append(about | {"question": spaced, "model": model, "answer": cells[model]})
    return rows


def shown(cell):
    return "" if cell is None or not cell.strip() else cell


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    models=st.lists(st.sampled_from(MODELS), min_size=1, max_size=4, unique=True),
    shape=st.sampled_from(["wide", "long", "long with ids"]),
    rule=st.sampled_from(["lowest", "skip", None]),
)
def test_a_table_loses_no_row_no_column_and_no_cell(kind, data, models, shape, rule):
    cells = {name: st.sampled_from(given) for name, given in ABOUT.items()}
    cells |= dict.fromkeys(models, TEXTS)
    first = {name: given[0] for name, given in ABOUT.items()} | dict.fromkeys(models, "Because.")
    table = [first, *data.draw(st.lists(st.fixed_dictionaries(cells), max_size=4), label="rows")]
    rows = laid_out(table, models, shape)
    answers = [shown(row[model]) for row in table for model in models]
    blanks = answers.count("")
    counted = f"{blanks} of {len(answers)} answers are blank"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"t.{kind}"
        write(file, rows, data)
        if rule is None and blanks:
            with pytest.raises(RecordError, match=counted):
                CaseFile(file)
            return
        content = CaseFile(file, blank=rule)
        (notes,) = content.notes
        cases = list(content)
    assert f"rows: {len(rows)}, cases: {len(table)}" in notes
    assert "url (no text)" in notes
    assert (counted in notes) == bool(blanks)
    expected = {}
    for number, row in enumerate(table):
        texts = {name: shown(cell) for name, cell in row.items()}
        answers = {model: texts[model] for model in models if texts[model] or rule == "lowest"}
        if answers:
            expected[f"Why {number}?"] = (answers, texts["reference"], texts["topic"])
    read = {}
    for case in cases:
        answers = {response.model: response.text for response in case.responses}
        read[case.question] = (answers, case.reference or "", case.topic or "")
    assert read == expected
    assert ("left out" in notes) == (len(expected) < len(table))
    assert shape == "long" or {case.id for case in cases} <= {f"i{at}" for at in range(9)}
