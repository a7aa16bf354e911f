"""Hostile tables through every reader, beside a naive one: what a line does not count is neither lost nor invented."""

import csv
import json
import re
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from statistics import median_high

import openpyxl
import pyarrow
import pyarrow.parquet
from doubles.agreement_study import read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import error_line, run_command, succeeded

from automedeval.records import RecordError, read_cases, table_of

KINDS = ("csv", "tsv", "xlsx", "json", "jsonl", "parquet")
MODELS = ("rowan", "GPT 4", "gpt 4", "Lärche", "42", "nan", "a=b", "Unnamed model", "case")
BLANKS = (None, "", "  ", "\u00a0", "\n")
WORDS = (
    "NA",
    "None",
    "nan",
    "null",
    "5",
    "4,5 %",
    "-1",
    "2026-01-02 03:04:05",
    "- 5 mg",
    'Yes; no, "yes"',
    "a\n\nb",
)
TEXTS = st.one_of(
    st.sampled_from((*WORDS, "x" * 40_000)),
    st.text("aß漢😀 \n\t,;\"'5%\u200b", max_size=12),
    st.sampled_from(BLANKS),
)
RULES = ("lowest", "skip", None)
SLOW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def blank(cell):
    return cell is None or not cell.strip()


def is_number(cell):
    """A number, a date, a time: digits, and what stands between them."""
    return blank(cell) or (
        any(map(str.isdigit, cell)) and set("".join(cell.split())) <= set("0123456789+-.,:/%TZ")
    )


def doubts(name, cells):
    """In three rows or more: one long text, a few words beside sentences, texts of one form with numbers."""
    given = {each: [cell.strip() for cell in cells[each] if not blank(cell)] for each in cells}
    lengths = {each: median_high(map(len, given[each])) for each in cells}
    texts, own = given[name], lengths.pop(name)
    most = max(lengths.values(), default=0)
    short = most >= 20 and own < 0.375 * most and all(len(text.split()) <= 3 for text in texts)
    forms = {re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "a", text)) for text in texts}
    numbered = all(re.search(r"\d", text) for text in texts) and 2 * len(forms) <= len(texts)
    same = len(set(texts)) == 1 and len(texts[0]) > 40
    return [len(texts) >= 3 and each for each in (same, numbered, short)]


def is_word(cell):
    return not blank(cell) and cell.strip().lower() in ("na", "nan", "none", "null")


def write(file, names, rows, draw):
    cells = [names, *([row[name] for name in names] for row in rows)]
    if file.suffix in (".csv", ".tsv"):
        style = {
            "delimiter": "\t"
            if file.suffix == ".tsv"
            else draw(st.sampled_from(",;"), label="separator")
        }
        style["lineterminator"] = draw(st.sampled_from(["\n", "\r\n", "\r"]), label="end of a line")
        encoding = draw(st.sampled_from(["utf-8", "utf-8-sig"]), label="encoding")
        with open(file, "w", encoding=encoding, newline="") as stream:
            csv.writer(stream, quoting=csv.QUOTE_ALL, **style).writerows(cells)
    elif file.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in cells:
            book.active.append([cell[:32_000] if cell else cell for cell in row])
        book.create_sheet("empty")
        book.save(file)
        stated = draw(st.sampled_from(["A1", "A1:B2", "A1:C99", "B2:C3"]), label="stated dimension")
        change_sheet(file, rb'<dimension ref="[^"]*"', f'<dimension ref="{stated}"'.encode())
    elif file.suffix == ".parquet":
        columns = {name: pyarrow.array([row[name] for row in rows], "string") for name in names}
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
    else:
        left_out = st.booleans()
        kept = [
            {n: row[n] for n in names if row[n] is not None or not draw(left_out, label="no key")}
            for row in rows
        ]
        lines = "".join(json.dumps(row) + "\n" for row in kept)
        file.write_text(json.dumps(kept) if file.suffix == ".json" else lines)


def read_of(case):
    return {each.model: each.text for each in case.responses}, case.reference, case.topic


def change_sheet(file, pattern, text):
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(
                name, re.sub(pattern, text, content) if name.endswith("sheet1.xml") else content
            )


def read_naively(file):
    """Return the rows of a file, read without this package."""
    if file.suffix in (".csv", ".tsv"):
        with open(file, encoding="utf-8-sig", newline="") as stream:
            header = stream.readline()
            delimiter = next(each for each in ",;\t" if f'"{each}"' in header)
            stream.seek(0)
            return list(csv.DictReader(stream, delimiter=delimiter))
    if file.suffix == ".xlsx":
        names, *rows = openpyxl.load_workbook(file).active.iter_rows(values_only=True)
        return [dict(zip(names, row)) for row in rows]
    if file.suffix == ".parquet":
        return pyarrow.parquet.read_table(file).to_pylist()
    text = file.read_text()
    return (
        json.loads(text)
        if file.suffix == ".json"
        else [json.loads(line) for line in text.splitlines()]
    )


