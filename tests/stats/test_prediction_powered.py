"""Prediction-powered means against the published closed form and against simulation."""

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from factories import read_json
from programs import ROOT, flags, module_fixture, succeeded
from scipy.stats import t, ttest_1samp

from automedeval.stats.bootstrap import only
from automedeval.stats.prediction_powered import LEAST_RATED, prediction_powered


def study(cases=300, rated=60):
    rng = np.random.default_rng(0)
    quality = rng.normal(size=cases)
    people = np.round(3 + quality + rng.normal(0, 0.3, cases))
    people[rated:] = np.nan
    judge = 1 + 0.7 * quality
    judge += rng.normal(0, 0.4, cases)
    return people, judge


def first(values, rated, cases):
    """Return ratings of the first cases alone."""
    is_rated = np.arange(cases) < rated
    return np.where(is_rated, values, np.nan)


def width(estimate):
    return estimate.high - estimate.low


def covariance(one, other):
    return np.cov(one, other)[0, 1]


def test_one_response_a_case_gives_the_published_closed_form():
    """PPI++ for a mean (Angelopoulos, Duchi, Zrnic 2023), whose one weight is that of all rated cases: equal up to 1/n."""
    people, judge = study(3000, 600)
    rated = ~np.isnan(people)
    y = people[rated]
    f = judge[rated]
    unrated = judge[~rated]
    more = 1 + len(y) / len(unrated)
    weight = covariance(y, f) / (more * f.var(ddof=1))
    rest = y - weight * f
    of_rated = rest.var(ddof=1) / len(y)
    of_unrated = weight**2 * unrated.var(ddof=1) / len(unrated)
    error = (of_rated + of_unrated) ** 0.5
    powered = prediction_powered(people, judge)
    assert powered["weight"] == pytest.approx(weight, rel=1e-3)
    found = powered["prediction_powered"]
    value = weight * unrated.mean() + rest.mean()
    assert found.value == pytest.approx(value, abs=5e-4)
    expected = 2 * t.ppf(0.975, 599) * error
    assert width(found) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    "clusters", [np.arange(300), np.random.default_rng(1).integers(0, 90, 300)]
)
def test_cross_fitting_is_one_case_or_cluster_left_out_at_a_time(clusters):
    """And the variance is that of the sums over clusters."""
    people, judge = study(rated=25)
    rated = np.flatnonzero(~np.isnan(people))
    gammas = []
    corrected = []
    for case in rated:
        others = rated[clusters[rated] != clusters[case]]
        gamma = covariance(people[others], judge[others]) / judge[others].var(ddof=1)
        gammas.append(gamma)
        corrected.append(people[case] - gamma * (judge[case] - judge.mean()))
    powered = prediction_powered(people, judge, clusters=clusters)
    gaps = judge[rated] - np.delete(judge, rated).mean()
    value = np.mean(people[rated] - np.multiply(gammas, gaps) * 275 / 300)
    found = powered["prediction_powered"]
    assert found.value == pytest.approx(value, rel=1e-12)
    gamma = np.mean(gammas)
    assert powered["weight"] == pytest.approx(gamma * 275 / 300, rel=1e-12)
    terms = gamma * judge / 300
    terms[rated] += np.array(corrected) / 25
    sums = np.zeros(300)
    for part in (np.arange(25, 300), rated):
        count = len(set(clusters[part]))
        for case in part:
            sums[clusters[case]] += (terms[case] - terms[part].mean()) * (
                count / (count - 1)
            ) ** 0.5
    error = np.sum(sums**2) ** 0.5
    assert width(found) == pytest.approx(2 * t.ppf(0.975, count - 1) * error)
    assert found.cases == count


def test_no_draw_is_favoured():
    """The estimates of all draws of 10 of 12 cases have the mean of these."""
    y, judge = np.exp(np.random.default_rng(0).normal(0, 2, (2, 12)))
    draws = (only(y, np.isin(range(12), rated)) for rated in combinations(range(12), 10))
    values = [prediction_powered(people, judge)["prediction_powered"].value for people in draws]
    assert np.mean(values) == pytest.approx(y.mean(), rel=1e-12)


def test_classical_and_naive_are_what_they_say():
    people, judge = study()
    rated = people[~np.isnan(people)]
    powered = prediction_powered(people, judge)
    for interval, values in ((powered["classical"], rated), (powered["naive"], judge)):
        low, high = ttest_1samp(values, 0).confidence_interval()
        assert interval.low == pytest.approx(low)
        assert interval.value == pytest.approx(values.mean())
        assert interval.high == pytest.approx(high)
        assert interval.cases == len(values)
    copied = (np.repeat(values, 2) for values in (people, judge))
    twice = prediction_powered(*copied, clusters=np.repeat(np.arange(300), 2))
    for kind, error in (("classical", 1e-9), ("naive", 1e-9), ("prediction_powered", 0.01)):
        assert width(twice[kind]) == pytest.approx(width(powered[kind]), rel=error)
    gain = width(powered["classical"]) / width(powered["prediction_powered"])
    assert gain > 1
    assert powered["worth"] == pytest.approx(60 * gain**2)


