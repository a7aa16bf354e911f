"""Score a response by the criteria that it meets, and average over cases, by the published formulas.

HealthBench (Arora et al. 2025; github.com/openai/simple-evals, healthbench_eval.py): the points of the criteria that are met,
divided by the sum of the positive points. Points below 0 are of criteria that a response must not meet.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# How HealthBench Professional takes length off a score: points for each 500 characters above the free length.
FREE_LENGTH, LENGTH_STEP, LENGTH_PENALTY = 2000, 500, 0.0147
# How scores become the mean over cases:
#   clip_mean   the mean of the scores, then clipped to [0, 1]: HealthBench's overall figure
#   clip_cases  each score clipped to [0, 1], then the mean: what inspect_evals does for HealthBench's categories
#   unclipped   the mean of the scores
MEAN_RULES = ("clip_mean", "clip_cases", "unclipped")


class Score(NamedTuple):
    """The score of a response.

    Attributes:
        score: points of the criteria that are known to be met / sum of the positive points; may be negative.
        lowest, highest: the lowest and the highest score that are still possible where criteria are unread; else the score.

    All are None where no criterion has positive points.
    """

    score: float | None
    lowest: float | None
    highest: float | None


def shares_of(runs: Sequence[Sequence[float | None]], criteria: int) -> list[float | None]:
    """Return the mean over the runs that read each criterion; None where no run did.

    Args:
        runs: whether each criterion is met, or with what probability; None where a run could not read it.
        criteria: their number, for no runs.
    """
    columns = ([run[place] for run in runs] for place in range(criteria))
    read = [[value for value in column if value is not None] for column in columns]
    return [sum(values) / len(values) if values else None for values in read]


def checklist_score(points: Sequence[float], met: Sequence[float | None]) -> Score:
    """Return the score of a response.

    Args:
        points: of each criterion, positive or negative.
        met: whether it is met, in the same order, or in what share of the runs; None where that could not be read.

    Raises:
        ValueError: not one entry for each criterion.
    """
    possible = sum(each for each in points if each > 0)
    sure = sum(each * share for each, share in zip(points, met, strict=True) if share is not None)
    unread = [each for each, share in zip(points, met) if share is None]
    if not possible:
        return Score(None, None, None)
    least, most = sum(each for each in unread if each < 0), sum(each for each in unread if each > 0)
    return Score(*((sure + more) / possible for more in (0, least, most)))


def length_adjusted(score: float | None, characters: int) -> float | None:
    """Return a score less HealthBench Professional's penalty for length; shorter than the free length adds to the score.

    Args:
        characters: length of the response.
    """
    return None if score is None else score - LENGTH_PENALTY * (characters - FREE_LENGTH) / LENGTH_STEP


def mean_score(scores: Sequence[float | None], rule: str = "clip_mean") -> float | None:
    """Return the mean over cases by one of `MEAN_RULES`; cases without a score do not count, and None is the mean of none."""
    defined = np.array([score for score in scores if score is not None], float)
    if not len(defined):
        return None
    if rule == "clip_cases":
        defined = defined.clip(0, 1)
    mean = float(defined.mean())
    return min(max(mean, 0.0), 1.0) if rule == "clip_mean" else mean
