"""Score a response by the criteria that it meets, and average over cases, by the published formulas.

HealthBench (Arora et al. 2025; github.com/openai/simple-evals, healthbench_eval.py): the points of the criteria that are met,
divided by the sum of the positive points. Points below 0 are of criteria that a response must not meet.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from automedeval.stats.bootstrap import divide


class Score(NamedTuple):
    """The scores of responses, each None or NaN where no criterion has positive points.

    Attributes:
        score: points of the met criteria / sum of the positive points; may be negative; None or NaN where one is unread.
        lowest, highest: the lowest and the highest score that are still possible where criteria are unread; else the score.
    """

    score: Any
    lowest: Any
    highest: Any


def checklist_scores(points: ndarray, met: ndarray, response: ndarray, responses: int) -> Score:
    """Return the scores of responses, each float [responses].

    Args:
        points: float [items], of each criterion of each response, positive or negative.
        met: float [items], whether it is met, or in what share of the runs; NaN where that could not be read.
        response: int [items], the number of the response of each item, from 0; responses: how many there are.
    """
    unread = np.isnan(met)
    earned = points * met
    least = np.where(unread, points.clip(None, 0), earned)
    most = np.where(unread, points.clip(0), earned)
    possible = np.bincount(response, points.clip(0), responses)
    totals = (np.bincount(response, part, responses) for part in (earned, least, most))
    return Score(*(divide(total, possible) for total in totals))


def checklist_score(points: Sequence[float], met: Sequence[float | None]) -> Score:
    """Return the score of one response by the points of its criteria and whether each is met, None where that is unread."""
    response = np.zeros(len(met), int)
    scores = checklist_scores(np.array(points, float), np.array(met, float), response, 1)
    return Score(*(None if np.isnan(score[0]) else float(score[0]) for score in scores))
