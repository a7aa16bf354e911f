"""Agreement on ordered degrees, beside scikit-learn and naive loops."""

import numpy as np
import pytest
from doubles.agreement_study import value_of
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from automedeval.stats.bootstrap import bootstrap
from automedeval.stats.degrees import degree_tables, detection, weighted_kappa


def raters(seed, units=120, cases=40, missing=0.1):
    rng = np.random.default_rng(seed)
    first = rng.choice(5, units, p=[0.4, 0.3, 0.15, 0.1, 0.05]).astype(float)
    second = np.clip(first + rng.integers(-1, 2, units), 0, 4)
    for each in (first, second):
        each[rng.random(units) < missing] = np.nan
    return first, second, np.sort(rng.integers(0, cases, units)), cases


@pytest.mark.parametrize("seed", range(10))
def test_weighted_kappa_is_that_of_scikit_learn_and_so_is_each_resample(seed):
    first, second, case, cases = raters(seed)
    tables = degree_tables(first, second, case, cases, 5)
    both = ~np.isnan(first) & ~np.isnan(second)
    counted = confusion_matrix(first[both], second[both], labels=range(5))
    assert tables.sum(axis=0).tolist() == counted.tolist()
    kappa = weighted_kappa(tables)
    theirs = cohen_kappa_score(first[both], second[both], weights="quadratic")
    assert value_of(kappa, cases) == pytest.approx(theirs)
    drawn = np.random.default_rng(seed).integers(0, cases, cases)
    units = np.concatenate([np.flatnonzero(both & (case == each)) for each in drawn])
    counts = np.bincount(drawn, minlength=cases)[None].astype(float)
    again = cohen_kappa_score(first[units], second[units], weights="quadratic")
    assert kappa.of(kappa.sums(counts))[0] == pytest.approx(again)


def test_what_has_no_value_has_none_and_says_why():
    nothing = degree_tables(np.full(4, np.nan), np.zeros(4), np.arange(4), 4, 5)
    same = degree_tables(np.zeros(4), np.zeros(4), np.arange(4), 4, 5)
    figures = {
        "no answer has a degree by both": weighted_kappa(nothing),
        "both raters give one degree throughout": weighted_kappa(same),
        "no such answer": detection(same, 2)["sensitivity"],
    }
    for reason, estimate in zip(figures, bootstrap([*figures.values()], 4)):
        assert (estimate.value, estimate.reason) == (None, reason)
