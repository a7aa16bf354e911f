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
    said = np.array([met for met, *_ in rows], float).reshape(60, 2, 3)
    votes = np.array([np.mean(votes) for *_, votes in rows]).reshape(60, 2, 3)
    labelled = np.where(votes == 0.5, np.nan, votes > 0.5)
    labelled[40:] = np.nan
    people, judge = (met @ np.array(POINTS) / 8 for met in (labelled, said))
    for slot, model in enumerate("ab"):
        mean = figures[model]["mean"]
        assert mean["classical"]["value"] == pytest.approx(np.nanmean(people[:, slot]))
        assert mean["naive"]["value"] == pytest.approx(np.nanmean(judge[:, slot]))
        assert mean["rated"] == np.isfinite(people[:, slot]).sum()
    difference = figures["b"]["difference"]
    gaps = [side[:, 1] - side[:, 0] for side in (people, judge)]
    assert difference["classical"]["value"] == pytest.approx(np.nanmean(gaps[0]))
    expected = prediction_powered(*gaps)["prediction_powered"]
    powered = difference["prediction_powered"]
    assert (powered["low"], powered["high"]) == pytest.approx((expected.low, expected.high))


def test_a_gate_takes_criteria_and_does_not_decide_where_many_are_unread(study, tmp_path):
    options = study[0]
    gate = {"fail_if_worse": ("a", "b"), "by": 0.9}
    done = asked(tmp_path, **options, **gate)
    assert "undecided: more than 10% of the cases" in done.stdout
    verdicts = read(options["verdicts"])
    for each in verdicts:  # everything is read, as by an endpoint
        met = [bool(met) for met in each["checklist"]["met"]]
        each["checklist"] |= {"met": met, "met_probabilities": [None] * 3}
    done = succeeded(asked(tmp_path, **options | {"verdicts": verdicts}, **gate))
    assert ", checklist scores: not lower" in done.stdout
    scores = [worth(each["checklist"]["met"]) for each in verdicts]
    mean = np.mean(scores[::2]) - np.mean(scores[1::2])
    assert f"mean difference {mean:+.3f} points on 60 cases" in done.stdout
