import json

import pytest
from doubles.agreement_study import case_of, read, write
from programs import ROOT, error_line, flags, run_recipe, succeeded
from tables import rows_of

from automedeval.records import Case, read_cases

ROWS = rows_of(__file__)

GENERIC = "Answer this question truthfully"
WIKIDOC = [
    {"instruction": GENERIC, "input": question, "output": answer}
    for question, answer in ROWS["wikidoc"]
]
LONG = ROWS["wikidoc"][3][0]
RATED = [
    case_of(f"c{n}", f"Why {n}?", {model: f"{model} {n}" for model in ("m1", "m2", "m3")})
    for n in range(12)
]


def prepared(folder, rows, *arguments, name="rows.jsonl"):
    file = write(folder / name, rows)
    return run_recipe("prepare", "--input", file, "--output", folder / "out", *arguments)


def lines(folder, name):
    return read(folder / "out" / f"{name}.jsonl")


def test_every_filter_tells_what_it_left_out(tmp_path):
    done = succeeded(prepared(tmp_path, WIKIDOC))
    assert "layout wikidoc, by its keys" in done.stdout + done.stderr
    reasons = "empty answer: 1, empty question: 0, markup alone: 0, missing text: 0, no subject: 1, rephras: 1"
    assert f"9 rows → 6 kept, 3 rejected ({reasons})" in done.stdout
    assert "6 cases → 3 kept, 3 rejected (equal question: 2, near question: 1)" in done.stdout
    assert "3 cases: 3 with a reference, 0 responses, 0 topics" in done.stdout
    cases = list(read_cases(tmp_path / "out" / "cases.jsonl", least_responses=0))
    assert [case.question for case in cases] == ["What is gout?", LONG, "What is croup?"]
    dropped = lines(tmp_path, "dropped")
    reasons = "rephras, no subject, empty answer, equal question, equal question, near question"
    assert ", ".join(record["reason"] for record in dropped) == reasons
    assert [record.get("of") for record in dropped[3:]] == [cases[0].id, cases[0].id, cases[1].id]
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["arguments"]["near_duplicates"] is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cases.jsonl",
        "dropped.jsonl",
        "run.json",
    ]


