"""Public layouts with criteria, through the command."""

from doubles.agreement_study import read, write
from programs import failed, run_recipe
from tables import each_row, rows_of, write_csv

ROWS = rows_of(__file__)
HEALTHBENCH, PROFESSIONAL, META = ROWS["records"].values()


def prepared(tmp_path, rows, source="rows.jsonl"):
    if rows:
        write(tmp_path / source, rows)
    result = run_recipe("prepare", "--input", tmp_path / source, "--output", tmp_path / "out")
    return result, lambda name: read(tmp_path / "out" / f"{name}.jsonl")


def test_healthbench_and_its_professional_set_become_cases_with_criteria(tmp_path):
    _, read = prepared(tmp_path, [HEALTHBENCH])
    (case,) = read("cases")
    assert case.items() >= ROWS["case"].items()
    assert case["question"] == HEALTHBENCH["prompt"]
    assert case["criteria"] == HEALTHBENCH["rubrics"]
    _, read = prepared(tmp_path, [PROFESSIONAL])
    (case,) = read("cases")
    assert case["criteria"] == [{"criterion": "names the risk", "points": 3, "tags": []}]
    assert (case["topic"], case["specialty"]) == ("cardiology", "cardiology")


def test_the_meta_evaluation_becomes_a_case_for_each_completion_and_labels(tmp_path):
    other = META | {"rubric": "is short", "binary_labels": [False, False]}
    _, read = prepared(tmp_path, [META, other, META | {"completion_id": "b"}])
    first, second = read("cases")
    assert [criterion["criterion"] for criterion in first["criteria"]] == [
        "says to ask",
        "is short",
    ]
    labels = read("criterion_labels")
    met = [label["label"] == "met" for label in labels]
    assert met == [True, False, False, False, True, False]
    assert {label["case_id"] for label in labels} == {first["id"], second["id"]}


@each_row("change, said, row")
def test_parts_of_a_case_that_differ_are_named(tmp_path, change, said, row):
    part = {"id": "1", "question": "Why?", "criterion": "says so", "points": 5, "topic": "gout"}
    said_so = {"model": "m", "response": "So."}
    rows = [part | said_so, part | said_so | change]
    failed(prepared(tmp_path, rows)[0], f"rows.jsonl:{row}: ", said)


def test_labels_of_an_earlier_input_are_named(tmp_path):
    assert "was there before" not in prepared(tmp_path, [META])[0].stdout
    result, _ = prepared(tmp_path, [HEALTHBENCH])
    assert (
        f"{tmp_path / 'out' / 'criterion_labels'}.jsonl was there before, and is not of these cases"
        in result.stdout
    )
    assert result.stdout.count("was there before") == 1


def test_a_table_has_a_row_for_each_criterion(tmp_path):
    names, *rows = ROWS["table"]
    write_csv(tmp_path / "rows.csv", names, rows)
    _, read = prepared(tmp_path, None, "rows.csv")
    (case,) = read("cases")
    assert case["id"] == "q7"
    assert case["criteria"] == ROWS["criteria of the table"]
    assert [response["model"] for response in case["responses"]] == ["m1", "m2"]


@each_row("name, change, said")
def test_unexpected_records_get_one_line(tmp_path, name, change, said):
    failed(prepared(tmp_path, [ROWS["records"][name] | change])[0], said, "rows.jsonl:1")
