"""`automedeval report` where people rated some of the cases: three estimates of every figure of the models."""

import re

import numpy as np
import pytest
from doubles.agreement_study import (
    CASES,
    MODELS,
    RATINGS,
    case_of,
    made,
    noisy_verdicts,
    pairwise_verdicts,
    people_means,
    rating,
    read,
    verdict,
)

from automedeval.stats.bootstrap import plain
from automedeval.stats.prediction_powered import prediction_powered

KINDS = ("prediction_powered", "classical", "naive")


def drawn_ratings(number: int) -> list[dict]:
    """Return the ratings of a random draw of so many of the sample's cases."""
    ids = [case["id"] for case in read(CASES)]
    drawn = np.random.default_rng(0).choice(ids, number, replace=False)
    return [line for line in read(RATINGS) if line["case_id"] in drawn]


def test_few_ratings_correct_the_means_of_a_judge_that_is_too_strict(tmp_path):
    verdicts = noisy_verdicts("good", 0.3, 1) + noisy_verdicts("poor", 1.0, 2)
    report, means = made(tmp_path, verdicts, ratings=drawn_ratings(15)), people_means()
    few = report.result["few_ratings"]
    assert list(few["judges"]) == ["good", "poor"]
    assert sorted(few["judges"]["good"]) == MODELS
    for model, figures in few["judges"]["good"].items():
        mean = figures["mean"]
        powered, classical, naive = (mean[kind] for kind in KINDS)
        truth = np.mean([score for (_, name), score in means.items() if name == model])
        assert mean["rated"] == mean["unrated"] == 15
        assert powered["low"] < truth < powered["high"]
        assert naive["high"] < truth
        assert powered["high"] - powered["low"] < classical["high"] - classical["low"]
        assert mean["worth"] > 15
        assert ("difference" in figures) == (model != few["baseline"])
    assert f"Differences are from {few['baseline']}" in report.page
    assert report.told.count(" points by the ratings and good together, ") == 2
    assert re.search("15 rated cases say as much as [0-9]+ to [0-9]+ without a judge", report.told)
    assert "few_ratings" not in made(tmp_path, verdicts, ratings=RATINGS).result


@pytest.mark.parametrize(
    ("shift", "said"),
    [(1.0, "a is rated higher than b: 0.9"), (0.1, "a is not clearly different from b: ")],
)
def test_a_sentence_says_how_a_model_stands_beside_the_baseline(tmp_path, shift, said):
    """Beside `prediction_powered` of arrays that are drawn here; three verdicts are invalid."""
    draw = np.random.default_rng(0)
    points = 3 + draw.normal(0, 0.3, (40, 2)) + [shift, 0]
    scores = np.clip(points + draw.normal(0, 0.1, (40, 2)), 1, 5)
    scores[[0, 4, 30]] = np.nan
    cases, ratings, verdicts = [], [], []
    for number, (rated, own) in enumerate(zip(points.tolist(), scores.tolist())):
        cases.append(case_of(f"c{number}", "What helps?", {"a": "Rest.", "b": "Tea."}))
        if number < 20:
            ratings += [rating(f"c{number}", model, score) for model, score in zip("ab", rated)]
        whole = None if np.isnan(own).any() else [round(score) for score in own]
        verdicts.append(verdict(cases[-1], whole, expected_scores=whole and own))
    report = made(tmp_path, verdicts, cases=cases, ratings=ratings, baseline="b")
    assert f"\n{said}" in report.told
    figures = report.result["few_ratings"]["judges"]["echo"]["a"]["difference"]
    people = np.where(np.arange(40) < 20, points[:, 0] - points[:, 1], np.nan)
    wanted = plain(prediction_powered(people, scores[:, 0] - scores[:, 1]))
    assert figures["rated_without_verdict"] == 2
    for kind in KINDS:
        for end in ("value", "low", "high"):
            assert figures[kind][end] == pytest.approx(wanted[kind][end])


def test_judges_that_compare_pairs_have_no_means(tmp_path):
    """The second model beside the first is the first beside the second, turned round."""
    sides = []
    for baseline, model in (MODELS[:2], MODELS[1::-1]):
        given = {"ratings": drawn_ratings(15), "baseline": baseline}
        judges = made(tmp_path, pairwise_verdicts(), **given).result["few_ratings"]["judges"]
        sides.append(judges["pairs: correctness"][model])
    first, _ = sides
    assert "mean" not in first
    assert first["difference"]["naive"]["reason"].endswith("not on people's scale")
    ends = [side["win_rate"]["prediction_powered"] for side in sides]
    assert ends[1]["value"] == pytest.approx(1 - ends[0]["value"])
    assert ends[1]["high"] == pytest.approx(1 - ends[0]["low"])
    gaps = [side["difference"]["prediction_powered"]["value"] for side in sides]
    assert gaps[1] == pytest.approx(-gaps[0])


def test_models_without_a_case_in_common_have_means_alone(tmp_path):
    cases = [case_of(f"c{n}", "What helps?", {f"v{n % 2}": "Rest."}) for n in range(30)]
    verdicts = [verdict(case, [3]) for case in cases]
    result = made(tmp_path, verdicts, cases=cases, ratings=[rating("c0", "v0", 3)]).result
    figures = result["few_ratings"]["judges"]["echo"]
    assert {name: list(each) for name, each in figures.items()} == {"v0": ["mean"], "v1": ["mean"]}
    assert figures["v0"]["mean"]["prediction_powered"]["reason"] == "fewer than two rated cases"
