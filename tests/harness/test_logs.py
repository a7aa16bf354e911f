"""`automedeval judge` on logs that the harnesses wrote themselves."""

import json
from pathlib import Path

from doubles.agreement_study import read
from programs import error_line, flags, run_command, succeeded

PATTERN = r"Question: (.*)\nAnswer:"
JUDGE = ("--judge", "baseline:longer text")


def judge(output: Path, *logs: object, **options: str):
    return run_command("judge", *logs, *JUDGE, *flags(**options, output=output))


def test_a_run_that_ended_with_an_error_is_told(logs, tmp_path):
    done = succeeded(judge(tmp_path / "out", f"model-a={logs['error']}"))
    assert "2 answers of model-a; left out: 1 (no answer)" in done.stdout
    assert "the run ended as 'error': samples may be missing, the log has 3" in done.stdout
    assert "the run ended" not in judge(tmp_path / "whole", f"model-a={logs['json']}").stdout


def test_of_lm_eval_the_model_s_own_text_is_read_once(logs, tmp_path):
    done = succeeded(judge(tmp_path / "out", f"m={logs['lm']}"))
    assert "3 answers of m; left out: 3 (the same answer, by a further filter)" in done.stdout


def test_a_packed_log_of_inspect_needs_inspect(logs, tmp_path):
    assert "needs inspect_ai" in error_line(judge(tmp_path, logs["eval"]))


def test_the_outputs_of_alpaca_eval_are_a_table(tmp_path):
    # Not written by the library: its documented format.
    said = (("one", 0, "Rest."), ("one", 1, "Drink."), ("two", 0, "Sleep."))
    asked = [
        (name, text, {"instruction": f"What helps {number}?", "dataset": "own"})
        for name, number, text in said
    ]
    records = [about | {"output": text, "generator": name} for name, text, about in asked]
    (tmp_path / "outputs.json").write_text(json.dumps(records), encoding="utf-8")
    done = succeeded(judge(tmp_path / "out", tmp_path / "outputs.json"))
    assert "not read: dataset; 3 rows, 2 cases" in done.stdout
    verdicts = read(tmp_path / "out" / "verdicts.jsonl")
    assert [verdict["models"] for verdict in verdicts] == [["one", "two"], ["one"]]


def test_other_cases_than_those_of_the_folder_stop(tmp_path):
    for name in ("one", "two"):
        sample = {
            "id": 1,
            "epoch": 1,
            "input": name,
            "target": "",
            "output": {"completion": "Rest."},
        }
        log = {"status": "success", "eval": {"model": name}, "samples": [sample]}
        (tmp_path / f"{name}.json").write_text(json.dumps(log), encoding="utf-8")
    succeeded(judge(tmp_path / "out", "--cases", tmp_path / "one.json"))
    assert f"holds other cases than {tmp_path / 'two.json'}" in error_line(
        judge(tmp_path / "out", "--cases", tmp_path / "two.json")
    )
    assert "none.json: No such file" in error_line(
        judge(tmp_path / "out", "--cases", tmp_path / "none.json")
    )
