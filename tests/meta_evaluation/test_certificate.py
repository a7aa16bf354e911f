"""The certificate of a judge's order in simulation: how often what it promises is false, where the truth is known."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from doubles.introspection_study import case_of, verdict_of
from scipy.stats import binom

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.calibration.certificate import DELTA, certify_order
from automedeval.meta_evaluation.table import VerdictTable

RISK, DRAWS, RATED, OTHERS = 0.2, 200, 90, 40
LAWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # the gap, from 0 to 1 → the share of wrong pairs
    "a hair too bad everywhere": lambda gap: np.full_like(gap, RISK + 1e-4),
    "right up to a point": lambda gap: np.where(gap > 0.5, 0.05, 0.6),
    "knows when it is right": lambda gap: 0.02 + 0.5 * (1 - gap) ** 2,
}
VERDICTS = [verdict_of(case_of(at), (3, 3, 3), models=list(case_of(at).models)) for at in range(RATED + OTHERS)]


@pytest.mark.parametrize("law", LAWS)
def test_a_certificate_is_false_in_a_tenth_of_the_draws_at_most(law: str) -> None:
    """The pairs of a case are all right or all wrong together, and two runs differ by noise that their mean is free of."""
    rng, false, kept = np.random.default_rng(5), 0, 0.0
    grid = (np.arange(100_000) + 0.5) / 100_000
    risks = np.cumsum(LAWS[law](1 - grid)) / np.arange(1, len(grid) + 1)  # of keeping the surest share of all cases
    for _ in range(DRAWS):
        gap = rng.random(RATED + OTHERS)
        sign = np.where(rng.random(len(gap)) < LAWS[law](gap), -1, 1)
        scores = 3 + 0.75 * (sign * gap)[:, None] * np.array([1, 0, -1])  # the mean of the three gaps is `gap`
        noise = rng.normal(0, 0.3, scores.shape)
        runs = [(scores + (1 - 2 * run) * noise).tolist() for run in range(2)]
        verdicts = [
            [replace(verdict, run=run, expected_scores=tuple(points)) for verdict, points in zip(VERDICTS, runs[run])]
            for run in range(2)
        ]
        rated, others = (
            VerdictTable(Cases([case_of(at) for at in places], ""), [each[at] for each in verdicts for at in places])
            for places in (range(RATED), range(RATED, RATED + OTHERS))
        )
        people = np.ones(3 * RATED)  # the first of every pair is better
        certificate, confidence = certify_order(rated, people, others, "expected_scores", RISK)
        assert [confidence[each.case_id] for each in VERDICTS[RATED:]] == pytest.approx(gap[RATED:], abs=1e-8)
        if certificate["threshold"] is not None:
            share = 1 - certificate["threshold"]
            kept += share
            false += risks[min(len(grid) - 1, int(share * len(grid)))] > RISK
    assert binom.sf(false - 1, DRAWS, DELTA) > 1e-3, f"{false} of {DRAWS} certificates are false"
    assert kept / DRAWS > (0.3 if law == "knows when it is right" else 0.0)
    if law == "a hair too bad everywhere":
        assert false > 0.02 * DRAWS  # a test that certifies nothing would pass everything else
