"""`automedeval report` where people rated some of the cases: three estimates of every figure of the models."""

import re
from itertools import product

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
from scipy.stats import binomtest, ttest_1samp
from statsmodels.stats.multitest import multipletests
from tables import each_row, rows_of

from automedeval.stats.bootstrap import plain
from automedeval.stats.prediction_powered import prediction_powered

BASIS = "This and the ranks count pairs won; the headline compares mean scores."
KINDS = ("prediction_powered", "classical", "naive")


def drawn_ratings() -> list[dict]:
    """Return the ratings of a random draw of 15 of the sample's cases."""
    ids = [case["id"] for case in read(CASES)]
    rng = np.random.default_rng(0)
    drawn = rng.choice(ids, 15, replace=False)
    return [line for line in read(RATINGS) if line["case_id"] in drawn]


def width(estimate: dict) -> float:
    return estimate["high"] - estimate["low"]


def test_few_ratings_correct_the_means_of_a_judge_that_is_too_strict(tmp_path):
    verdicts = noisy_verdicts("good", 0.3, 1) + noisy_verdicts("poor", 1.0, 2)
    report = made(tmp_path, verdicts, ratings=drawn_ratings())
    means = people_means()
    few = report.result["few_ratings"]
    assert list(few["judges"]) == ["good", "poor"]
    assert sorted(few["judges"]["good"]) == MODELS
    for model, figures in few["judges"]["good"].items():
        mean = figures["mean"]
        powered = mean["prediction_powered"]
        people = [score for (_, name), score in means.items() if name == model]
        truth = np.mean(people)
        assert mean["rated"] == 15
        assert mean["unrated"] == 15
        assert powered["low"] < truth < powered["high"]
        assert mean["naive"]["high"] < truth
        assert width(powered) < width(mean["classical"])
        assert mean["worth"] > 15
        assert ("difference" in figures) == (model != few["baseline"])
    assert f"Differences are from {few['baseline']}" in report.page
    told = report.told
    assert told.count(" points by the ratings and good together (p ") == 2
    assert re.search(
        "rated cases say as much as 1.[0-9] to [0-9.]+ times as many without a judge", told
    )
    of_all = made(tmp_path, verdicts, ratings=RATINGS)
    assert "few_ratings" not in of_all.result


@each_row("shift, said")
def test_a_sentence_says_how_a_model_stands_beside_the_baseline(tmp_path, shift, said):
    """Beside `prediction_powered` of arrays that are drawn here, two cases a cluster; three verdicts are invalid."""
    draw = np.random.default_rng(0)
    points = 3 + draw.normal(0, 0.3, (40, 2)) + [shift, 0]
    noise = draw.normal(0, 0.1, (40, 2))
    scores = np.clip(points + noise, 1, 5)
    scores[[0, 4, 30]] = np.nan
    cases = []
    ratings = []
    verdicts = []
    for number, (rated, own) in enumerate(zip(points.tolist(), scores.tolist())):
        name = f"c{number}"
        case = case_of(name, "What helps?", {"a": "Rest.", "b": "Tea."}, cluster=number // 2)
        cases.append(case)
        if number < 20:
            for model, score in zip("ab", rated):
                ratings.append(rating(name, model, score))
        whole = None if np.isnan(own).any() else [round(score) for score in own]
        verdicts.append(verdict(case, whole, expected_scores=whole and own))
    report = made(tmp_path, verdicts, cases=cases, ratings=ratings, baseline="b")
    assert f"\n{said}" in report.told
    beside = report.result["few_ratings"]["judges"]["echo"]["a"]
    figures = beside["difference"]
    people = points[:, 0] - points[:, 1]
    people[20:] = np.nan
    judged = scores[:, 0] - scores[:, 1]
    wanted = plain(prediction_powered(people, judged, clusters=np.arange(40) // 2))
    assert figures["rated_without_verdict"] == 2
    for kind, end in product(KINDS, ("value", "low", "high")):
        assert figures[kind][end] == pytest.approx(wanted[kind][end])
    won = beside["win_rate"]["naive"]["value"]
    gaps = judged[np.isfinite(judged)]
    assert won == pytest.approx(np.where(np.abs(gaps) <= 0.25, 0.5, gaps > 0).mean())
    assert BASIS in report.told


def test_a_model_is_rated_higher_by_p_values_adjusted_for_all_models(tmp_path):
    """The judge says the same of all, so that they are those of the ratings; a gap that never varies has that of its sign."""
    scores = {model: two * 10 for model, two in rows_of(__file__)["scores in turn"].items()}
    names = [f"c{number}" for number in range(40)]
    cases = [case_of(name, "What helps?", dict.fromkeys(scores, "Rest.")) for name in names]
    ratings = []
    for model, given in scores.items():
        ratings += [rating(name, model, score) for name, score in zip(names, given)]
    report = made(
        tmp_path, [verdict(case, [3] * 6) for case in cases], cases=cases, ratings=ratings
    )
    gaps = np.subtract([*scores.values()], 3)
    p_values = [binomtest(20, 20).pvalue, *ttest_1samp(gaps[2:], 0, axis=1).pvalue]
    figures = report.result["few_ratings"]["judges"]["echo"]
    found = [figures[model]["difference"]["p_adjusted"] for model in "cdefg"]
    assert found == pytest.approx(multipletests(p_values, method="holm")[1])
    assert p_values[2] < 0.05 < found[2]
    assert "c is rated higher than b: 1.00 points by the ratings and echo" in report.told
    assert "e is not clearly different from b: 0.56 [0." in report.told


def test_judges_that_compare_pairs_have_no_means(tmp_path):
    """The second model beside the first is the first beside the second, turned round."""

    def beside(baseline: str, model: str) -> dict:
        given = {"ratings": drawn_ratings(), "baseline": baseline}
        few = made(tmp_path, pairwise_verdicts(), **given).result["few_ratings"]
        return few["judges"]["pairs: correctness"][model]

    one, other, _ = MODELS
    first = beside(one, other)
    second = beside(other, one)
    assert "mean" not in first
    assert first["difference"]["naive"]["reason"].endswith("not on people's scale")
    rate = first["win_rate"]["prediction_powered"]
    turned = second["win_rate"]["prediction_powered"]
    assert turned["value"] == pytest.approx(1 - rate["value"])
    assert turned["high"] == pytest.approx(1 - rate["low"])
    gap = first["difference"]["prediction_powered"]
    back = second["difference"]["prediction_powered"]
    assert back["value"] == pytest.approx(-gap["value"])


def test_models_without_a_case_in_common_have_means_alone(tmp_path):
    cases = [case_of(f"c{n}", "What helps?", {f"v{n % 2}": "Rest."}) for n in range(30)]
    verdicts = [verdict(case, [3]) for case in cases]
    ratings = [rating("c0", "v0", 3)]
    result = made(tmp_path, verdicts, cases=cases, ratings=ratings).result
    figures = result["few_ratings"]["judges"]["echo"]
    assert figures.keys() == {"v0", "v1"}
    assert [*figures["v0"]] == ["mean"]
    assert [*figures["v1"]] == ["mean"]
    powered = figures["v0"]["mean"]["prediction_powered"]
    assert powered["reason"].endswith("and there are 1")