def read_both(names, rows, data, rule):
    """Write a table, and return how a naive reader and this package read it; None in place of a table that stops."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"t.{data.draw(st.sampled_from(KINDS), label='kind')}"
        write(file, names, rows, data.draw)
        naive = read_naively(file)
        try:
            return naive, table_of(file, blank=rule), list(read_cases(file, blank=rule))
        except RecordError as error:
            return naive, None, str(error).removeprefix(f"{file}: ")


def tables(models, texts=TEXTS):
    others = {"reference": ("R.", "Übel, \"sehr\"", *BLANKS), "topic": ("gout", *BLANKS), "url": ("http://x", *BLANKS),
              "case_id": ("c1", "7"), "score": ("4.5", "", None)}  # fmt: skip
    beside = st.lists(st.sampled_from(list(others)), unique=True)

    def rows(names):
        cells = {name: st.sampled_from(others[name]) for name in names} | dict.fromkeys(
            models, texts
        )
        return st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=5)

    return beside.flatmap(rows)


@SLOW
@given(
    st.data(),
    st.lists(st.sampled_from(MODELS), min_size=1, max_size=4, unique=True),
    st.sampled_from(RULES),
)
def test_a_wide_table_loses_no_row_no_column_and_no_cell(data, models, rule):
    rows = data.draw(tables(models), label="rows")
    for number, row in enumerate(rows):
        row["question"] = f"Why {number}?"
        row["id"] = f"i{number}"  # so that case_id is another column
    rows[0][models[0]] = "Because."  # one candidate at least has text
    naive, table, cases = read_both(
        data.draw(st.permutations(list(rows[0])), label="columns"), rows, data, rule
    )
    names = list(dict.fromkeys(name for row in naive for name in row))
    cells = {name: [row.get(name) for row in naive] for name in names}
    read = [name for name in names if name in models and not all(map(is_number, cells[name]))]
    candidates = {name: cells[name] for name in read}
    if any(0 < sum(kind) < len(read) for kind in zip(*(doubts(name, candidates) for name in read))):
        assert table is None
        assert "may hold a candidate's answers, or something else" in cases
        return
    missing = Counter(name for name in read for row in naive if blank(row.get(name)))
    counted = f"{missing.total()} of {len(naive) * len(read)} answers are blank"
    if rule is None and missing:
        assert table is None
        assert len(cases.splitlines()) == 1
        assert cases.startswith(counted)
        assert all(f"{name} {count}" in cases for name, count in missing.items())
        assert "--blank lowest" in cases
        assert "--blank skip" in cases
        return
    assert table is not None, cases
    notes = "; ".join(table.notes)
    for name in set(names) - {"question", "reference", "topic", "id", *read}:
        listed = repr(name) in notes or re.search(rf"[:,] {re.escape(name)}(?: \(|[,;]|$)", notes)
        assert listed, f"{name} is neither read nor listed"
    assert (counted in notes) == bool(missing)
    assert ("words like NA" in notes) == any(
        is_word(row.get(name)) for row in naive for name in read
    )
    expected = {}
    for row in naive:
        texts = {name: "" if blank(row.get(name)) else row[name] for name in read}
        texts = {name: text for name, text in texts.items() if text or rule == "lowest"}
        reference_and_topic = [
            None if blank(row.get(name)) else row[name] for name in ("reference", "topic")
        ]
        expected[row["id"]] = (row["question"], texts, *reference_and_topic)
    left_out = sum(not case[1] for case in expected.values())
    assert ("left out" in notes) == bool(left_out)
    assert not left_out or f"left out: {left_out}" in notes
    assert {case.id: (case.question, *read_of(case)) for case in cases} == {
        name: case for name, case in expected.items() if case[1]
    }


@SLOW
@given(
    st.data(), st.sampled_from(["no ids", "ids of cases", "ids of rows"]), st.sampled_from(RULES)
)
def test_a_long_table_loses_no_row_no_topic_and_no_reference(data, ids, rule):
    """Each question stands in rows whose blanks differ; topic and reference stand in some of its rows."""
    pairs = st.tuples(
        st.sampled_from(["Is aspirin safe?", "Why 5 mg?", "漢 what?"]), st.sampled_from(MODELS)
    )
    drawn = data.draw(st.lists(pairs, min_size=1, max_size=8, unique=True), label="rows")
    about = {
        question: data.draw(st.tuples(*[st.sampled_from(["gout; acne", "R."])] * 2))
        for question, _ in drawn
    }
    rows = []
    for number, (question, model) in enumerate(drawn):
        spaces = data.draw(
            st.sampled_from(
                [question, f"{question} ", question.replace(" ", "  ", 1), f"\n{question}"]
            )
        )
        row = {"question": spaces, "model": model, "answer": data.draw(TEXTS) if number else "Yes."}
        for name, text in zip(("topic", "reference"), about[question]):
            row[name] = data.draw(st.sampled_from([text, *BLANKS]))
        row |= {
            "no ids": {},
            "ids of rows": {"id": f"r{number}"},
            "ids of cases": {"id": f"c{question}"},
        }[ids]
        rows.append(row)
    naive, table, cases = read_both(
        data.draw(st.permutations(list(rows[0])), label="columns"), rows, data, rule
    )
    missing = Counter(row["model"] for row in naive if blank(row.get("answer")))
    counted = f"{missing.total()} of {len(naive)} answers are blank"
    if rule is None and missing:
        assert cases.startswith(counted)
        return
    groups = {}
    for row in naive:
        groups.setdefault(" ".join(row["question"].split()), []).append(row)
    notes, expected, left_out = "; ".join(table.notes), {}, 0
    for question, group in groups.items():
        texts = {row["model"]: "" if blank(row.get("answer")) else row["answer"] for row in group}
        texts = {model: text for model, text in texts.items() if text or rule == "lowest"}
        given = {
            name: [row[name] for row in group if not blank(row.get(name))]
            for name in ("reference", "topic")
        }
        left_out += not texts
        if texts:
            expected[question] = (
                texts,
                *(texts_of[0] if texts_of else None for texts_of in given.values()),
            )
    assert {" ".join(case.question.split()): read_of(case) for case in cases} == expected
    assert len(cases) == len(expected)
    assert f"{len(naive)} rows, {len(groups)} cases" in notes
    assert (counted in notes) == bool(missing)
    assert (f"left out: {left_out}" in notes) == bool(left_out)
    if ids == "ids of cases":
        assert {case.id for case in cases} == {f"c{question}" for question in expected}
    elif ids == "ids of rows":
        kept = {case.id for case in cases} <= {row["id"] for row in naive}
        assert kept == (len(groups) == len(naive)), (
            "an id of a row names its case where each row is a case"
        )
        assert kept or "'id' names rows" in notes


@SLOW
@given(st.data(), st.sampled_from(RULES))
def test_a_table_of_criteria_loses_no_criterion_and_no_answer(tmp_path_factory, data, rule):
    folder = tmp_path_factory.mktemp("criteria")
    file = folder / f"t.{data.draw(st.sampled_from(['csv', 'xlsx', 'json']), label='kind')}"
    asked = st.lists(
        st.sampled_from(["Is aspirin safe?", "Why 5 mg?", "What is “gout”?"]),
        min_size=1,
        unique=True,
    )
    rows = []
    for question in data.draw(asked):
        answers = data.draw(st.dictionaries(st.sampled_from(["rowan", "larch"]), TEXTS, min_size=1))
        topic = data.draw(st.sampled_from(["gout", ""]))
        named = st.lists(
            st.sampled_from(["says food", "names\ndose", "5"]), min_size=1, unique=True
        )
        for criterion in data.draw(named):
            for model, text in answers.items():
                row = {
                    "question": question,
                    "criterion": criterion,
                    "points": "5",
                    "model": model,
                    "response": text,
                }
                rows.append(row | {"topic": topic if not rows or data.draw(st.booleans()) else ""})
    write(file, data.draw(st.permutations(list(rows[0]))), rows, data.draw)
    naive = read_naively(file)
    words = ("--blank", rule) if rule else ()
    done = run_command(
        "prepare", file, "--output", folder / "out", "--near_duplicates", "keep", *words
    )
    answers = {(row["question"], row["model"]): row.get("response") for row in naive}
    missing = sum(map(blank, answers.values()))
    if rule is None and missing:
        assert f"{missing} of {len(answers)} answers are blank" in error_line(done)
        assert not (folder / "out" / "cases.jsonl").exists()
        return
    succeeded(done)
    cases = read(folder / "out" / "cases.jsonl")
    criteria = {
        (case["question"], each["criterion"]) for case in cases for each in case["criteria"]
    }
    assert criteria == {(row["question"], row["criterion"]) for row in naive}
    topics = {row["question"]: row["topic"] for row in naive if not blank(row.get("topic"))}
    assert {case["question"]: case["topic"] for case in cases if case["topic"]} == topics
    settled = {key: "" if blank(text) else text for key, text in answers.items()}
    texts = {
        (case["question"], each["model"]): each["text"]
        for case in cases
        for each in case["responses"]
    }
    assert texts == {key: text for key, text in settled.items() if text or rule == "lowest"}
