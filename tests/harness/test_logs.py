"""`automedeval judge` on logs that the harnesses wrote themselves, and on AlpacaEval's as documented."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from doubles.agreement_study import read
from programs import ROOT, error_line, run_recipe

from automedeval.commands import console

LIBRARIES = "AUTOMEDEVAL_HARNESSES"  # names the python of an environment with lm_eval, inspect_ai and lighteval
needs_libraries = pytest.mark.skipif(
    LIBRARIES not in os.environ,
    reason=f"{LIBRARIES} does not name the python of an environment with lm_eval, inspect_ai and lighteval",
)
PATTERN = r"Question: (.*)\nAnswer:"
JUDGE = ("--judge", "baseline:longer text")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Let the libraries write their logs; `lm` and `json` name them."""
    folder = Path(os.environ.get("AUTOMEDEVAL_HARNESS_LOGS") or tmp_path_factory.mktemp("logs"))
    if not list(folder.glob("lighteval/**/*.parquet")):
        program = ROOT / "tests" / "harness" / "make_logs.py"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([os.environ[LIBRARIES], str(program), str(folder)], check=True, timeout=300, env=environment)
    (lm,) = folder.glob("lm_eval/**/samples_medtext_*.jsonl")
    (inspect,) = folder.glob("inspect-json/*.json")
    (packed,) = folder.glob("inspect-eval/*.eval")
    (details,) = folder.glob("lighteval/details/**/*.parquet")
    return {"lm": lm, "json": inspect, "eval": packed, "lighteval": details}


@needs_libraries
def test_details_of_lighteval_join_the_same_questions(logs: dict[str, Path], tmp_path: Path, capsys) -> None:
    command = ["automedeval", "judge", f"model-a={logs['lm']}", str(logs["lighteval"]), *JUDGE]
    command += ["--question_pattern", PATTERN, "--output", str(tmp_path / "out")]
    with mock.patch.object(sys, "argv", command):
        console.main()
    assert "3 cases, 3 with an answer of all 2 models" in capsys.readouterr().out
    first = read(tmp_path / "out" / "cases.jsonl")[0]
    assert [each["model"] for each in first["responses"]] == ["model-a", "dummy"], "lighteval's folder names its model"
    assert first["responses"][1]["text"] == "A baseline.", "without the reasoning"
    assert first["reference"] == "Acetaminophen lowers a fever."


@needs_libraries
def test_logs_of_two_harnesses_become_cases(logs: dict[str, Path], tmp_path: Path, capsys) -> None:
    command = ["automedeval", "judge", f"model-a={logs['lm']}", f"model-b={logs['json']}", *JUDGE]
    command += ["--question_pattern", PATTERN, "--output", str(tmp_path / "out")]
    with mock.patch.object(sys, "argv", command):
        console.main()
    told = capsys.readouterr().out
    assert "3 answers of model-a; left out: 3 (filter word, not whole)" in told
    assert "6 cases, 3 with an answer of all 2 models" in told
    assert "only model-b has 3 of them" in told, "the second epoch"
    cases = read(tmp_path / "out" / "cases.jsonl")
    first = cases[0]
    assert first["question"] == "What lowers a fever?"
    assert first["reference"] == "Acetaminophen lowers a fever."
    assert [each["model"] for each in first["responses"]] == ["model-a", "model-b"]
    assert first["responses"][0]["text"] == "lol", "lm_eval's dummy model says so"
    assert {len(case["responses"]) for case in cases[3:]} == {1}
    assert len(read(tmp_path / "out" / "verdicts.jsonl")) == 6


@needs_libraries
def test_a_packed_log_of_inspect_needs_inspect(logs: dict[str, Path], tmp_path: Path) -> None:
    told = error_line(run_recipe("judge", "--cases", logs["eval"], *JUDGE, "--output", tmp_path / "out"))
    assert "needs inspect_ai" in told


def test_alpaca_eval_as_documented(tmp_path: Path) -> None:
    # Not written by the library: its documented format.
    for name, answers in (("one", ["Rest.", "Drink."]), ("two", ["Sleep."])):
        records = [
            {"instruction": f"What helps {number}?", "output": text, "generator": name}
            for number, text in enumerate(answers)
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps(records), encoding="utf-8")
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    done = run_recipe("judge", "--cases", *files, *JUDGE, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "2 cases, 1 with an answer of all 2 models" in done.stdout
    assert "only one has 1 of them" in done.stdout
    assert [len(case["responses"]) for case in read(tmp_path / "out" / "cases.jsonl")] == [2, 1]
    other = run_recipe("judge", "--cases", files[0], *JUDGE, "--output", tmp_path / "out")
    assert "holds other cases than these logs" in error_line(other)
    missing = run_recipe("judge", "--cases", tmp_path / "none.json", *JUDGE, "--output", tmp_path / "out")
    assert "none.json: No such file" in error_line(missing)