def test_the_same_rows_give_the_same_draw(tmp_path):
    rows = [{"Prompt": f"Is {number} much?", "Completion": "Yes."} for number in range(40)]
    done = [succeeded(prepared(tmp_path / name, rows, "--sample", 5)) for name in "ab"]
    assert all("40 cases → 5 drawn" in each.stdout for each in done)
    first, second = (tmp_path / name / "out" / "cases.jsonl" for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    places = [
        rows.index({"Prompt": case["question"], "Completion": "Yes."}) for case in read(first)
    ]
    assert len(places) == 5
    assert places == sorted(places)
    assert "drawn" not in prepared(tmp_path, rows, "--sample", 50).stdout


def test_repeated_questions_stay_where_that_is_asked_or_where_they_have_responses(tmp_path):
    done = prepared(tmp_path, WIKIDOC, "--near_duplicates", "keep")
    assert (
        "6 cases → 6 kept, 0 rejected (equal question: 0, near question: 0); 3 repeat an earlier"
        in done.stdout
    )
    assert len({case["id"] for case in lines(tmp_path, "cases")}) == 6
    same = [{**case, "question": "Why?"} for case in RATED[:3]]
    assert "; 2 repeat an earlier question and are kept" in prepared(tmp_path, same).stdout
    assert lines(tmp_path, "cases") == [{**Case.from_dict(case).to_dict()} for case in same]


def test_a_run_file_names_several_inputs_and_columns(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(
            f'id,Q,A,m1,"m2, new"\n1,What is {name}?,Yes,No,\n2,Rephrase {name},No,x,y\n'
        )
    config = tmp_path / "run.yaml"
    inputs = f"input: [{tmp_path}/a.csv, {tmp_path}/b.csv]\noutput: {tmp_path}/out\n"
    config.write_text(f'{inputs}columns: [question=Q, reference=A, m1, "m2, new"]\n')
    done = run_recipe("prepare", "--config", config, "--blank", "skip")
    assert "4 rows → 2 kept, 2 rejected" in done.stdout
    questions = [(case["id"], case["question"]) for case in lines(tmp_path, "cases")]
    assert questions == [("a-1", "What is a?"), ("b-1", "What is b?")]
    assert lines(tmp_path, "cases")[0]["responses"] == [{"model": "m1", "text": "No"}], (
        "m2 was not asked"
    )


def test_what_a_table_s_columns_hold_is_guessed_and_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.csv").write_text(
        "Prompt;Reference;rowan;larch;score\nWhat?;This.;A.;;3\nWhy?;;B.;C.;4\n"
    )
    done = succeeded(run_recipe("prepare", "--input", "my.csv", "--blank", "skip"))
    read = "read: Prompt (question), rowan, larch (answers), Reference; not read: score (no text)"
    assert f"my.csv: {read}; 2 rows, 2 cases; 1 of 4 answers are blank (larch 1)" in done.stdout
    first, second = read_cases("cases/my/cases.jsonl")
    assert (first.question, first.reference, first.models) == ("What?", "This.", ["rowan"])
    assert (second.reference, second.models) == (None, ["rowan", "larch"])


def of_table(folder, text, *arguments):
    (folder / "t.csv").write_text(text)
    return run_recipe(
        "prepare", "--input", folder / "t.csv", "--output", folder / "out", *arguments
    )


ALMOST = ROWS["test_the_columns_of_a_layout_and_others_are_asked_about"]


@pytest.mark.parametrize(("text", "layout", "others"), ALMOST.values(), ids=ALMOST)
def test_the_columns_of_a_layout_and_others_are_asked_about(tmp_path, text, layout, others):
    line = error_line(of_table(tmp_path, text))
    assert (
        f": has the columns of {layout}, and {others}: --layout {layout} leaves these out, and --columns"
        in line
    )
    assert "and --columns question=NAME" in line
    assert not (tmp_path / "out").exists()
    done = succeeded(of_table(tmp_path, text, "--layout", layout))
    assert f"t.csv: not read: {others.rpartition(' ')[2]}, " in done.stdout


def test_a_word_for_a_missing_answer_is_no_reference(tmp_path):
    words = ("NA", "nan", "None", "null", "N/A", "None of them.")
    done = prepared(tmp_path, [{"Prompt": f"Why {word}?", "Completion": word} for word in words])
    assert "6 rows → 1 kept, 5 rejected (empty answer: 5, " in done.stdout
    assert [case["reference"] for case in lines(tmp_path, "cases")] == ["None of them."]


CRITERIA = {
    "question": "Why?",
    "criterion": "says so",
    "points": "5",
    "model": "m",
    "response": "So.",
}


@pytest.mark.parametrize(
    ("changed", "message"), ROWS["test_what_a_table_of_criteria_would_lose_stops"]
)
def test_what_a_table_of_criteria_would_lose_stops(tmp_path, changed, message):
    assert message in error_line(
        prepared(tmp_path, [CRITERIA, CRITERIA | {"id": "1"} | changed][1:])
    )


def test_the_rows_of_a_question_are_a_case_of_criteria_whatever_stands_between_its_words(tmp_path):
    second = {"question": "Why ?", "criterion": "says how", "topic": "gout", "reference": "R."}
    prepared(tmp_path, [CRITERIA | {"question": "Why  ?", "topic": None}, CRITERIA | second])
    (case,) = lines(tmp_path, "cases")
    assert [each["criterion"] for each in case["criteria"]] == ["says so", "says how"]
    assert (case["question"], case["topic"], case["reference"]) == ("Why  ?", "gout", "R.")


def test_the_cases_of_a_split_are_kept_with_what_they_have(tmp_path):
    """The test set of a study: the cases that a plan set apart, with the responses that they have (section 4.1)."""
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = [{"case_id": f"c{number}", "completion": "Score: …"} for number in (7, 2)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test.parquet")
    more = write(tmp_path / "more.jsonl", [{"id": "c4", "question": "Why 4?"}])
    done = succeeded(
        prepared(
            tmp_path, RATED, "--layout", "cases", "--ids", f"{tmp_path / 'test.parquet'},{more}"
        )
    )
    assert "12 cases → 3 kept, 9 rejected (not in --ids: 9)" in done.stdout
    assert lines(tmp_path, "cases") == [
        Case.from_dict(RATED[number]).to_dict() for number in (2, 4, 7)
    ]
    assert {record["reason"] for record in lines(tmp_path, "dropped")} == {"not in --ids"}


def test_an_id_that_no_row_has_is_named(tmp_path):
    wanted = write(tmp_path / "ids.jsonl", [{"id": "c1"}, {"case_id": "c99"}])
    line = error_line(prepared(tmp_path, RATED, "--layout", "cases", "--ids", wanted))
    assert f"{wanted}:2: 1 cases are not in --input; the first is 'c99'" in line
    line = error_line(
        prepared(tmp_path, RATED, "--ids", write(tmp_path / "none.jsonl", [{"name": "c1"}]))
    )
    assert "has no 'id' and no 'case_id'" in line


NAMED = {"RATED": RATED, "WIKIDOC": WIKIDOC}
FAULTS = ROWS["test_a_fault_is_told_in_one_line_and_nothing_is_written"]


@pytest.mark.parametrize(("rows", "arguments", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_in_one_line_and_nothing_is_written(tmp_path, rows, arguments, message):
    assert message in error_line(
        prepared(tmp_path, NAMED[rows] if isinstance(rows, str) else rows, *arguments)
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("file", "message"), ROWS["test_public_sets_become_cases"])
def test_public_sets_become_cases(human_data, tmp_path, file, message):
    done = run_recipe("prepare", "--input", human_data / file, "--output", tmp_path / "out")
    assert message in done.stdout


def test_the_questions_of_a_study_are_read_by_its_file(human_data, tmp_path):
    config = ROOT / "recipes" / "runs" / "small-judge" / "medquad.yaml"
    files = {"input": human_data / "medquad" / "medquad.jsonl", "output": tmp_path / "out"}
    done = run_recipe("prepare", *flags(config=config, **files))
    assert "12,234 rows, 12,234 cases" in done.stdout
    assert "read: question, answer (reference), focus (topic), id" in done.stdout
