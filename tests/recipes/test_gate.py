"""`compare --fail_if_worse`: exit statuses, invalid verdicts, bad input, and the workflows of the documents."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
import yaml
from doubles.agreement_study import case_of, verdict, write
from doubles.endpoint import EndpointDouble, answer
from programs import ROOT, error_line, run_command, run_recipe, succeeded
from tables import rows_of, write_csv

compare = partial(run_recipe, "compare")
GATE = ("--fail_if_worse", "new", "old", "--by", 0.1)


def study(folder: Path, loss: int, cases: int = 400, invalid: int = 0) -> tuple[object, ...]:
    """Write cases of two candidates, of which the new one loses `loss` points in every second case."""
    records, verdicts = [], []
    for number in range(cases):
        answers = {name: f"{name} {number}" for name in ("old", "new")}
        records.append(case_of(f"c{number}", f"What helps against {number}?", answers))
        scores = None if number < invalid else [3, 3 - loss * (number % 2)]
        verdicts.append(verdict(records[-1], scores, expected_scores=scores))
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
    done = succeeded(compare(*study(tmp_path, 0, invalid=40), *GATE))
    assert "40 of 400 cases without a valid verdict" in done.stdout
    assert "on 360 cases" in done.stdout
    done = compare(*study(tmp_path, 1, invalid=41), *GATE)
    assert done.returncode == 4
    assert "mean difference -0.5" in done.stdout.replace("-0.499", "-0.5").replace("-0.501", "-0.5")


@pytest.mark.parametrize(("arguments", "message"), rows_of(__file__)["test_bad_input_is_one_line"])
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple, message: str) -> None:
    assert message in error_line(compare(*study(tmp_path, 0, 4), *arguments))


def documented() -> list[tuple[list[str], list[str]]]:
    """Return of each workflow of docs/ci-gate.md the commands before it, and its own, without the word `automedeval`."""
    text = (ROOT / "docs" / "ci-gate.md").read_text(encoding="utf-8")
    found, before = [], []
    for language, body in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "yaml":
            (job,) = yaml.safe_load(body)["jobs"].values()
            found.append((before, commands("".join(step.get("run", "") + "\n" for step in job["steps"]))))
        before = commands(body)
    return found


def commands(script: str) -> list[list[str]]:
    lines = [shlex.split(line, comments=True) for line in script.replace("\\\n", " ").splitlines()]
    return [words[1:] for words in lines if words[:1] == ["automedeval"]]


def test_the_workflow_of_the_documents_runs_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, workflow), _ = documented()
    study(tmp_path / "evaluation", 1)
    monkeypatch.chdir(tmp_path)
    assert [words[0] for words in workflow] == ["get-models", "judge", "compare"]
    done = run_command(*workflow[-1])
    assert done.returncode == 3, done.stderr


JUDGES = {  # the number of a case, and whether the answer is the good one -> the score
    "careful": lambda number, good: 5 if good else 2,
    "strict": lambda number, good: 4 if good else 2,
    "careless": lambda number, good: 5,
    "confused": lambda number, good: 5 if good == number % 2 else 2,
    "torn": lambda number, good: None if number % 3 == 0 else 5 if good else 2,  # too few verdicts to tell
}
NIGHTS = rows_of(__file__)["test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse"]


@pytest.mark.parametrize(("tonight", "statuses", "fails"), NIGHTS)
def test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tonight: str, statuses: list[int], fails: str | None
) -> None:
    judge = JUDGES["careful"]

    def reply(body: dict) -> dict:
        prompt = body["messages"][-1]["content"]
        number = int(re.search(r"case (\d+)", prompt)[1])
        shown = re.findall(r"Doctor (\d+):\n~~~\n(.*?)\n~~~", prompt, re.DOTALL)
        scores = [(slot, judge(number, "rest" in text)) for slot, text in shown]
        line = " ".join(f"Doctor {slot}: {score} points." for slot, score in scores if score is not None)
        return answer(f"Step 1: Rest helps.\nScore: {line}")

    _, (keep, workflow) = documented()
    (tmp_path / "kept").mkdir()
    rows = [
        (f"What helps in case {number}?", f"Drink and rest, {number}.", f"Run far, {number} miles.")
        for number in range(60)
    ]
    write_csv(tmp_path / "kept" / "cases.csv", ("question", "good", "bad"), rows)
    monkeypatch.chdir(tmp_path)
    with EndpointDouble(reply) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        for command in keep:
            assert run_command(*command).returncode == 0
        judge = JUDGES[tonight]
        done = []
        for command in workflow:  # the shell of a workflow stops at the first that fails
            done.append(run_command(*command))
            if done[-1].returncode:
                break
    assert [each.returncode for each in done] == statuses, done[-1].stderr
    assert not fails or done[-1].stdout.startswith(f"{fails} against ")
