"""Models by few physicians' labels of criteria, and the gate by judges of criteria, beside loops over the records."""

import numpy as np
import pytest
from doubles.agreement_study import asked, made, read
from doubles.criteria_study import POINTS
from programs import succeeded

from automedeval.stats.prediction_powered import prediction_powered


def worth(met: list[bool]) -> float:
    return sum(points for points, each in zip(POINTS, met) if each) / 8


def test_means_and_differences_are_those_of_a_loop_over_the_records(study, tmp_path):
    """The last 20 of 60 cases have no labels."""
    options, labels, rows = study
    given = [each for each in read(labels) if int(each["case_id"][1:]) < 40]
    result = made(tmp_path, **options, ratings=given).result
    figures = result["few_ratings"]["judges"]["j"]
    people, judge = np.full((2, 60), np.nan), np.full((2, 60), np.nan)
    for response in range(120):
        number, slot = divmod(response, 2)
        met, _, votes = zip(*rows[3 * response : 3 * response + 3])
        if number < 40 and all(2 * sum(each) != len(each) for each in votes):
            people[slot, number] = worth([2 * sum(each) > len(each) for each in votes])
        if None not in met:
            judge[slot, number] = worth(met)
    for slot, model in enumerate("ab"):
        mean = figures[model]["mean"]
        assert mean["classical"]["value"] == pytest.approx(np.nanmean(people[slot]))
        assert mean["naive"]["value"] == pytest.approx(np.nanmean(judge[slot]))
        assert mean["rated"] == np.isfinite(people[slot]).sum()
    difference = figures["b"]["difference"]
    gaps = [side[1] - side[0] for side in (people, judge)]
    assert difference["classical"]["value"] == pytest.approx(np.nanmean(gaps[0]))
    expected, powered = (
        prediction_powered(*gaps)["prediction_powered"],
        difference["prediction_powered"],
    )
    assert (powered["low"], powered["high"]) == pytest.approx((expected.low, expected.high))


def test_a_gate_takes_criteria_and_does_not_decide_where_many_are_unread(study, tmp_path):
    options, gate = study[0], {"fail_if_worse": ("a", "b"), "by": 0.9}
    done = asked(tmp_path, **options, **gate)
    assert "undecided: more than 10% of the cases" in done.stdout
    verdicts = read(options["verdicts"])
    for each in verdicts:  # everything is read, as by an endpoint
        met = [bool(met) for met in each["checklist"]["met"]]
        each["checklist"] |= {"met": met, "met_probabilities": [None] * 3}
    done = succeeded(asked(tmp_path, **options | {"verdicts": verdicts}, **gate))
    scores = [worth(each["checklist"]["met"]) for each in verdicts]
    mean = np.mean(scores[::2]) - np.mean(scores[1::2])
    assert f"mean difference {mean:+.3f} points on 60 cases" in done.stdout
