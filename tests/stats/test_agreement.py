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


def test_icc_of_shrout_and_fleiss():
    given = rows_of(__file__)["test_icc_of_shrout_and_fleiss"]
    ratings, figures = np.array(given["ratings"], float), {}
    for crossed in (True, False):
        figures |= interrater.icc(ratings, np.arange(6), 6, crossed=crossed)
    values = {name: value_of(figure, 6) for name, figure in figures.items()}
    assert values == pytest.approx(given["published"], abs=0.005)


def test_icc_of_an_uneven_number_of_ratings():
    """By scipy's one-way analysis of variance, with k0 = (N - sum k² / N) / (n - 1)."""
    ratings = np.array([[4, 5, NAN], [2, 2, 3], [1, NAN, 2], [5, NAN, NAN], [3, 5, 4]])
    rows = [row[~np.isnan(row)] for row in ratings]
    rows = [row for row in rows if len(row) > 1]
    f = f_oneway(*rows).statistic
    sizes = np.array([len(row) for row in rows])
    k0 = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(rows) - 1)
    figures = interrater.icc(ratings, np.arange(5), 5, crossed=False)
    assert value_of(figures["ICC(1,1)"], 5) == pytest.approx((f - 1) / (f + k0 - 1))
    assert value_of(figures["ICC(1,k)"], 5) == pytest.approx(1 - 1 / f)


ROW = st.lists(st.none() | st.integers(1, 5), min_size=3, max_size=3)


@given(st.lists(ROW, min_size=3, max_size=12))
@settings(max_examples=60, deadline=None)
def test_alpha_is_the_librarys(rows):
    ratings = np.array(rows, float)
    pairable = ratings[(~np.isnan(ratings)).sum(axis=1) > 1]
    values = pairable[~np.isnan(pairable)]
    for level in ("ordinal", "interval"):
        figure = interrater.krippendorff_alpha(ratings, np.arange(len(rows)), len(rows), level)
        expected = NAN
        if len(np.unique(values)) > 1:
            expected = krippendorff.alpha(ratings.T, level_of_measurement=level)
        assert value_of(figure, len(rows)) == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_zero_divided_by_zero_is_not_what_rounding_makes_of_it():
    """The mean squares of these ratings are 0, 0.01 and 0.01, so that the denominator of ICC(A,k) is 0."""
    case = np.arange(2)
    crossed = interrater.icc(np.array([[0.3, 0.1], [0.2, 0.2]]), case, 2, True)
    assert np.isnan(value_of(crossed["ICC(A,k)"], 2))
    assert value_of(crossed["ICC(A,1)"], 2) == pytest.approx(-0.01 / 0.01)
    thirds = np.array(
        [[0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]] * 2
    )  # 0.6, and 0.6 with another last digit
    assert np.ptp(thirds) > 0
    assert np.isnan(value_of(interrater.krippendorff_alpha(thirds, case, 2, "interval"), 2))
    for single, crossed in (("ICC(A,1)", True), ("ICC(1,1)", False)):
        assert np.isnan(value_of(interrater.icc(thirds, case, 2, crossed)[single], 2))


def test_ordinal_alpha_of_fine_scales_is_refused():
    statistic = interrater.krippendorff_alpha(
        np.arange(80.0).reshape(40, 2), np.arange(40), 40, "ordinal"
    )
    assert np.isnan(value_of(statistic, 40))
    assert "interval" in statistic.reason


def test_rounding_is_no_variance():
    people = np.array([3.3, 3.3 + 4e-16, 3.3 - 4e-16, 3.3])
    judge = np.array([1.0, 2.0, 3.0, 4.0])
    figures = agreement.correlations(Panel.of_sizes([2, 2]), people, judge)
    for figure in figures.values():
        assert np.isnan(value_of(figure, 2))
