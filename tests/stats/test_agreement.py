"""The measures of agreement, against examples worked by hand, published ones, and independent libraries."""

import itertools
import json
from pathlib import Path

import krippendorff
import numpy as np
import pandas
import pingouin
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import cohen_kappa_score

from automedeval.stats import agreement, interrater
from automedeval.stats.agreement import Panel
from automedeval.stats.bootstrap import value_of

WORKED = json.loads((Path(__file__).parents[1] / "data" / "agreement.json").read_text(encoding="utf-8"))
NAN = float("nan")

# Shrout and Fleiss 1979, Table 2: six targets rated by four judges.
SHROUT_FLEISS = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float)
# Krippendorff 2011, section C: twelve units, four observers, values missing.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
).T


def floats(values: list) -> np.ndarray:
    return np.array([NAN if value is None else value for value in values], float)


def measures(sizes: list[int], people: np.ndarray, judge: np.ndarray) -> dict[str, float]:
    panel = Panel.of_sizes(sizes)
    statistics = agreement.accuracies(panel, panel.relations(people), panel.relations(judge))
    statistics |= agreement.correlations(panel, people, judge)
    return {name: value_of(statistic, panel.cases) for name, statistic in statistics.items()}


@pytest.mark.parametrize("example", WORKED, ids=[example["name"] for example in WORKED])
def test_examples_worked_by_hand(example: dict) -> None:
    figures = measures(example["sizes"], floats(example["people"]), floats(example["judge"]))
    for name, value in example["expected"].items():
        assert figures[name] == pytest.approx(NAN if value is None else value, nan_ok=True), name


def test_icc_of_shrout_and_fleiss() -> None:
    case = np.arange(6)
    crossed = interrater.icc(SHROUT_FLEISS, case, 6, crossed=True)
    assert value_of(crossed["ICC(A,1)"], 6) == pytest.approx(0.29, abs=0.005)
    assert value_of(crossed["ICC(A,k)"], 6) == pytest.approx(0.62, abs=0.005)
    anonymous = interrater.icc(SHROUT_FLEISS, case, 6, crossed=False)
    assert value_of(anonymous["ICC(1,1)"], 6) == pytest.approx(0.17, abs=0.005)
    assert value_of(anonymous["ICC(1,k)"], 6) == pytest.approx(0.44, abs=0.005)


