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
from doubles.endpoint import EndpointDouble, answer, prompt_of
from factories import write_json, write_yaml
from programs import ROOT, failed, run_command, succeeded, told
from tables import each_row, rows_of, write_csv

from automedeval.annotation.study import read_study
from automedeval.records.tables.cases import read_cases

RTL = "روبوت"
GATE = {"fail_if_worse": ("new", "old"), "by": 0.1}


@pytest.fixture
def runs(tmp_path):
    """Write what one model answered, and another as its new version; each file lacks a case of the other one."""
    judged = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))
    old, new, _ = MODELS
    return {
        "old": files_of(tmp_path / "old", old, judged[:-1], []),
        "new": files_of(tmp_path / "new", new, judged[1:], marked("ten tablets")),
    }


def files_of(folder, model, judged, marks):
    """Write the cases as conversations with one model's answers, as those of `bot`, with these marks, and the verdicts.

    Each verdict was asked twice.
    """
    cases = []
    verdicts = []
    for case, on_all in judged:
        models = [response["model"] for response in case["responses"]]
        place = models.index(model)
        response = case["responses"][place] | {"model": "bot"}
        talk = [{"role": "user", "content": case["question"]}]
        alone = case | {"question": talk, "responses": [response]}
        cases.append(alone)
        score = on_all["scores"][place]
        more = {
            "expected_scores": [on_all["expected_scores"][place]],
            "differs": {"bot": marks},
            "usage": {"prompt_tokens": 5},
        }
        verdicts.append(verdict(alone, [score], "good", **more))
    write(folder / "replaced-verdicts.jsonl", verdicts)
    verdicts_file = write(folder / "verdicts.jsonl", verdicts[::-1])
    return write(folder / "cases.jsonl", cases), verdicts_file


def versions(runs, new="new"):
    """Return the options that name two versions and their verdicts."""
    old_cases, old_verdicts = runs["old"]
    new_cases, new_verdicts = runs["new"]
    cases = (f"old={old_cases}", f"{new}={new_cases}")
    return {"cases": cases, "verdicts": (old_verdicts, new_verdicts)}


def score_by_case(files):
    _, verdicts = files
    return {each["case_id"]: each["expected_scores"][0] for each in read(verdicts)}


def test_two_runs_give_the_figures_of_one_file_with_both(runs, tmp_path):
    for version, judge in {"old": "openai:m", "new": "small"}.items():
        record = tmp_path / version / "run-None.json"
        write_json(record, {"arguments": {"judge": judge}})
    report = made(tmp_path, **versions(runs, new=RTL))
    result = report.result
    assert result["cases"]["cases"] == 30
    assert "<dd>116 requests, 580 tokens in" in report.page  # 2 x (29 + 29)
    # The audit that it advises can be run.
    assert f"audit --judge small --cases {runs['new'][0]} --output" in report.said
    said = "29 and 29 cases; the 28 that are in both are compared"
    assert said in "\n".join(result["notes"])
    old, new = map(score_by_case, runs.values())
    gaps = np.array([new[case_id] - old[case_id] for case_id in old.keys() & new.keys()])
    baseline = result["baseline"]
    assert baseline["name"] == "old"
    assert list(baseline["models"]) == [RTL]
    found = baseline["models"][RTL]
    low, high = scipy.stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    difference = found["difference"]
    assert difference["low"] == pytest.approx(low)
    assert difference["value"] == pytest.approx(gaps.mean())
    assert difference["high"] == pytest.approx(high)
    shown = gaps.round(2)
    assert found["better"] == (shown > 0.25).sum()
    assert found["worse"] == (shown < -0.25).sum()
    assert found["newly"] == {"differs": 28, "empty": 0, "failing": 0}
    assert f"<h1>Report: old, {RTL}</h1>" in report.page
    (study,) = report.folder.glob("rate-*.yaml")
    shown = read_study(study).cases
    assert [case.models for case in shown.values()].count(["old", RTL]) == 28


