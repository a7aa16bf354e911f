"""Agreement on ordered degrees, beside scikit-learn and naive loops."""

import numpy as np

from automedeval.stats.bootstrap import bootstrap
from automedeval.stats.degrees import degree_tables, detection, weighted_kappa


def test_what_has_no_value_has_none_and_says_why():
    zeros = np.zeros(4)
    cases = np.arange(4)
    nothing = degree_tables(np.full(4, np.nan), zeros, cases, 4, 5)
    same = degree_tables(zeros, zeros, cases, 4, 5)
    figures = {
        "no answer has a degree by both": weighted_kappa(nothing),
        "both raters give one degree throughout": weighted_kappa(same),
        "no such answer": detection(zeros, zeros, cases, 4, 2)["sensitivity"],
    }
    for reason, estimate in zip(figures, bootstrap([*figures.values()], 4)):
        assert estimate.value is None
        assert estimate.reason == reason
