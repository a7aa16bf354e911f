"""Prediction-powered means against the published closed form and against simulation."""

import json
import subprocess
import sys

import numpy as np
import pytest
from programs import ROOT, flags, succeeded
from scipy.stats import t, ttest_1samp

from automedeval.stats.bootstrap import Estimate
from automedeval.stats.prediction_powered import LEAST_RATED, prediction_powered


def study(cases: int = 300, rated: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=cases)
    people = np.round(3 + quality + rng.normal(0, 0.3, cases))
    people[rated:] = np.nan
    return people, 1 + 0.7 * quality + rng.normal(0, 0.4, cases)


def first(values: object, rated: int, cases: int) -> np.ndarray:
    """Return ratings of the first cases alone."""
    return np.where(np.arange(cases) < rated, values, np.nan)


def width(estimate: Estimate) -> float:
    return estimate.high - estimate.low


def test_one_response_a_case_gives_the_published_closed_form():
    """PPI++ for a mean (Angelopoulos, Duchi, Zrnic 2023), whose one weight is that of all rated cases: equal up to 1/n."""
    people, judge = study(3000, 600)
    rated = ~np.isnan(people)
    y, f, unrated = people[rated], judge[rated], judge[~rated]
    weight = np.cov(y, f)[0, 1] / ((1 + len(y) / len(unrated)) * judge.var(ddof=1))
    rest = y - weight * f
    variance = rest.var(ddof=1) / len(y) + weight**2 * unrated.var(ddof=1) / len(unrated)
    powered = prediction_powered(people, judge)
    assert powered["weight"] == pytest.approx(weight, rel=1e-3)
    value = weight * unrated.mean() + rest.mean()
    assert powered["prediction_powered"].value == pytest.approx(value, abs=5e-4)
    assert width(powered["prediction_powered"]) == pytest.approx(
        2 * t.ppf(0.975, 599) * variance**0.5, rel=0.01
    )


def test_cross_fitting_is_one_case_left_out_at_a_time():
    people, judge = study(rated=25)
    rated = np.flatnonzero(~np.isnan(people))
    gammas, corrected = [], []
    for case in rated:
        others = rated[rated != case]
        gammas.append(np.cov(people[others], judge[others])[0, 1] / judge.var(ddof=1))
        corrected.append(people[case] - gammas[-1] * (judge[case] - judge.mean()))
    powered = prediction_powered(people, judge)
    assert powered["prediction_powered"].value == pytest.approx(np.mean(corrected), rel=1e-12)
    assert powered["weight"] == pytest.approx(np.mean(gammas) * (300 - 25) / 300, rel=1e-12)


def test_classical_and_naive_are_what_they_say():
    people, judge = study()
    rated = people[~np.isnan(people)]
    powered = prediction_powered(people, judge)
    for interval, values in ((powered["classical"], rated), (powered["naive"], judge)):
        low, high = ttest_1samp(values, 0).confidence_interval()
        ends = (interval.low, interval.value, interval.high)
        assert ends == pytest.approx((low, values.mean(), high))
        assert interval.cases == len(values)
    gain = width(powered["classical"]) / width(powered["prediction_powered"])
    assert gain > 1
    assert powered["worth"] == pytest.approx(60 * gain**2)


def test_a_judge_that_says_nothing_leaves_the_ratings_as_they_are():
    people, _ = study()
    for judge in (np.full(300, 2.0), np.full(300, np.nan)):
        powered = prediction_powered(people, judge)
        assert powered["prediction_powered"].to_dict() == pytest.approx(
            powered["classical"].to_dict()
        )
        assert powered["weight"] == 0
        assert powered["worth"] == pytest.approx(60)
    everyone = prediction_powered(*study(60))
    assert everyone["prediction_powered"].to_dict() == pytest.approx(
        everyone["classical"].to_dict()
    )


def test_invalid_verdicts_that_hang_together_with_people_do_not_bias():
    errors, dropped = [], []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        quality = rng.normal(size=400)
        people, judge = quality.copy(), quality + rng.normal(0, 0.3, 400)
        people[rng.permutation(400)[80:]] = np.nan
        judge[(rng.random(400) < 0.5) & (quality > 0)] = np.nan
        valid = ~np.isnan(judge)
        powered = prediction_powered(people, judge)
        assert powered["rated_without_verdict"] == (~valid & ~np.isnan(people)).sum()
        errors.append(powered["prediction_powered"].value)
        dropped.append(prediction_powered(people[valid], judge[valid])["prediction_powered"].value)
    assert abs(np.mean(errors)) < 0.02
    assert np.mean(dropped) < -0.2, "leaving such cases out is what would bias"


def test_what_cannot_be_said_is_a_reason_and_no_figure():
    nothing = prediction_powered(np.full(50, np.nan), np.arange(50.0))
    assert nothing["classical"].value is None
    assert "fewer than two rated cases" in nothing["prediction_powered"].reason
    few = prediction_powered(first(np.arange(50.0) ** 0.5, LEAST_RATED - 1, 50), np.arange(50.0))
    assert few["classical"].low is not None
    assert few["prediction_powered"].value is None
    assert "needs 10 rated cases, and there are 9" in few["prediction_powered"].reason
    assert few["worth"] is None
    same = prediction_powered(first(3.0, 20, 50), np.arange(50.0))
    assert same["prediction_powered"].value == pytest.approx(3)
    assert same["prediction_powered"].low is None
    assert "the same value" in same["prediction_powered"].reason


def test_a_win_rate_of_all_or_nothing_has_the_exact_bound():
    bounds = (0.0, 1.0)
    won = prediction_powered(first(1.0, 20, 80), np.zeros(80), bounds=bounds)["prediction_powered"]
    assert (won.value, won.high) == (1, 1)
    assert won.low == pytest.approx(0.025 ** (1 / 20))
    judge = np.random.default_rng(0).random(80)
    near = prediction_powered(first(np.arange(80) > 0, 20, 80), judge, bounds=bounds)[
        "prediction_powered"
    ]
    assert near.high == 1
    assert near.to_dict()["approximate"]


@pytest.mark.parametrize("judge", ["good", "biased", "useless"])
@pytest.mark.parametrize("figure", ["mean score", "win rate"])
def test_intervals_hold_in_simulation(simulation, figure, judge):
    name = f"{figure}, {judge} judge"
    # 600 draws: four standard errors of a coverage of 95 % are 3.6 points
    assert 0.914 <= simulation[f"{name}: coverage"] <= 0.986
    assert simulation[f"{name}: width"] <= 1.03
    assert (simulation[f"{name}: width"] < 0.9) == (judge != "useless")
    if judge == "biased":
        assert simulation[f"{name}: coverage, judge alone"] < 0.5


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Run the benchmark small, by its command; return its figures by their names."""
    file = tmp_path_factory.mktemp("simulation") / "measured.json"
    options = flags(draws=600, unrated=400, json=file)
    command = [sys.executable, "benchmarks/prediction_powered.py", *map(str, options)]
    succeeded(subprocess.run(command, capture_output=True, text=True, cwd=ROOT))
    return {row["name"]: row["value"] for row in json.loads(file.read_text())["rows"]}
