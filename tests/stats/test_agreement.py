"""The measures of agreement, against published examples and independent libraries."""

import krippendorff
import numpy as np
import pytest
from doubles.agreement_study import value_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f_oneway
from tables import rows_of

from automedeval.stats import agreement, interrater
from automedeval.stats.agreement import Panel

NAN = float("nan")
ROWS = rows_of(__file__)


def test_icc_of_shrout_and_fleiss():
    given = ROWS["test_icc_of_shrout_and_fleiss"]
    ratings = np.array(given["ratings"], float)
    figures = {}
    for crossed in (True, False):
        figures |= interrater.icc(ratings, np.arange(6), 6, crossed=crossed)
    values = {name: value_of(figure, 6) for name, figure in figures.items()}
    assert values == pytest.approx(given["published"], abs=0.005)


def test_icc_of_an_uneven_number_of_ratings():
    """By scipy's one-way analysis of variance, with k0 = (N - sum k² / N) / (n - 1)."""
    rows = ROWS["an uneven number of ratings"]
    f = f_oneway(*rows[:4]).statistic
    sizes = np.array([len(row) for row in rows[:4]])
    total = sizes.sum()
    squares = (sizes**2).sum()
    k0 = (total - squares / total) / 3
    ratings = np.full((5, 3), NAN)
    for row, values in zip(ratings, rows):
        row[: len(values)] = values
    figures = interrater.icc(ratings, np.arange(5), 5, crossed=False)
    assert value_of(figures["ICC(1,1)"], 5) == pytest.approx((f - 1) / (f + k0 - 1))
    assert value_of(figures["ICC(1,k)"], 5) == pytest.approx(1 - 1 / f)


ROW = st.lists(st.none() | st.integers(1, 5), min_size=3, max_size=3)


@given(st.lists(ROW, min_size=3, max_size=12))
@settings(max_examples=60, deadline=None)
def test_alpha_is_the_librarys(rows):
    ratings = np.array(rows, float)
    cases = len(rows)
    counts = np.isfinite(ratings).sum(axis=1)
    pairable = ratings[counts > 1]
    values = np.unique(pairable[np.isfinite(pairable)])
    for level in ("ordinal", "interval"):
        figure = interrater.krippendorff_alpha(ratings, np.arange(cases), cases, level)
        expected = NAN
        if len(values) > 1:
            expected = krippendorff.alpha(ratings.T, level_of_measurement=level)
        assert value_of(figure, cases) == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_zero_divided_by_zero_is_not_what_rounding_makes_of_it():
    case = np.arange(2)
    for ratings in ROWS["raters who agree less than by chance"]:
        crossed = interrater.icc(np.array(ratings), case, 2, True)
        assert np.isnan(value_of(crossed["ICC(A,k)"], 2))
    assert value_of(crossed["ICC(A,1)"], 2) == pytest.approx(-1)
    near = np.nextafter(0.6, 1)  # 0.6 with another last digit
    sixths = np.array([[0.6, near], [0.6, near]])
    alpha = interrater.krippendorff_alpha(sixths, case, 2, "interval")
    assert np.isnan(value_of(alpha, 2))
    for single, crossed in (("ICC(A,1)", True), ("ICC(1,1)", False)):
        figures = interrater.icc(sixths, case, 2, crossed)
        assert np.isnan(value_of(figures[single], 2))


def test_ordinal_alpha_of_fine_scales_is_refused():
    ratings = np.arange(80.0).reshape(40, 2)
    statistic = interrater.krippendorff_alpha(ratings, np.arange(40), 40, "ordinal")
    assert np.isnan(value_of(statistic, 40))
    assert "interval" in statistic.reason


def test_rounding_is_no_variance():
    people = 3.3 + np.array([0, 4e-16, -4e-16, 0])
    judge = np.arange(1.0, 5.0)
    figures = agreement.correlations(Panel.of_sizes([2, 2]), people, judge)
    for figure in figures.values():
        assert np.isnan(value_of(figure, 2))
