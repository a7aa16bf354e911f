"""Compose the rationale of the small judge: the steps of the paper's rationales, filled with what it found."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from automedeval.judges.features import columns_of, newest
from automedeval.records import Case
from automedeval.records.templates import environment


def compose(
    case: Case, features: np.ndarray, scores: Sequence[float | None], scale: tuple[int, int]
) -> str:
    """Return the rationale in three steps: what is asked, what each response covers, the scores.

    It names no model, so that physicians can be shown it: Doctor 1 is the first response. `features` are float [responses,
    FEATURES], NaN where one was not read.
    """
    near, covered = columns_of(features, ("late_interaction", "covered")).T.tolist()
    # The likeness to the question and to the reference, and the score.
    responses = list(zip(near, covered, scores))
    low, high = scale
    question = newest(case.question)
    return _template().render(question=question, responses=responses, low=low, high=high).strip()


@cache
def _template() -> Any:
    return environment("automedeval.judges").get_template("composed.jinja")
