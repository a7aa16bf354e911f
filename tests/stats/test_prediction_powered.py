"""Prediction-powered means against the published closed form and against simulation."""

import json
import subprocess
import sys

import numpy as np
import pytest
from programs import ROOT, succeeded
from scipy.stats import t

from automedeval.stats.bootstrap import Estimate
from automedeval.stats.prediction_powered import LEAST_RATED, prediction_powered


def study(cases: int = 300, rated: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=cases)
    people = np.round(3 + quality + rng.normal(0, 0.3, cases))
    return np.where(np.arange(cases) < rated, people, np.nan), 1 + 0.7 * quality + rng.normal(
        0, 0.4, cases
    )


def width(estimate: Estimate) -> float:
    return estimate.high - estimate.low


def test_one_response_a_case_gives_the_published_closed_form() -> None:
    """PPI++ for a mean (Angelopoulos, Duchi, Zrnic 2023), whose one weight is that of all rated cases: equal up to 1/n."""
    people, judge = study(3000, 600)
    rated = ~np.isnan(people)
    y, f, unrated = people[rated], judge[rated], judge[~rated]
    weight = np.cov(y, f)[0, 1] / ((1 + len(y) / len(unrated)) * judge.var(ddof=1))
    variance = (y - weight * f).var(ddof=1) / len(y) + weight**2 * unrated.var(ddof=1) / len(
        unrated
    )
    powered = prediction_powered(people, judge)
    assert powered.weight == pytest.approx(weight, rel=1e-3)
    assert powered.interval.value == pytest.approx(
        weight * unrated.mean() + (y - weight * f).mean(), abs=5e-4
    )
    assert width(powered.interval) == pytest.approx(2 * t.ppf(0.975, 599) * variance**0.5, rel=0.01)


def test_cross_fitting_is_one_case_left_out_at_a_time() -> None:
    people, judge = study(rated=25)
    rated = np.flatnonzero(~np.isnan(people))
    every = (judge - judge.mean()).var(ddof=1) * 1.0
    gammas = []
    for case in rated:
        others = rated[rated != case]
        gammas.append(np.cov(people[others], judge[others])[0, 1] / every)
    slow = np.mean([people[c] - g * (judge[c] - judge.mean()) for c, g in zip(rated, gammas)])
    powered = prediction_powered(people, judge)
    assert powered.interval.value == pytest.approx(slow, rel=1e-12)
    assert powered.weight == pytest.approx(np.mean(gammas) * (300 - 25) / 300, rel=1e-12)


def test_classical_and_naive_are_what_they_say() -> None:
    people, judge = study()
    rated = people[~np.isnan(people)]
    powered = prediction_powered(people, judge)
    for interval, values in ((powered.classical, rated), (powered.naive, judge)):
        low, high = t.interval(
            0.95, len(values) - 1, values.mean(), values.std(ddof=1) / len(values) ** 0.5
        )
        assert (interval.value, interval.low, interval.high) == pytest.approx(
            (values.mean(), low, high)
        )
        assert interval.cases == len(values)
    assert width(powered.interval) < width(powered.classical)
    assert powered.worth == pytest.approx(
        60 * (width(powered.classical) / width(powered.interval)) ** 2
    )


def test_scale_and_direction_of_a_judge_do_not_matter() -> None:
    people, judge = study()
    plain, turned = prediction_powered(people, judge), prediction_powered(people, 40 - 7 * judge)
    assert turned.interval.to_dict() == pytest.approx(plain.interval.to_dict())
    assert turned.weight == pytest.approx(-plain.weight / 7)


def test_a_judge_that_says_nothing_leaves_the_ratings_as_they_are() -> None:
    people, _ = study()
    for judge in (np.full(300, 2.0), np.full(300, np.nan)):
        powered = prediction_powered(people, judge)
        assert powered.interval.to_dict() == pytest.approx(powered.classical.to_dict())
        assert powered.weight == 0
        assert powered.worth == pytest.approx(60)
    everyone = prediction_powered(study(60)[0], study(60)[1])
    assert everyone.interval.to_dict() == pytest.approx(everyone.classical.to_dict())


def test_invalid_verdicts_that_hang_together_with_people_do_not_bias() -> None:
    errors, dropped = [], []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        quality = rng.normal(size=400)
        order = rng.permutation(400)
        people = np.where(order < 80, quality, np.nan)
        judge = np.where(
            rng.random(400) < np.where(quality > 0, 0.5, 0.0),
            np.nan,
            quality + rng.normal(0, 0.3, 400),
        )
        powered = prediction_powered(people, judge)
        assert powered.invalid == (np.isnan(judge) & (order < 80)).sum()
        errors.append(powered.interval.value)
        dropped.append(
            prediction_powered(people[~np.isnan(judge)], judge[~np.isnan(judge)]).interval.value
        )
    assert abs(np.mean(errors)) < 0.02
    assert np.mean(dropped) < -0.2, "leaving such cases out is what would bias"


def test_what_cannot_be_said_is_a_reason_and_no_figure() -> None:
    nothing = prediction_powered(np.full(50, np.nan), np.arange(50.0))
    assert nothing.classical.value is None
    assert "fewer than two rated cases" in nothing.interval.reason
    few = prediction_powered(
        np.where(np.arange(50) < LEAST_RATED - 1, np.arange(50.0) ** 0.5, np.nan), np.arange(50.0)
    )
    assert few.classical.low is not None
    assert few.interval.value is None
    assert "needs 10 rated cases, and there are 9" in few.interval.reason
    assert few.to_dict()["worth"] is None
    same = prediction_powered(np.where(np.arange(50) < 20, 3.0, np.nan), np.arange(50.0))
    assert same.interval.value == pytest.approx(3)
    assert same.interval.low is None
    assert "the same value" in same.interval.reason


def test_a_win_rate_of_all_or_nothing_has_the_exact_bound() -> None:
    won = prediction_powered(
        np.where(np.arange(80) < 20, 1.0, np.nan), np.zeros(80), bounds=(0.0, 1.0)
    )
    assert (won.interval.value, won.interval.high) == (1, 1)
    assert won.interval.low == pytest.approx(0.025 ** (1 / 20))
    rng = np.random.default_rng(0)
    people = np.where(np.arange(80) < 20, (np.arange(80) > 0).astype(float), np.nan)
    near = prediction_powered(people, rng.random(80), bounds=(0.0, 1.0)).interval
    assert near.high == 1
    assert near.to_dict()["approximate"]


@pytest.mark.parametrize("judge", ["good", "biased", "useless"])
@pytest.mark.parametrize("figure", ["mean score", "win rate"])
def test_intervals_hold_in_simulation(
    simulation: dict[str, float], figure: str, judge: str
) -> None:
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
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "prediction_powered.py"),
        "--draws",
        "600",
        "--unrated",
        "400",
    ]
    succeeded(
        subprocess.run([*command, "--json", str(file)], capture_output=True, text=True, cwd=ROOT)
    )
    return {row["name"]: row["value"] for row in json.loads(file.read_text())["rows"]}