def test_two_runs_pass_the_gate(runs, tmp_path):
    named = {name: [*map(str, files)] for name, files in versions(runs).items()}
    config = tmp_path / "gate.yaml"
    write_yaml(config, named)
    succeeded(asked(tmp_path, None, cases=None, config=config, **GATE | {"by": 3}))
    _, old_verdicts = runs["old"]
    one = versions(runs) | {"verdicts": old_verdicts}
    failed(asked(tmp_path, **one), "--cases of two versions")


@each_row("files, said")
def test_of_a_question_that_stands_twice_equal_rows_count_once_and_others_are_no_pair(
    tmp_path, files, said
):
    runs = {}
    for name, rows in files.items():
        file = write_csv(tmp_path / name, ("question", "answer", "score"), rows)
        verdicts = [
            verdict(case.to_dict(), score, "good", expected_scores=score)
            for case, (_, _, *score) in zip(read_cases(file), rows)
        ]
        runs[file.stem] = (file, write(file.with_suffix(".jsonl"), verdicts))
    assert re.search(said, asked(tmp_path, **versions(runs), **GATE).stdout)


@each_row("count, settings, status, said, headline")
def test_two_runs_are_compared_where_the_judge_and_most_cases_are_the_same(
    runs, tmp_path, count, settings, status, said, headline
):
    """The new file has other ids: cases are joined by their questions."""
    cases, lines = map(read, runs["new"])
    for case in cases:
        case["id"] += " of new"
    for line, name in zip(lines, settings * 30):
        line |= {"settings": name, "case_id": f"{line['case_id']} of new"}
    cases_file, verdicts_file = runs["new"]
    write(cases_file, cases[:count])
    write(verdicts_file, lines)
    done = asked(tmp_path, **versions(runs), **GATE | {"by": 3})
    assert done.returncode == status
    assert said in done.stdout
    report = made(tmp_path, **versions(runs))
    assert headline in report.said
    assert headline in report.text


@each_row("changes, said")
def test_runs_that_do_not_fit_are_refused_in_a_line(runs, tmp_path, changes, said):
    cases, verdicts = map(read, runs["new"])
    for case, line in zip(cases, verdicts[::-1], strict=True):
        for name, value in changes.items():
            case[name] = f"{value}{case[name]}"
        line["case_id"] = case["id"]
    cases_file, verdicts_file = runs["new"]
    write(cases_file, cases)
    write(verdicts_file, verdicts)
    failed(asked(tmp_path, **versions(runs)), said)


def test_a_model_in_both_runs_needs_names_and_the_judge_is_the_same(runs, tmp_path):
    cases, verdicts = zip(*runs.values())
    failed(asked(tmp_path, verdicts, cases=cases), "name the versions")
    _, file = verdicts
    others = [each | {"judge": "other"} for each in read(file)]
    write(file, others)
    failed(asked(tmp_path, **versions(runs)), "no judge has verdicts on both")


