"""`automedeval report` of two versions that were judged apart, and as a gate for builds, by its command."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import scipy
import yaml
from doubles.agreement_study import (
    CASES,
    FAST,
    MODELS,
    case_of,
    noisy_verdicts,
    read,
    verdict,
    write,
)
from doubles.agreement_study import meta_evaluate as report
from doubles.endpoint import EndpointDouble, answer
from programs import ROOT, error_line, run_command, succeeded
from tables import rows_of, write_csv

RTL = "روبوت"


def split(case: dict, verdict: dict, model: str, name: str) -> tuple[dict, dict]:
    """Return a case with the answer of one model, under a name, and the verdict on it."""
    place = [response["model"] for response in case["responses"]].index(model)
    response = case["responses"][place] | {"model": name}
    mark = {"factor": 3.0, "kind": "mass", "start": 0, "end": 1, "source": "reference"}
    mark |= {"sentence": ["", "3 g", ""], "passage": ["", "1 g", ""]}
    differs = {name: [mark] * (model == MODELS[1])}
    values = {key: [verdict[key][place]] for key in ("scores", "expected_scores")}
    return case | {"responses": [response]}, verdict | values | {"order": [0], "differs": differs}


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    """Write what one model answered, and another as its new version; each file lacks a case of the other one."""
    lines = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))
    files = {}
    for version, model, part in (("old", MODELS[0], lines[:-1]), ("new", MODELS[1], lines[:0:-1])):
        pairs = [split(case, verdict, model, "bot") for case, verdict in part]
        names = [tmp_path / version / f"{name}.jsonl" for name in ("cases", "verdicts")]
        files[version] = tuple(map(write, names, zip(*pairs, strict=True)))
    return files


def arguments(runs: dict, old: str = "old", new: str = "new") -> list[object]:
    (old_cases, old_verdicts), (new_cases, new_verdicts) = runs["old"], runs["new"]
    return [
        "--cases",
        f"{old}={old_cases}",
        f"{new}={new_cases}",
        "--verdicts",
        old_verdicts,
        new_verdicts,
    ]


def test_two_runs_give_the_figures_of_one_file_with_both(runs: dict, tmp_path: Path) -> None:
    done = succeeded(report(*arguments(runs, new=RTL), *FAST, "--output", tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "agreement.json").read_text("utf-8"))
    assert result["cases"]["cases"] == 28
    assert f"--cases {runs['new'][0]} " in done.stdout  # the audit that it advises can be run
    assert any(
        "29 and 29 cases; the 28 that are in both are compared" in note for note in result["notes"]
    )
    lines = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))[1:-1]
    places = {case["id"]: [r["model"] for r in case["responses"]] for case, _ in lines}
    both = [
        [verdict["expected_scores"][places[case["id"]].index(name)] for name in MODELS[:2]]
        for case, verdict in lines
    ]
    gaps = [new - old for old, new in both]
    ((name, found),) = result["baseline"]["models"].items()
    assert (result["baseline"]["name"], name) == ("old", RTL)
    assert found["difference"]["value"] == pytest.approx(np.mean(gaps))
    low, high = scipy.stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert [found["difference"][end] for end in ("low", "high")] == pytest.approx([low, high])
    assert found["better"] == sum(gap > 1e-9 for gap in gaps)
    assert found["worse"] == sum(gap < -1e-9 for gap in gaps)
    assert found["newly"] == {"differs": 28, "empty": 0, "failing": 0}
    assert "; newly 28 differs. " in done.stdout
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert f"<h1>Report: old, {RTL}</h1>" in page
    assert not list((tmp_path / "out").glob("rate-*"))  # which needs one file of cases


def test_two_runs_pass_the_gate(runs: dict, tmp_path: Path) -> None:
    gate = ("--fail_if_worse", "new", "old", "--by", 3)
    succeeded(report(*arguments(runs), *gate))
    _, *cases, _, old, new = map(str, arguments(runs))
    config = tmp_path / "gate.yaml"
    config.write_text(yaml.safe_dump({"cases": cases, "verdicts": [old, new]}))
    succeeded(report("--config", config, *gate))
    assert "--cases of two versions" in error_line(report(*arguments(runs)[:-1], "--output", "out"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda case: case | {"id": f"{case['id']}-b"}, "have no case in common"),
        (lambda case: case | {"reference": "Another one."}, "differs in its reference"),
        (lambda case: case | {"question": f"{case['question']} Why?"}, "differs in its question"),
    ],
)
def test_runs_that_do_not_fit_are_refused_in_a_line(
    runs: dict, tmp_path: Path, change, said: str
) -> None:
    cases, verdicts = runs["new"]
    changed = [change(case) for case in read(cases)]
    lines = [
        line | {"case_id": case["id"]} for line, case in zip(read(verdicts), changed, strict=True)
    ]
    runs["new"] = write(cases, changed), write(verdicts, lines)
    assert said in error_line(report(*arguments(runs), "--output", tmp_path / "out"))


def test_a_model_in_both_runs_needs_names_and_the_judge_is_the_same(
    runs: dict, tmp_path: Path
) -> None:
    files = [file for pair in zip(*runs.values(), strict=True) for file in pair]
    output = ("--output", tmp_path / "out")
    assert "name the versions" in error_line(
        report("--cases", *files[:2], "--verdicts", *files[2:], *output)
    )
    write(runs["new"][1], [line | {"judge": "other"} for line in read(runs["new"][1])])
    assert "no judge has verdicts on both" in error_line(report(*arguments(runs), *output))
    write(runs["new"][1], [line | {"rubric": "checklist@1"} for line in read(runs["new"][1])])
    assert "report reads these, on one file of cases" in error_line(
        report(*arguments(runs), *output)
    )


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
    return (
        "--cases",
        folder / "cases.jsonl",
        "--verdicts",
        write(folder / "verdicts.jsonl", verdicts),
    )


@pytest.mark.parametrize(
    ("loss", "cases", "status", "word"),
    [(0, 400, 0, "not lower"), (1, 400, 3, "lower"), (0, 10, 4, "undecided")],
)
def test_the_exit_status_tells_the_result(
    tmp_path: Path, loss: int, cases: int, status: int, word: str
) -> None:
    done = report(*study(tmp_path, loss, cases), *GATE, "--output", tmp_path / "out")
    assert done.returncode == status, done.stderr
    assert f"{word} (exit status {status})" in done.stdout
    record = json.loads((tmp_path / "out" / "gate.json").read_text(encoding="utf-8"))
    assert record["mean"] == pytest.approx(-loss / 2)
    assert (record["status"], record["cases"], record["result"]) == (status, cases, word)
    assert (status == 4) == ("would do" in done.stdout)


def test_an_invalid_verdict_is_left_out_and_many_leave_it_undecided(tmp_path: Path) -> None:
    done = succeeded(report(*study(tmp_path, 0, invalid=40), *GATE))
    assert "40 of 400 cases without a valid verdict" in done.stdout
    assert "on 360 cases" in done.stdout
    done = report(*study(tmp_path, 1, invalid=41), *GATE)
    assert done.returncode == 4
    assert "mean difference -0.5" in done.stdout.replace("-0.499", "-0.5").replace("-0.501", "-0.5")


@pytest.mark.parametrize(("arguments", "message"), rows_of(__file__)["test_bad_input_is_one_line"])
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple, message: str) -> None:
    assert message in error_line(report(*study(tmp_path, 0, 4), *arguments))


def documented() -> list[tuple[list[str], list[str]]]:
    """Return of each workflow of docs/ci-gate.md the commands before it, and its own, without the word `automedeval`."""
    text = (ROOT / "docs" / "ci-gate.md").read_text(encoding="utf-8")
    found, before = [], []
    for language, body in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "yaml":
            (job,) = yaml.safe_load(body)["jobs"].values()
            found.append(
                (before, commands("".join(step.get("run", "") + "\n" for step in job["steps"])))
            )
        before = commands(body)
    return found


def commands(script: str) -> list[list[str]]:
    lines = [shlex.split(line, comments=True) for line in script.replace("\\\n", " ").splitlines()]
    return [words[1:] for words in lines if words[:1] == ["automedeval"]]


def test_the_workflow_of_the_documents_runs_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, workflow), _ = documented()
    study(tmp_path / "evaluation", 1)
    monkeypatch.chdir(tmp_path)
    assert [words[0] for words in workflow] == ["get-models", "judge", "report"]
    done = run_command(*workflow[-1])
    assert done.returncode == 3, done.stderr


JUDGES = {  # the number of a case, and whether the answer is the good one -> the score
    "careful": lambda number, good: 5 if good else 2,
    "strict": lambda number, good: 4 if good else 2,
    "careless": lambda number, good: 5,
    "confused": lambda number, good: 5 if good == number % 2 else 2,
    "torn": lambda number, good: (
        None if number % 3 == 0 else 5 if good else 2
    ),  # too few verdicts to tell
}
NIGHTS = rows_of(__file__)["test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse"]


@pytest.mark.parametrize(("tonight", "statuses", "fails"), NIGHTS)
def test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tonight: str,
    statuses: list[int],
    fails: str | None,
) -> None:
    judge = JUDGES["careful"]

    def reply(body: dict) -> dict:
        prompt = body["messages"][-1]["content"]
        number = int(re.search(r"case (\d+)", prompt)[1])
        shown = re.findall(r"Doctor (\d+):\n~~~\n(.*?)\n~~~", prompt, re.DOTALL)
        scores = [(slot, judge(number, "rest" in text)) for slot, text in shown]
        line = " ".join(
            f"Doctor {slot}: {score} points." for slot, score in scores if score is not None
        )
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
