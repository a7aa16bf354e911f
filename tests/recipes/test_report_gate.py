"""`automedeval report` of two versions that were judged apart, and as a gate for builds, by its command."""

import re
import shlex

import numpy as np
import pytest
import scipy
import yaml
from doubles.agreement_study import (
    CASES,
    MODELS,
    Report,
    asked,
    case_of,
    made,
    marked,
    noisy_verdicts,
    read,
    verdict,
    write,
)
from doubles.endpoint import EndpointDouble, answer
from programs import ROOT, error_line, run_command, succeeded
from tables import rows_of, write_csv

ROWS = rows_of(__file__)
RTL = "روبوت"


@pytest.fixture
def runs(tmp_path):
    """Write what one model answered, and another as its new version; each file lacks a case of the other one."""
    judged = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))
    files = {}
    for version, model, part in (("old", MODELS[0], judged[:-1]), ("new", MODELS[1], judged[1:])):
        cases, verdicts = [], []
        for case, on_all in part:
            place = [response["model"] for response in case["responses"]].index(model)
            response = case["responses"][place] | {"model": "bot"}
            score, expected = on_all["scores"][place], on_all["expected_scores"][place]
            differs = {"bot": marked("ten tablets") if version == "new" else []}
            more = {"expected_scores": [expected], "differs": differs}
            cases.append(case | {"responses": [response]})
            verdicts.append(verdict(cases[-1], [score], "good", **more))
        folder = tmp_path / version
        files[version] = [
            write(folder / "cases.jsonl", cases),
            write(folder / "verdicts.jsonl", verdicts[::-1]),
        ]
    return files


def versions(runs, old="old", new="new"):
    """Return the options that name two versions and their verdicts."""
    (old_cases, old_verdicts), (new_cases, new_verdicts) = runs["old"], runs["new"]
    cases = (f"{old}={old_cases}", f"{new}={new_cases}")
    return {"cases": cases, "verdicts": (old_verdicts, new_verdicts)}


def test_two_runs_give_the_figures_of_one_file_with_both(runs, tmp_path):
    report = made(tmp_path, **versions(runs, new=RTL))
    result = report.result
    assert result["cases"]["cases"] == 28
    assert f"--cases {runs['new'][0]} " in report.said  # the audit that it advises can be run
    said = "29 and 29 cases; the 28 that are in both are compared"
    assert any(said in note for note in result["notes"])
    scores = []
    for _, verdicts in runs.values():
        scores.append({each["case_id"]: each["expected_scores"][0] for each in read(verdicts)})
    old, new = scores
    gaps = np.array([new[case_id] - old[case_id] for case_id in old.keys() & new.keys()])
    assert result["baseline"]["name"] == "old"
    assert list(result["baseline"]["models"]) == [RTL]
    found = result["baseline"]["models"][RTL]
    low, high = scipy.stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    ends = [found["difference"][end] for end in ("low", "value", "high")]
    assert ends == pytest.approx([low, gaps.mean(), high])
    shown = gaps.round(2)
    assert (found["better"], found["worse"]) == ((shown > 0.25).sum(), (shown < -0.25).sum())
    assert found["newly"] == {"differs": 28, "empty": 0, "failing": 0}
    assert f"<h1>Report: old, {RTL}</h1>" in report.page
    assert not list(report.folder.glob("rate-*"))  # which needs one file of cases


def test_two_runs_pass_the_gate(runs, tmp_path):
    gate = {"fail_if_worse": ("new", "old"), "by": 3}
    succeeded(asked(tmp_path, **versions(runs), **gate))
    named = {name: [*map(str, files)] for name, files in versions(runs).items()}
    config = tmp_path / "gate.yaml"
    config.write_text(yaml.safe_dump(named))
    succeeded(asked(tmp_path, None, cases=None, config=config, **gate))
    one = versions(runs) | {"verdicts": runs["old"][1]}
    assert "--cases of two versions" in error_line(asked(tmp_path, **one))


@pytest.mark.parametrize(
    ("name", "value", "said"), ROWS["test_runs_that_do_not_fit_are_refused_in_a_line"]
)
def test_runs_that_do_not_fit_are_refused_in_a_line(runs, tmp_path, name, value, said):
    cases, verdicts = map(read, runs["new"])
    for case, line in zip(cases, verdicts[::-1], strict=True):
        case[name] = f"{value}{case[name]}"
        line["case_id"] = case["id"]
    for file, records in zip(runs["new"], (cases, verdicts)):
        write(file, records)
    assert said in error_line(asked(tmp_path, **versions(runs)))


