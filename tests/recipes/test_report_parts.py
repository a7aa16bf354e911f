"""`automedeval report` where cases come in clusters, a judge was asked for a part, and questions stand twice."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import case_of, made, pair_verdict, verdict
from programs import run_command, succeeded
from scipy.stats import ttest_1samp

GAPS = [2, 1, 1, 0, -1, 2, 1, 0]  # of b, less a


def test_cases_of_one_cluster_count_once_beside_a_baseline(tmp_path: Path) -> None:
    cases = [
        case_of(f"k{n}", "What helps?", {"a": f"a {n}", "b": f"b {n}"}) | {"cluster": f"c{n // 4}"}
        for n in range(8)
    ]
    given = [verdict(case, [3, 3 + gap], expected_scores=None) for case, gap in zip(cases, GAPS)]
    report = made(tmp_path, given, "--baseline", "a", cases=cases)
    beside = report.result["baseline"]["models"]["b"]
    totals = np.reshape(GAPS, (2, 4)).sum(axis=1) / 4
    assert beside["difference"]["value"] == pytest.approx(np.mean(GAPS))
    assert beside["p"] == pytest.approx(ttest_1samp(totals, 0).pvalue)
    assert "resampled are the 2 clusters of the 8 cases" in report.result["notes"]


def test_a_choice_about_pairs_that_were_not_asked_about_is_no_error(tmp_path: Path) -> None:
    models = {name: name for name in "abc"}
    cases = [case_of(f"k{n}", "What helps?", models) for n in range(6)]
    given = [
        pair_verdict(case, 0, other, "P", correctness="a") for case in cases for other in (1, 2)
    ]
    chosen = [
        {"case_id": case["id"], "pair": pair, "choice": pair[0], "annotator": "p"}
        | {"criterion": "correctness"}
        for case in cases
        for pair in (["a", "b"], ["a", "c"], ["b", "c"])
    ]
    report = made(tmp_path, given, cases=cases, ratings=chosen)
    found = report.result["choices"]["P"]["correctness"]
    assert (found["accuracy"]["value"], found["pairs"]) == (1.0, 12)


def test_a_question_that_stands_twice_in_a_file_is_not_paired_by_its_order(tmp_path: Path) -> None:
    rows = [
        ["Is it safe?", "No, never at all."],
        ["Is it safe?", "Yes."],
        ["May I?", "Ask a nurse."],
    ]
    for name, order in (("old", (0, 1, 2)), ("new", (1, 0, 2))):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([["question", "answer"], *(rows[at] for at in order)])
        words = ("judge", tmp_path / f"{name}.csv", "--judge", "baseline:longer text")
        succeeded(run_command(*words, "--output", tmp_path / name))
    versions = [f"{name}={tmp_path / name}.csv" for name in ("old", "new")]
    folders = [tmp_path / name for name in ("old", "new")]
    words = ("report", "--cases", *versions, "--verdicts", *folders)
    succeeded(run_command(*words, "--output", tmp_path / "out"))
    result = json.loads((tmp_path / "out/agreement.json").read_text())
    assert result["cases"]["cases"] == 1
    assert any(
        "left out are 2 cases whose question stands twice" in each for each in result["notes"]
    )


def test_criteria_of_answers_that_were_not_asked_about_are_no_errors(tmp_path: Path) -> None:
    criteria = [{"criterion": "says rest", "points": 5}, {"criterion": "says poison", "points": -5}]
    cases = [
        case_of(f"k{n}", "What helps?", {"a": f"a {n}", "b": f"b {n}"}) | {"criteria": criteria}
        for n in range(6)
    ]
    read = {"met": [True, False], "met_probabilities": [0.9, 0.1], "score": 1.0}
    given = [
        {"case_id": case["id"], "judge": "j", "rubric": "checklist@1", "order": [0], "valid": True}
        | {"checklist": read | {"lowest": 1.0, "highest": 1.0}, "models": ["a", "b"]}
        for case in cases
    ]
    labels = [
        {"case_id": case["id"], "model": model, "annotator": "p"}
        | {"criterion": each["criterion"], "label": "met" if each["points"] > 0 else "not_met"}
        for case in cases
        for model in "ab"
        for each in criteria
    ]
    report = made(tmp_path, given, cases=cases, ratings=labels)
    found = report.result["criteria"]["certificate"]["judges"]["j"]
    assert (found["accuracy"]["value"], found["accuracy"]["n"]) == (1.0, 12)
    assert found["read_rate"]["value"] == 1.0
