"""Public layouts with criteria, through the command."""

import csv
import json

import pytest
from programs import error_line, run_recipe
from tables import rows_of

ROWS = rows_of(__file__)
HEALTHBENCH, PROFESSIONAL, META = ROWS["records"].values()


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def prepared(tmp_path, rows, *more):
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out"
    result = run_recipe("prepare", "--input", source, "--output", out, *more)
    return result, lambda name: lines_of(out / f"{name}.jsonl")


def test_healthbench_and_its_professional_set_become_cases_with_criteria(tmp_path):
    _, read = prepared(tmp_path, [HEALTHBENCH])
    (case,) = read("cases")
    assert (case["id"], case["topic"], case["reference"]) == ("healthbench-p1", "hedging", "Ask first.")
    assert case["question"] == HEALTHBENCH["prompt"]
    assert case["criteria"] == HEALTHBENCH["rubrics"]
    _, read = prepared(tmp_path, [PROFESSIONAL])
    (case,) = read("cases")
    assert case["criteria"] == [{"criterion": "names the risk", "points": 3, "tags": []}]
    assert (case["topic"], case["specialty"]) == ("cardiology", "cardiology")


def test_the_meta_evaluation_becomes_a_case_for_each_completion_and_labels(tmp_path):
    rows = [META, META | {"rubric": "is short", "binary_labels": [False, False]}, META | {"completion_id": "b"}]
    _, read = prepared(tmp_path, rows)
    cases = read("cases")
    assert [[each["criterion"] for each in case["criteria"]] for case in cases] == [
        ["says to ask", "is short"],
        ["says to ask"],
    ]
    labels = read("criterion_labels")
    assert [label["label"] for label in labels] == ["met", "not_met", "not_met", "not_met", "met", "not_met"]
    assert {label["case_id"] for label in labels} == {case["id"] for case in cases}


def test_labels_of_an_earlier_input_are_named(tmp_path):
    assert "was there before" not in prepared(tmp_path, [META])[0].stdout
    result, _ = prepared(tmp_path, [HEALTHBENCH])
    assert f"{tmp_path / 'out' / 'criterion_labels'}.jsonl was there before, and is not of these cases" in result.stdout
    assert result.stdout.count("was there before") == 1


def test_a_table_has_a_row_for_each_criterion(tmp_path):
    rows = [
        ("Is it safe?", "says to ask", "5", "theme:a; x", "m1", "Ask."),
        ("Is it safe?", "is short", "-1", "", "m2", "No."),
    ]
    source = tmp_path / "rows.csv"
    with open(source, "w", newline="") as stream:
        csv.writer(stream).writerows([("question", "criterion", "points", "tags", "model", "response"), *rows])
    run_recipe("prepare", "--input", source, "--output", tmp_path / "out")
    (case,) = lines_of(tmp_path / "out" / "cases.jsonl")
    assert [each["tags"] for each in case["criteria"]] == [["theme:a", "x"], []]
    assert [each["model"] for each in case["responses"]] == ["m1", "m2"]


@pytest.mark.parametrize(("name", "change", "said"), ROWS["test_unexpected_records_get_one_line"])
def test_unexpected_records_get_one_line(tmp_path, name, change, said):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(ROWS["records"][name] | change) + "\n")
    result = run_recipe("prepare", "--input", source, "--output", tmp_path / "out", check=False)
    assert said in error_line(result)
    assert "rows.jsonl:1" in error_line(result)
