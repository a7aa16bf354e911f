"""automedeval prepare by its command: tables and public sets become cases, and what is left out is counted and named."""

import pyarrow as pa
import pytest
from doubles.agreement_study import case_of
from factories import read, read_json, write
from programs import ROOT, SAMPLE, failed, run_recipe, told
from pyarrow import parquet
from tables import each_row, rows_of

ROWS = rows_of(__file__)
WIKIDOC = ROWS["wikidoc"]
RATED = [
    case_of(f"c{n}", f"Why {n}?", {"m1": f"Rest {n}.", "m2": f"Sleep {n}."}) for n in range(12)
]
NAMED = {"RATED": RATED, "WIKIDOC": WIKIDOC}


def prepared(folder, given, *words, **options):
    """Prepare records, by their name or as they are, or the text of a CSV."""
    rows = NAMED.get(given) if isinstance(given, str) else given
    if rows is None:
        file = folder / "t.csv"
        file.write_text(given)
    else:
        file = write(folder / "rows.jsonl", rows)
    return run_recipe("prepare", *words, input=file, output=folder / "out", **options)


def lines(folder, name):
    return read(folder / "out" / f"{name}.jsonl")


def test_every_filter_tells_what_it_left_out(tmp_path):
    done = prepared(tmp_path, WIKIDOC)
    assert "layout wikidoc, by its keys" in done.stdout + done.stderr
    told(done, *ROWS["test_every_filter_tells_what_it_left_out"])
    cases = lines(tmp_path, "cases")
    dropped = lines(tmp_path, "dropped")
    questions = [row["input"] for row in WIKIDOC]
    assert [case["question"] for case in cases] == [questions[row] for row in (0, 3, 8)]
    reasons = "rephras, no subject, empty answer, equal question, equal question, near question"
    assert [record["reason"] for record in dropped] == reasons.split(", ")
    first, second, _ = [case["id"] for case in cases]
    repeated = [None, None, None, first, first, second]
    assert [record.get("of") for record in dropped] == repeated
    record = read_json(tmp_path / "out/run.json")
    assert record["arguments"]["near_duplicates"] is None
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"cases.jsonl", "dropped.jsonl", "run.json"}


def test_the_same_rows_give_the_same_draw(tmp_path):
    """Here of a packaged file."""
    drawn = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        done = run_recipe("prepare", "two_bots", sample=5, output=folder / "out")
        told(done, "12 cases → 5 drawn")
        drawn.append(lines(folder, "cases"))
    first, second = drawn
    assert first == second
    assert first == [case for case in read(SAMPLE / "two_bots.jsonl") if case in first]
    assert len(first) == 5


@each_row("given, options, said, cases")
def test_rows_become_cases(tmp_path, given, options, said, cases):
    """Each of `cases` is a part of what one case has, in their order."""
    told(prepared(tmp_path, given, **options), said)
    made = lines(tmp_path, "cases")
    assert len({case["id"] for case in made}) == len(cases)
    for case, part in zip(made, cases, strict=True):
        assert case.items() >= part.items()


def test_a_run_file_names_several_inputs_and_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        table = ROWS["a table of columns"].replace("NAME", name)
        (tmp_path / f"{name}.csv").write_text(table)
    (tmp_path / "run.yaml").write_text(ROWS["a run file"])
    told(run_recipe("prepare", config="run.yaml", blank="skip"), "4 cases → 2 kept, 2 rejected")
    cases = lines(tmp_path, "cases")
    assert [case["id"] for case in cases] == ["a-1", "b-1"]
    assert [case["question"] for case in cases] == ["What is a?", "What is b?"]
    # m2 was not asked
    assert cases[0]["responses"] == [{"model": "m1", "text": "No"}]


@each_row("text, layout, others")
def test_the_columns_of_a_layout_and_others_are_asked_about(tmp_path, text, layout, others):
    said = f": has the columns of {layout}, and {others}: --layout {layout} leaves these out, and "
    failed(prepared(tmp_path, text), said, "--columns question=NAME")
    assert not (tmp_path / "out").exists()
    last = others.rpartition(" ")[2]
    told(prepared(tmp_path, text, layout=layout), f"t.csv: not read: {last}, ")


@each_row("changed, message")
def test_what_a_table_of_criteria_would_lose_stops(tmp_path, changed, message):
    row = ROWS["criterion"] | {"id": "1"} | changed
    failed(prepared(tmp_path, [row]), message)


def test_the_rows_of_a_question_are_a_case_of_criteria_whatever_stands_between_its_words(tmp_path):
    prepared(tmp_path, ROWS["rows of a question"])
    (case,) = lines(tmp_path, "cases")
    assert case["id"].startswith("criteria_table-")
    assert [each["criterion"] for each in case["criteria"]] == ["says so", "says how"]
    assert case["question"] == "Why  ?"
    assert case["topic"] == "gout"
    assert case["reference"] == "R."


def test_the_cases_of_a_split_are_kept_with_what_they_have(tmp_path):
    """The test set of a study: the cases that a plan set apart, with the responses that they have (section 4.1)."""
    split = tmp_path / "test.parquet"
    parquet.write_table(pa.table({"case_id": ["c7", "c2"]}), split)
    more = write(tmp_path / "more.jsonl", [{"id": "c4", "question": "Why 4?"}])
    done = prepared(tmp_path, RATED, layout="cases", ids=f"{split},{more}")
    told(done, "12 cases → 3 kept, 9 rejected (not in --ids: 9)")
    for case, number in zip(lines(tmp_path, "cases"), (2, 4, 7), strict=True):
        assert case.items() >= RATED[number].items()
    assert {record["reason"] for record in lines(tmp_path, "dropped")} == {"not in --ids"}


@each_row("ids, message")
def test_an_id_that_no_row_has_is_named(tmp_path, ids, message):
    wanted = write(tmp_path / "ids.jsonl", ids)
    failed(prepared(tmp_path, RATED, layout="cases", ids=wanted), f"{wanted}:{message}")


@each_row("rows, arguments, message")
def test_a_fault_is_told_in_one_line_and_nothing_is_written(tmp_path, rows, arguments, message):
    failed(prepared(tmp_path, rows, *arguments), message)
    assert not (tmp_path / "out").exists()


def test_some_of_the_cases_do_not_replace_them(tmp_path):
    prepared(tmp_path, RATED, layout="cases")
    cases = tmp_path / "out/cases.jsonl"
    before = cases.read_bytes()
    failed(run_recipe("prepare", input=cases, sample=1, output=cases.parent), "is an input")
    assert cases.read_bytes() == before


@each_row("file, message")
def test_public_sets_become_cases(human_data, tmp_path, file, message):
    told(run_recipe("prepare", input=human_data / file, output=tmp_path / "out"), message)


@pytest.mark.slow
def test_the_questions_of_a_study_are_read_by_its_file(human_data, tmp_path):
    config = ROOT / "recipes/runs/small-judge/medquad.yaml"
    rows = human_data / "medquad/medquad.jsonl"
    done = run_recipe("prepare", config=config, input=rows, output=tmp_path / "out")
    read = "read: question, answer (reference), focus (topic), id"
    told(done, "rows: 12,234, cases: 12,234", read)