def test_icc_is_pingouins() -> None:
    rng = np.random.default_rng(2)
    ratings = np.clip(np.round(rng.normal(3, 1, (40, 1)) + rng.normal(0, 0.7, (40, 3)) + [0, 0.4, -0.3]), 1, 5)
    long = pandas.DataFrame(
        [(target, rater, score) for target, row in enumerate(ratings) for rater, score in enumerate(row)],
        columns=["target", "rater", "score"],
    )
    table = pingouin.intraclass_corr(long, targets="target", raters="rater", ratings="score").set_index("Type")["ICC"]
    for crossed in (True, False):
        for name, statistic in interrater.icc(ratings, np.arange(40) // 2, 20, crossed).items():
            assert value_of(statistic, 20) == pytest.approx(table[name], abs=1e-9)


def test_icc_of_an_uneven_number_of_ratings() -> None:
    """One-way analysis of variance with k0 = (N - sum k² / N) / (n - 1), worked with plain loops."""
    ratings = np.array([[4, 5, NAN], [2, 2, 3], [1, NAN, 2], [5, NAN, NAN], [3, 5, 4]])
    rows = [row[~np.isnan(row)] for row in ratings if (~np.isnan(row)).sum() > 1]
    every = np.concatenate(rows)
    sizes = np.array([len(row) for row in rows])
    between = sum(len(row) * (row.mean() - every.mean()) ** 2 for row in rows) / (len(rows) - 1)
    within = sum(((row - row.mean()) ** 2).sum() for row in rows) / (len(every) - len(rows))
    k0 = (len(every) - (sizes**2).sum() / len(every)) / (len(rows) - 1)
    statistics = interrater.icc(ratings, np.arange(5), 5, crossed=False)
    assert value_of(statistics["ICC(1,1)"], 5) == pytest.approx((between - within) / (between + (k0 - 1) * within))
    assert value_of(statistics["ICC(1,k)"], 5) == pytest.approx((between - within) / between)


@pytest.mark.parametrize(("level", "published"), [("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_krippendorff(level: str, published: float) -> None:
    statistic = interrater.krippendorff_alpha(KRIPPENDORFF, np.arange(12), 12, level)
    assert value_of(statistic, 12) == pytest.approx(published, abs=0.0005)
    assert statistic.n == 11


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=3, max_size=3), min_size=3, max_size=12))
@settings(max_examples=60, deadline=None)
def test_alpha_is_the_librarys(rows: list) -> None:
    ratings = np.array([[NAN if value is None else value for value in row] for row in rows])
    pairable = ratings[(~np.isnan(ratings)).sum(axis=1) > 1]
    values = pairable[~np.isnan(pairable)]
    for level in ("ordinal", "interval"):
        alpha = value_of(interrater.krippendorff_alpha(ratings, np.arange(len(rows)), len(rows), level), len(rows))
        if len(np.unique(values)) < 2:
            assert np.isnan(alpha)
        else:
            assert alpha == pytest.approx(krippendorff.alpha(ratings.T, level_of_measurement=level), abs=1e-9)


def test_raters_who_all_say_the_same_have_no_reliability() -> None:
    same = np.full((5, 3), 4.0)
    for crossed in (True, False):
        assert np.isnan(
            value_of(interrater.icc(same, np.arange(5), 5, crossed)["ICC(A,1)" if crossed else "ICC(1,1)"], 5)
        )
    assert np.isnan(value_of(interrater.krippendorff_alpha(same, np.arange(5), 5, "interval"), 5))


def test_zero_divided_by_zero_is_not_what_rounding_makes_of_it() -> None:
    """The mean squares of these ratings are 0, 0.01 and 0.01, so that the denominator of ICC(A,k) is 0."""
    case = np.arange(2)
    crossed = interrater.icc(np.array([[0.3, 0.1], [0.2, 0.2]]), case, 2, True)
    assert np.isnan(value_of(crossed["ICC(A,k)"], 2))
    assert value_of(crossed["ICC(A,1)"], 2) == pytest.approx(-0.01 / 0.01)
    thirds = np.array([[0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]] * 2)  # 0.6, and 0.6 with another last digit
    assert np.ptp(thirds) > 0
    assert np.isnan(value_of(interrater.krippendorff_alpha(thirds, case, 2, "interval"), 2))
    for single, crossed in (("ICC(A,1)", True), ("ICC(1,1)", False)):
        assert np.isnan(value_of(interrater.icc(thirds, case, 2, crossed)[single], 2))


def test_ordinal_alpha_of_fine_scales_is_refused() -> None:
    statistic = interrater.krippendorff_alpha(np.arange(80.0).reshape(40, 2), np.arange(40), 40, "ordinal")
    assert np.isnan(value_of(statistic, 40))
    assert "interval" in statistic.reason


panels = st.lists(st.integers(1, 5), min_size=2, max_size=8).flatmap(
    lambda sizes: st.tuples(
        st.just(sizes),
        st.lists(st.integers(1, 5), min_size=sum(sizes), max_size=sum(sizes)),
        st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=sum(sizes), max_size=sum(sizes)),
    )
)


