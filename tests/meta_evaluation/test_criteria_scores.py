"""Models by few physicians' labels of criteria, and the gate by judges of criteria, beside loops over the records."""

import json

import numpy as np
import pytest
from doubles.agreement_study import FAST, read, write
from doubles.criteria_study import CRITERIA
from programs import run_command, succeeded

from automedeval.stats.prediction_powered import prediction_powered


def report(folder, *more):
    args = ("report", "--cases", folder / "cases.jsonl", "--verdicts", folder / "verdicts.jsonl")
    return run_command(*args, "--output", folder / "out", *FAST, *more)


def test_means_and_differences_are_those_of_a_loop_over_the_records(study, tmp_path) -> None:
    """The last 20 of 60 cases have no labels."""
    folder, rows = study
    labels = [each for each in read(folder / "labels.jsonl") if int(each["case_id"][1:]) < 40]
    succeeded(report(folder, "--ratings", write(tmp_path / "labels.jsonl", labels)))
    few = json.loads((folder / "out" / "agreement.json").read_text())["few_ratings"]
    figures = few["judges"]["j"]
    points, people, judge = (
        [each["points"] for each in CRITERIA],
        {"a": {}, "b": {}},
        {"a": {}, "b": {}},
    )
    for at in range(0, len(rows), 3):
        model, number, of_response = "ab"[at // 3 % 2], at // 6, rows[at : at + 3]
        votes = [each[2] for each in of_response]
        if number < 40 and all(2 * sum(each) != len(each) for each in votes):
            people[model][number] = (
                sum(p for p, each in zip(points, votes) if 2 * sum(each) > len(each)) / 8
            )
        if None not in [each[0] for each in of_response]:
            judge[model][number] = sum(p * each[0] for p, each in zip(points, of_response)) / 8
    for model in "ab":
        mean = figures[model]["mean"]
        assert mean["classical"]["value"] == pytest.approx(np.mean(list(people[model].values())))
        assert mean["naive"]["value"] == pytest.approx(np.mean(list(judge[model].values())))
        assert mean["rated"] == len(people[model])
    both = sorted(people["a"].keys() & people["b"].keys())
    difference = figures["b"]["difference"]
    gap = np.mean([people["b"][number] - people["a"][number] for number in both])
    assert difference["classical"]["value"] == pytest.approx(gap)
    sides = (
        [[side[model].get(n, np.nan) for n in range(60)] for model in "ba"]
        for side in (people, judge)
    )
    arrays = [np.subtract(*side) for side in sides]
    expected = prediction_powered(*arrays).interval
    powered = difference["prediction_powered"]
    assert (powered["low"], powered["high"]) == pytest.approx((expected.low, expected.high))


def test_a_gate_takes_criteria_and_does_not_decide_where_many_are_unread(study, tmp_path) -> None:
    folder, _ = study
    gate = ("--fail_if_worse", "a", "b", "--by", "0.9")
    assert "undecided: more than 10% of the cases" in report(folder, *gate).stdout
    verdicts = read(folder / "verdicts.jsonl")
    for each in verdicts:  # everything is read
        each["checklist"]["met"] = [bool(met) for met in each["checklist"]["met"]]
        each["checklist"]["met_probabilities"] = [None] * 3  # as by an endpoint
    write(tmp_path / "verdicts.jsonl", verdicts)
    write(tmp_path / "cases.jsonl", read(folder / "cases.jsonl"))
    done = succeeded(report(tmp_path, *gate))
    scores = [
        sum(c["points"] for c, met in zip(CRITERIA, each["checklist"]["met"]) if met) / 8
        for each in verdicts
    ]
    mean = np.mean(scores[::2]) - np.mean(scores[1::2])
    assert f"mean difference {mean:+.3f} points on 60 cases" in done.stdout
