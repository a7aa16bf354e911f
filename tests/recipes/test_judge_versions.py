"""`automedeval judge v1=v1.csv v2=v2.csv`: one table for each version of a model."""

import csv
import json
from pathlib import Path

from doubles.agreement_study import read
from programs import run_command

QUESTIONS = [
    "May I take two pills?",
    "What is a normal pulse?",
    "Is a fever of 39 dangerous?",
    "Do colds need antibiotics?",
]


def table(file: Path, rows: list[list[str]], *names: str) -> Path:
    with open(file, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([names or ("question", "answer"), *rows])
    return file


def judged(folder: Path, *words: object):
    return run_command("judge", *words, "--judge", "baseline:longer text", "--output", folder / "out")


def test_tables_of_versions_are_joined_by_question_in_any_order_and_what_does_not_match_is_counted(tmp_path):
    first = table(
        tmp_path / "v1.csv", [[each, f"{each} One.", "Gold."] for each in QUESTIONS], "question", "answer", "reference"
    )
    rows = [[f" {each} ", f"{each} Two."] for each in [*reversed(QUESTIONS[1:]), "Something else?", QUESTIONS[1]]]
    second = table(tmp_path / "v2.csv", rows)
    done = judged(tmp_path, f"v1={first}", f"v2={second}")
    assert done.returncode == 0, done.stderr
    cases = read(tmp_path / "out/cases.jsonl")
    answers = {each["question"].strip(): {one["model"]: one["text"] for one in each["responses"]} for each in cases}
    assert answers == {
        QUESTIONS[0]: {"v1": f"{QUESTIONS[0]} One."},
        **{each: {"v1": f"{each} One.", "v2": f"{each} Two."} for each in QUESTIONS[1:]},
        "Something else?": {"v2": "Something else? Two."},
    }
    assert "left out: 1 (the question is in the log before)" in done.stdout
    assert "5 cases, 3 with an answer of all 2 models" in done.stdout
    assert "only v1 has 1 of them" in done.stdout


def test_three_versions_of_other_kinds_keep_the_ids_of_the_first(tmp_path):
    first = table(
        tmp_path / "a.csv", [[f"q{n}", each, "Yes."] for n, each in enumerate(QUESTIONS)], "id", "prompt", "output"
    )
    (tmp_path / "b.json").write_text(json.dumps([{"question": each, "answer": "No."} for each in QUESTIONS]), "utf-8")
    lines = [json.dumps({"question": each, "response": "It depends."}) for each in QUESTIONS]
    (tmp_path / "c.jsonl").write_text("\n".join(lines), "utf-8")
    done = judged(tmp_path, f"a={first}", f"b={tmp_path / 'b.json'}", f"c={tmp_path / 'c.jsonl'}")
    assert done.returncode == 0, done.stderr
    cases = read(tmp_path / "out/cases.jsonl")
    assert [case["id"] for case in cases] == ["q0", "q1", "q2", "q3"]
    assert {tuple(each["model"] for each in case["responses"]) for case in cases} == {("a", "b", "c")}


def test_a_table_of_two_models_is_no_file_of_one_version(tmp_path):
    two = table(tmp_path / "t.csv", [[each, f"{each} Yes.", f"{each} No."] for each in QUESTIONS], "question", "x", "y")
    done = judged(tmp_path, f"a={two}", f"b={two}")
    assert done.returncode == 1
    assert "2 answers (x, y), and a file for each version has one to a question" in done.stderr


def test_columns_are_named_for_each_and_an_id_has_one_question(tmp_path):
    names, asked = ("id", "prompt", "output", "provider"), enumerate(QUESTIONS)
    first = table(tmp_path / "a.csv", [[str(n), each, f"{each} Yes.", f"p{n} x"] for n, each in asked], *names)
    second = table(tmp_path / "b.csv", [["0", QUESTIONS[0], "No.", "p1 x"]], *names)
    done = judged(tmp_path, f"a={first}", f"b={second}", "--columns", "question=prompt", "output")
    assert done.returncode == 0, done.stderr
    assert "4 cases, 1 with an answer of all 2 models" in done.stdout
    other = table(tmp_path / "c.csv", [["0", "Two pills, please?", "No."]], *names[:3])
    done = judged(tmp_path / "other", f"b={second}", f"c={other}", "--columns", "question=prompt", "output")
    assert done.returncode == 1
    assert "the id '0' has different questions in these tables" in done.stderr