@given(panels, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_the_order_of_cases_and_of_responses_changes_nothing(data: tuple, random) -> None:
    sizes, people, judge = data
    starts = np.cumsum([0, *sizes])
    cases = [list(range(starts[case], starts[case + 1])) for case in range(len(sizes))]
    random.shuffle(cases)
    for responses in cases:
        random.shuffle(responses)
    order = [index for responses in cases for index in responses]
    before = measures(sizes, floats(people), floats(judge))
    after = measures([len(responses) for responses in cases], floats(people)[order], floats(judge)[order])
    assert before == pytest.approx(after, nan_ok=True)


@given(panels)
@settings(max_examples=80, deadline=None)
def test_a_judge_equal_to_people_scores_one_and_one_that_always_ties_a_half(data: tuple) -> None:
    sizes, people, _ = data
    people = floats(people)
    for name, value in measures(sizes, people, 10 * people + 3).items():
        assert np.isnan(value) or value == pytest.approx(1.0), name
    level = measures(sizes, people, np.ones(len(people)))
    assert np.isnan(level["concordance"]) or level["concordance"] == 0.5
    assert np.isnan(level["spearman"])
    assert np.isnan(level["pearson"])


@given(panels)
@settings(max_examples=80, deadline=None)
def test_correlations_are_scipys(data: tuple) -> None:
    sizes, people, judge = data
    people, judge = floats(people), floats(judge)
    figures = measures(sizes, people, judge)
    both = ~np.isnan(judge)
    if both.sum() > 1 and np.ptp(people[both]) and np.ptp(judge[both]):
        assert figures["spearman"] == pytest.approx(spearmanr(people[both], judge[both]).statistic)
        assert figures["pearson"] == pytest.approx(pearsonr(people[both], judge[both]).statistic)
    starts = np.cumsum([0, *sizes])
    within: dict[str, list] = {"spearman": [], "pearson": []}
    for start, end in itertools.pairwise(starts):
        x, y = people[start:end][both[start:end]], judge[start:end][both[start:end]]
        if len(x) > 1 and np.ptp(x) and np.ptp(y):
            within["spearman"].append(spearmanr(x, y).statistic)
            within["pearson"].append(pearsonr(x, y).statistic)
    for name, values in within.items():
        assert figures[f"{name}_within_case"] == pytest.approx(np.mean(values) if values else NAN, nan_ok=True)


FOLDS = np.arange(100) % 5


def test_a_tie_band_is_chosen_on_other_cases() -> None:
    rng = np.random.default_rng(1)
    people = rng.integers(1, 4, (100, 3)).astype(float)
    expected = (people + rng.normal(0, 0.15, people.shape)).ravel()
    panel = Panel.of_sizes([3] * 100)
    relation = panel.relations(people.ravel())
    banded, bands = agreement.cross_fitted_relations(panel, relation, expected, FOLDS)
    assert len(bands) == 5
    assert all(0.2 < band < 0.8 for band in bands)
    assert np.mean(banded == relation) > 0.9 > np.mean(panel.relations(expected) == relation)
    # A case has no say in its own band: turning its ratings round leaves its relations as they were.
    turned = relation.copy()
    turned[:3] *= -1
    assert (agreement.cross_fitted_relations(panel, turned, expected, FOLDS)[0][:3] == banded[:3]).all()


def test_one_case_has_no_other_to_choose_a_band_on() -> None:
    panel = Panel.of_sizes([3])
    people, expected = np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.1, 2.0])
    banded, bands = agreement.cross_fitted_relations(panel, panel.relations(people), expected, np.zeros(1, int))
    assert bands == [0.0]
    assert banded.tolist() == panel.relations(expected).tolist()


def test_rounding_is_no_variance() -> None:
    people = np.array([3.3, 3.3 + 4e-16, 3.3 - 4e-16, 3.3])
    figures = measures([2, 2], people, np.array([1.0, 2.0, 3.0, 4.0]))
    assert np.isnan(figures["pearson"])
    assert np.isnan(figures["spearman"])


def test_one_rater_against_the_others() -> None:
    rater, others = interrater.leave_one_out(np.array([[1.0, 3.0, NAN], [5.0, NAN, NAN], [2.0, 4.0, 6.0]]))
    assert pytest.approx(np.array([[1, 3, NAN], [NAN, NAN, NAN], [2, 4, 6]]), nan_ok=True) == rater.reshape(3, 3).T
    assert pytest.approx(np.array([[3, 1, NAN], [NAN, NAN, NAN], [5, 4, 3]]), nan_ok=True) == others.reshape(3, 3).T


def test_choices_against_sklearn() -> None:
    rng = np.random.default_rng(4)
    people = rng.integers(0, 4, 60)
    judge = np.where(rng.random(60) < 0.6, people, rng.integers(-1, 4, 60))
    statistics = agreement.choice_agreement(people, judge, np.arange(60) // 3, 20)
    assert value_of(statistics["accuracy"], 20) == pytest.approx(np.mean(people == judge))
    valid, turned = judge >= 0, np.array([1, 0, 2, 3])
    both_ways = [np.concatenate([side[valid], turned[side[valid]]]) for side in (people, judge)]
    assert value_of(statistics["kappa"], 20) == pytest.approx(cohen_kappa_score(*both_ways))
    swapped = agreement.choice_agreement(turned[people], np.where(valid, turned[judge], -1), np.arange(60) // 3, 20)
    assert value_of(swapped["kappa"], 20) == pytest.approx(value_of(statistics["kappa"], 20))