def is_classical(figures):
    """Check that the judge changed nothing."""
    powered = figures["prediction_powered"].to_dict()
    classical = figures["classical"].to_dict()
    assert powered == pytest.approx(classical)


def test_a_judge_that_says_nothing_leaves_the_ratings_as_they_are():
    people, _ = study()
    for judge in (np.full(300, 2.0), np.full(300, np.nan)):
        powered = prediction_powered(people, judge)
        is_classical(powered)
        assert powered["weight"] == 0
        assert powered["worth"] == pytest.approx(60)
    everyone = prediction_powered(*study(60))
    is_classical(everyone)


def test_invalid_verdicts_that_hang_together_with_people_do_not_bias():
    errors = []
    dropped = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        quality = rng.normal(size=400)
        people = quality.copy()
        judge = quality + rng.normal(0, 0.3, 400)
        people[rng.permutation(400)[80:]] = np.nan
        unlucky = rng.random(400) < 0.5
        judge[unlucky & (quality > 0)] = np.nan
        valid = ~np.isnan(judge)
        rated = ~np.isnan(people)
        powered = prediction_powered(people, judge)
        assert powered["rated_without_verdict"] == (~valid & rated).sum()
        errors.append(powered["prediction_powered"].value)
        without = prediction_powered(people[valid], judge[valid])
        dropped.append(without["prediction_powered"].value)
    assert abs(np.mean(errors)) < 0.02
    assert np.mean(dropped) < -0.2, "leaving such cases out is what would bias"


def test_what_cannot_be_said_is_a_reason_and_no_figure():
    judge = np.arange(50.0)
    nothing = prediction_powered(np.full(50, np.nan), judge)
    assert nothing["classical"].value is None
    assert "there are 0" in nothing["prediction_powered"].reason
    few_ratings = first(judge**0.5, LEAST_RATED - 1, 50)
    few = prediction_powered(few_ratings, judge)
    assert few["classical"].low is not None
    assert few["prediction_powered"].value is None
    assert "needs 10 rated cases or clusters, and there are 9" in few["prediction_powered"].reason
    assert few["worth"] is None
    equal_ratings = first(3.0, 20, 50)
    same = prediction_powered(equal_ratings, judge)["prediction_powered"]
    assert same.value == pytest.approx(3)
    assert same.low is None
    assert "the same value" in same.reason


def test_a_win_rate_of_all_or_nothing_has_the_exact_bound():
    def win_rate(people, judge):
        figures = prediction_powered(people, judge, bounds=(0.0, 1.0))
        return figures["prediction_powered"]

    all_won = first(1.0, 20, 80)
    won = win_rate(all_won, np.zeros(80))
    assert won.value == 1
    assert won.high == 1
    assert won.low == pytest.approx(0.025 ** (1 / 20))
    judge = np.random.default_rng(0).random(80)
    all_but_one = first(np.arange(80) > 0, 20, 80)
    near = win_rate(all_but_one, judge)
    assert near.high == 1
    assert near.to_dict()["approximate"]


@pytest.mark.parametrize("judge", ["good", "biased", "useless"])
@pytest.mark.parametrize("figure", ["mean score", "win rate"])
def test_intervals_hold_in_simulation(simulation, figure, judge):
    name = f"{figure}, {judge} judge"
    coverage = simulation[f"{name}: coverage"]
    relative_width = simulation[f"{name}: width"]
    # 600 draws: four standard errors of a coverage of 95 % are 3.6 points
    assert 0.914 <= coverage <= 0.986
    assert relative_width <= 1.03
    assert (relative_width < 0.9) == (judge != "useless")
    if judge == "biased":
        assert simulation[f"{name}: coverage, judge alone"] < 0.5


@module_fixture
def simulation(tmp_path_factory):
    """Run the benchmark small, by its command; return its figures by their names."""
    file = tmp_path_factory.mktemp("simulation") / "measured.json"
    options = flags(draws=600, unrated=400, json=file)
    command = [sys.executable, "benchmarks/prediction_powered.py", *map(str, options)]
    succeeded(subprocess.run(command, capture_output=True, text=True, cwd=ROOT))
    measured = read_json(file)
    return {row["name"]: row["value"] for row in measured["rows"]}