def test_a_model_in_both_runs_needs_names_and_the_judge_is_the_same(runs, tmp_path):
    cases, verdicts = zip(*runs.values())
    assert "name the versions" in error_line(asked(tmp_path, verdicts, cases=cases))
    file = runs["new"][1]
    write(file, [line | {"judge": "other"} for line in read(file)])
    assert "no judge has verdicts on both" in error_line(asked(tmp_path, **versions(runs)))


GATE = {"fail_if_worse": ("new", "old"), "by": 0.1}


def study(loss, count=400, invalid=0):
    """Return cases of two candidates, of which the new one loses `loss` points in every second case, and the verdicts."""
    cases, verdicts = [], []
    for number in range(count):
        answers = {name: f"{name} {number}" for name in ("old", "new")}
        cases.append(case_of(f"c{number}", f"What helps against {number}?", answers))
        scores = None if number < invalid else [3, 3 - loss * (number % 2)]
        verdicts.append(verdict(cases[-1], scores, expected_scores=scores))
    return {"cases": cases, "verdicts": verdicts}


@pytest.mark.parametrize(
    ("loss", "cases", "status", "word"), ROWS["test_the_exit_status_tells_the_result"]
)
def test_the_exit_status_tells_the_result(tmp_path, loss, cases, status, word):
    done = asked(tmp_path, **study(loss, cases), **GATE)
    assert done.returncode == status, done.stderr
    assert f"{word} (exit status {status})" in done.stdout
    record = Report(tmp_path / "out", done.stdout).json("gate")
    assert record["mean"] == pytest.approx(-loss / 2)
    assert (record["status"], record["cases"], record["result"]) == (status, cases, word)
    assert (status == 4) == ("would do" in done.stdout)


def test_an_invalid_verdict_is_left_out_and_many_leave_it_undecided(tmp_path):
    done = succeeded(asked(tmp_path, **study(0, invalid=40), **GATE))
    assert "40 of 400 cases without a valid verdict" in done.stdout
    assert "on 360 cases" in done.stdout
    assert asked(tmp_path, **study(1, invalid=41), **GATE).returncode == 4
    mean = Report(tmp_path / "out", "").json("gate")["mean"]
    assert mean == pytest.approx(-0.5, abs=0.002)


@pytest.mark.parametrize(("options", "message"), ROWS["test_bad_input_is_one_line"])
def test_bad_input_is_one_line(tmp_path, options, message):
    given = {
        name: tuple(each) if isinstance(each, list) else each for name, each in options.items()
    }
    assert message in error_line(asked(tmp_path, **study(0, 4) | given))


def documented():
    """Return of each workflow of docs/ci-gate.md the commands before it, and its own, without the word `automedeval`."""
    text = (ROOT / "docs" / "ci-gate.md").read_text(encoding="utf-8")
    found, before = [], []
    for language, body in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "yaml":
            (job,) = yaml.safe_load(body)["jobs"].values()
            script = "\n".join(step.get("run", "") for step in job["steps"])
            found.append((before, commands(script)))
        before = commands(body)
    return found


def commands(script):
    lines = [shlex.split(line, comments=True) for line in script.replace("\\\n", " ").splitlines()]
    return [words[1:] for words in lines if words[:1] == ["automedeval"]]


def test_the_workflow_of_the_documents_runs_the_gate(tmp_path, monkeypatch):
    (_, workflow), _ = documented()
    for name, records in study(1).items():
        write(tmp_path / "evaluation" / f"{name}.jsonl", records)
    monkeypatch.chdir(tmp_path)
    assert [words[0] for words in workflow] == ["get-models", "judge", "report"]
    assert run_command(*workflow[-1]).returncode == 3


NIGHTS = ROWS["test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse"]


@pytest.mark.parametrize(("tonight", "statuses", "fails"), NIGHTS)
def test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse(
    tmp_path, monkeypatch, tonight, statuses, fails
):
    judge, scores_of = "careful", ROWS["scores_of_the_judges"]

    def reply(body):
        prompt = body["messages"][-1]["content"]
        number = int(re.search(r"case (\d+)", prompt)[1])
        good, bad = scores_of[judge][number % len(scores_of[judge])]
        shown = re.findall(r"Doctor (\d+):\n~~~\n(.*?)\n~~~", prompt, re.DOTALL)
        scores = {slot: good if "rest" in text else bad for slot, text in shown}
        said = [f"Doctor {slot}: {score} points." for slot, score in scores.items() if score]
        return answer(f"Step 1: Rest helps.\nScore: {' '.join(said)}")

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
            succeeded(run_command(*command))
        judge = tonight
        done = []
        for command in workflow:  # the shell of a workflow stops at the first that fails
            done.append(run_command(*command))
            if done[-1].returncode:
                break
    assert [each.returncode for each in done] == statuses, done[-1].stderr
    assert not fails or done[-1].stdout.startswith(f"{fails} against ")
