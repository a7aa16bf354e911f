"""`compare --fail_if_worse`: exit statuses, invalid verdicts, bad input, and the workflow of the documents."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
import yaml
from doubles.agreement_study import verdict, write
from programs import ROOT, error_line, run_recipe

compare = partial(run_recipe, "compare")
GATE = ("--fail_if_worse", "new", "old", "--by", 0.1)


def study(folder: Path, loss: int, cases: int = 400, invalid: int = 0) -> tuple[object, ...]:
    """Write cases of two candidates, of which the new one loses `loss` points in every second case."""
    records, verdicts = [], []
    for number in range(cases):
        case = {"id": f"c{number}", "question": f"What helps against {number}?"}
        case["responses"] = [{"model": name, "text": f"{name} {number}"} for name in ("old", "new")]
        records.append(case)
        scores = None if number < invalid else [3, 3 - loss * (number % 2)]
        verdicts.append(verdict(case, scores) | {"expected_scores": scores})
    write(folder / "cases.jsonl", records)
    return "--cases", folder / "cases.jsonl", "--verdicts", write(folder / "verdicts.jsonl", verdicts)


@pytest.mark.parametrize(
    ("loss", "cases", "status", "word"), [(0, 400, 0, "not lower"), (1, 400, 3, "lower"), (0, 10, 4, "undecided")]
)
def test_the_exit_status_tells_the_result(tmp_path: Path, loss: int, cases: int, status: int, word: str) -> None:
    done = compare(*study(tmp_path, loss, cases), *GATE, "--output", tmp_path / "out")
    assert done.returncode == status, done.stderr
    assert f"{word} (exit status {status})" in done.stdout
    record = json.loads((tmp_path / "out" / "gate.json").read_text(encoding="utf-8"))
    assert record["mean"] == pytest.approx(-loss / 2)
    assert (record["status"], record["cases"], record["result"]) == (status, cases, word)
    assert (status == 4) == ("would do" in done.stdout)


def test_an_invalid_verdict_is_left_out_and_many_leave_it_undecided(tmp_path: Path) -> None:
    done = compare(*study(tmp_path, 0, invalid=40), *GATE)
    assert done.returncode == 0
    assert "40 of 400 cases without a valid verdict" in done.stdout
    assert "on 360 cases" in done.stdout
    done = compare(*study(tmp_path, 1, invalid=41), *GATE)
    assert done.returncode == 4
    assert "mean difference -0.5" in done.stdout.replace("-0.499", "-0.5").replace("-0.501", "-0.5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fail_if_worse", "new", "old"), "--by need each other"),
        (("--fail_if_worse", "new", "new", "--by", 1), "two candidates"),
        (("--fail_if_worse", "new", "none", "--by", 1), "no response of 'none'; there are old, new"),
        (("--fail_if_worse", "new", "old", "--by", -1), "--by must be above 0"),
        ((*GATE, "--ratings", "r.jsonl"), "no --ratings"),
        ((), "--output is needed; only --fail_if_worse does without"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple, message: str) -> None:
    assert message in error_line(compare(*study(tmp_path, 0, 4), *arguments))


def test_the_workflow_of_the_documents_runs_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "ci-gate.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    (steps,) = (job["steps"] for job in workflow["jobs"].values())
    commands = [step["run"] for step in steps if "automedeval compare" in step.get("run", "")]
    study(tmp_path, 1)
    for name in ("cases.jsonl", "verdicts.jsonl"):
        (tmp_path / "evaluation").mkdir(exist_ok=True)
        (tmp_path / name).rename(tmp_path / "evaluation" / name)
    monkeypatch.chdir(tmp_path)
    (command,) = commands
    program, name, *arguments = shlex.split(command.replace("\\\n", " "))
    assert (program, name) == ("automedeval", "compare")
    done = compare(*arguments)
    assert done.returncode == 3, done.stderr
