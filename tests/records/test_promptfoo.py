"""Results of promptfoo are read as a table of answers."""

import json
from pathlib import Path

import pytest
from doubles.agreement_study import read
from programs import run_command, succeeded

from automedeval.records import RecordError, read_cases, table_of


def result(test: int, provider: str, output: object, prompt: int = 0, **variables: object) -> dict:
    """Return one entry of the results, with the keys of promptfoo's `EvaluateResult`."""
    return {
        "testIdx": test, "promptIdx": prompt, "vars": variables, "provider": {"id": f"openai:{provider}", "label": provider},
        "prompt": {"raw": f"Answer briefly: {variables}", "label": "Answer briefly: {{ask}}"}, "success": False, "score": 0,
        "response": {"output": output} if output is not None else None, "error": "Assertion failed",
    }  # fmt: skip


def written(folder: Path, *results: dict) -> Path:
    file = folder / "results.json"
    file.write_text(json.dumps({"evalId": "eval-1", "results": {"version": 3, "results": results}, "config": {}}))
    return file


def test_the_answers_of_each_provider_to_a_test_are_a_case(tmp_path: Path) -> None:
    asked = {"question": "Is 40 °C a fever?", "reference": "Yes.", "answer": "never the model's"}
    answers = result(0, "a", "Yes.", **asked), result(0, "b", "No.", **asked)
    first, second = read_cases(written(tmp_path, *answers, result(1, "a", {"dose": 5}, question="How much?")))
    assert (first.question, first.reference) == ("Is 40 °C a fever?", "Yes.")
    assert [(each.model, each.text) for each in first.responses] == [("a", "Yes."), ("b", "No.")]
    assert [each.text for each in second.responses] == ['{"dose": 5}']


def test_a_variable_called_question_is_the_question_and_other_variables_are_told(tmp_path: Path) -> None:
    answers = [result(0, "a", text, n, question="Q?", style=n) for n, text in enumerate(("one", "two"))]
    file = written(tmp_path, *answers)
    (case,) = read_cases(file)
    assert (case.question, [each.model for each in case.responses]) == ("Q?", ["a prompt 1", "a prompt 2"])
    assert any("not read: style" in note for note in table_of(file).notes)


def test_without_a_variable_that_is_called_question_the_user_names_it(tmp_path: Path) -> None:
    file = written(tmp_path, result(0, "a", "text", ask="Q?", dose="5 mg"))
    with pytest.raises(
        RecordError, match="no column is called question; the columns are id, answer, model, ask, dose; say"
    ):
        list(read_cases(file))
    ((_, case),) = table_of(file, columns=["question=ask", "model=model", "answer=answer"]).cases
    assert case.question == "Q?"


def test_an_answer_that_failed_is_blank(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"1 of 2 answers are blank .*--blank lowest"):
        list(read_cases(written(tmp_path, result(0, "a", None, question="Q?"), result(1, "a", "text", question="R?"))))


@pytest.mark.parametrize("broken", [{"results": 5}, {"results": [{"testIdx": 0}]}, {"results": {"results": [[]]}}])
def test_other_results_are_one_line(tmp_path: Path, broken: dict) -> None:
    (tmp_path / "r.json").write_text(json.dumps(broken))
    with pytest.raises(RecordError, match="results of promptfoo"):
        list(read_cases(tmp_path / "r.json"))


def test_they_are_judged_by_the_command(tmp_path: Path) -> None:
    answers = {"a": "Yes.", "b": "No, no."}
    file = written(tmp_path, *(result(0, name, text, question="Is 40 °C a fever?") for name, text in answers.items()))
    succeeded(run_command("judge", file, "--judge", "baseline:longer text", "--output", tmp_path / "out"))
    assert [each["expected_scores"] for each in read(tmp_path / "out" / "verdicts.jsonl")] == [[1, 2]]