def study(loss, count=400, invalid=0, cluster=1):
    """Return cases of two candidates, of which the new one loses `loss` points in every second case, and the verdicts.

    So many cases are a cluster.
    """
    cases = []
    verdicts = []
    for number in range(count):
        answers = {name: f"{name} {number}" for name in ("old", "new")}
        of_one = {"cluster": number // cluster}
        case = case_of(f"c{number}", f"What helps against {number}?", answers, **of_one)
        lost = loss * (number % 2)
        scores = None if number < invalid else [3, 3 - lost]
        cases.append(case)
        verdicts.append(verdict(case, scores, expected_scores=scores))
    return {"cases": cases, "verdicts": verdicts}


@each_row("loss, cases, cluster, status, word")
def test_the_exit_status_tells_the_result(tmp_path, loss, cases, cluster, status, word):
    done = asked(tmp_path, **study(loss, cases, cluster=cluster), **GATE)
    assert done.returncode == status, done.stderr
    assert f"{word} (exit status {status})" in done.stdout
    record = Report(tmp_path / "out", done.stdout).json("gate")
    assert record["mean"] == pytest.approx(-loss / 2)
    assert record["status"] == status
    assert record["cases"] == cases
    assert record["result"] == word
    assert (status == 4) == ("would do" in done.stdout)
    assert (cluster > 1) == (f"over {cases // cluster} clusters of cases" in done.stdout)


def test_an_invalid_verdict_is_left_out_and_many_may_still_be_lower(tmp_path):
    given = study(0, invalid=40)
    given["verdicts"][-1]["expected_scores"] = None
    done = asked(tmp_path, **given, **GATE)
    figures = ", expected scores (359 of 360 verdicts have expected ones): "
    told(done, figures, "40 of 400 cases without a score of both", "on 360 cases")
    many = asked(tmp_path, **study(1, invalid=41), **GATE)
    assert many.returncode == 3
    record = Report(tmp_path / "out", "").json("gate")
    assert record["mean"] == pytest.approx(-0.5, abs=0.002)
    halved = study(0)
    for number, case in enumerate(halved["cases"][:41]):  # the new candidate was not asked
        case["responses"].pop()
        halved["verdicts"][number] = verdict(case, [3], expected_scores=[3])
    undecided = asked(tmp_path, **halved, **GATE)
    assert undecided.returncode == 4
    assert "41 of 400 cases do not have a response of both" in undecided.stdout
    faulty = GATE | {"fail_if_worse": ("new", "none")}
    failed(asked(tmp_path, **study(0), **faulty), "no model 'none'")
    assert not (tmp_path / "out/gate.json").exists()


@each_row("options, message")
def test_bad_input_is_one_line(tmp_path, options, message):
    given = study(0, 4) | options
    if "fail_if_worse" in options:
        given["fail_if_worse"] = tuple(options["fail_if_worse"])
    failed(asked(tmp_path, **given), message)


def documented():
    """Return of each workflow of docs/ci-gate.md the commands before it, and its own, without the word `automedeval`."""
    text = (ROOT / "docs/ci-gate.md").read_text(encoding="utf-8")
    found = []
    before = []
    for language, body in re.findall(r"(?s)```(\w+)\n(.*?)```", text):
        if language == "yaml":
            (job,) = yaml.safe_load(body)["jobs"].values()
            steps = [step.get("run", "") for step in job["steps"]]
            script = "\n".join(steps)
            found.append((before, commands(script)))
        before = commands(body)
    return found


def commands(script):
    found = []
    whole = script.replace("\\\n", " ")
    for line in whole.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["automedeval"]:
            found.append(words[1:])
    return found


def test_the_workflow_of_the_documents_runs_the_gate(tmp_path, monkeypatch):
    (_, workflow), _ = documented()
    for name, records in study(1).items():
        write(tmp_path / "evaluation" / f"{name}.jsonl", records)
    monkeypatch.chdir(tmp_path)
    assert [words[0] for words in workflow] == ["get-models", "judge", "report"]
    *_, report = workflow
    done = run_command(*report)
    assert done.returncode == 3


@each_row("tonight, statuses, fails")
def test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse(
    tmp_path, monkeypatch, tonight, statuses, fails
):
    judge = "careful"
    scores_of = rows_of(__file__)["scores_of_the_judges"]

    def reply(body):
        prompt = prompt_of(body)
        number = int(re.search(r"case (\d+)", prompt)[1])
        turns = scores_of[judge]
        good, bad = turns[number % len(turns)]
        said = "Step 1: Rest helps.\nScore:"
        for slot, text in re.findall(r"(?s)Doctor (\d+):\n~~~\n(.*?)\n~~~", prompt):
            score = good if "rest" in text else bad
            if score:
                said += f" Doctor {slot}: {score} points."
        return answer(said)

    _, (keep, workflow) = documented()
    (tmp_path / "kept").mkdir()
    rows = []
    for number in range(60):
        question = f"What helps in case {number}?"
        rows.append((question, f"Drink and rest, {number}.", f"Run far, {number} miles."))
    write_csv(tmp_path / "kept/cases.csv", ("question", "good", "bad"), rows)
    monkeypatch.chdir(tmp_path)
    with EndpointDouble(reply) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        for command in keep:
            succeeded(run_command(*command))
        judge = tonight
        found = []
        for command in workflow:  # the shell of a workflow stops at the first that fails
            done = run_command(*command)
            found.append(done.returncode)
            if done.returncode:
                break
    assert found == statuses, done.stderr
    if fails:
        assert done.stdout.startswith(f"{fails} against ")
