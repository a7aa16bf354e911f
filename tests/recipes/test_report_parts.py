"""`automedeval report` where cases come in clusters, a judge was asked for a part, and questions stand twice."""

from itertools import combinations, product

import numpy as np
import pytest
from doubles.agreement_study import case_of, made, pair_verdict, verdict
from doubles.criteria_study import label_of, verdict_by
from programs import flags, run_command, succeeded
from scipy.stats import ttest_1samp
from tables import write_csv

GAPS = [2, 1, 1, 0, -1, 2, 1, 0]  # of b, less a


def named(models: str, count: int = 6, **more: object) -> list[dict]:
    """Return cases with a response of each model."""
    answers = {model: f"{model} answers" for model in models}
    return [case_of(f"k{n}", "What helps?", answers, **more) for n in range(count)]


def test_cases_of_one_cluster_count_once_beside_a_baseline(tmp_path):
    cases, verdicts = named("ab", len(GAPS)), []
    for number, (case, gap) in enumerate(zip(cases, GAPS)):
        case["cluster"] = f"c{number // 4}"
        verdicts.append(verdict(case, [3, 3 + gap], expected_scores=None))
    result = made(tmp_path, verdicts, cases=cases, baseline="a").result
    beside = result["baseline"]["models"]["b"]
    totals = np.reshape(GAPS, (2, 4)).sum(axis=1) / 4
    assert beside["difference"]["value"] == pytest.approx(np.mean(GAPS))
    assert beside["p"] == pytest.approx(ttest_1samp(totals, 0).pvalue)
    assert "resampled are the 2 clusters of the 8 cases" in result["notes"]


def test_a_choice_about_pairs_that_were_not_asked_about_is_no_error(tmp_path):
    cases, chosen = named("abc"), []
    verdicts = [pair_verdict(case, 0, n, "P", correctness="a") for case in cases for n in (1, 2)]
    for case, pair in product(cases, combinations("abc", 2)):
        about = {"case_id": case["id"], "pair": pair, "annotator": "p"}
        chosen.append(about | {"criterion": "correctness", "choice": pair[0]})
    result = made(tmp_path, verdicts, cases=cases, ratings=chosen).result
    found = result["choices"]["P"]["correctness"]
    assert (found["accuracy"]["value"], found["pairs"]) == (1.0, 12)


def test_a_question_that_stands_twice_in_a_file_is_not_paired_by_its_order(tmp_path):
    twice = [["Is it safe?", "No, never at all."], ["Is it safe?", "Yes."]]
    versions = []
    for name, rows in (("old", twice), ("new", twice[::-1])):
        rows = [*rows, ["May I?", "Ask a nurse."]]
        file = write_csv(tmp_path / f"{name}.csv", ("question", "answer"), rows)
        judge = flags(judge="baseline:longer text", output=tmp_path / name)
        succeeded(run_command("judge", file, *judge))
        versions.append(f"{name}={file}")
    verdicts = (tmp_path / "old", tmp_path / "new")
    result = made(tmp_path, verdicts, cases=tuple(versions)).result
    assert result["cases"]["cases"] == 1
    said = "left out are 2 cases whose question stands twice"
    assert any(said in each for each in result["notes"])


def test_criteria_of_answers_that_were_not_asked_about_are_no_errors(tmp_path):
    criteria = [{"criterion": "says rest", "points": 5}, {"criterion": "says poison", "points": -5}]
    cases, labels = named("ab", criteria=criteria), []
    verdicts = [verdict_by(case, 0, [True, False], [0.9, 0.1], models=["a", "b"]) for case in cases]
    for case, model, each in product(cases, "ab", criteria):
        label = "met" if each["points"] > 0 else "not_met"
        labels.append(label_of(case, model, each, "p", label))
    result = made(tmp_path, verdicts, cases=cases, ratings=labels).result
    found = result["criteria"]["certificate"]["judges"]["j"]
    assert (found["accuracy"]["value"], found["accuracy"]["n"]) == (1.0, 12)
    assert found["read_rate"]["value"] == 1.0
