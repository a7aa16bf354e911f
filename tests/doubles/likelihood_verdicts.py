"""Made-up verdicts of likelihood judges, and ratings that are a known linear function of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from doubles.introspection_study import MODELS, case_of
from programs import ROOT

from automedeval.records import Rating, Verdict
from automedeval.rubrics import Rubric, read_rubric

FEEDBACK = read_rubric(ROOT / "recipes/runs/automedeval-135m/feedbackqa.yaml")


def verdict_of(
    number: int, figures: Sequence[float | None], judge: str = "likelihood:tiny", **more: Any
) -> Verdict:
    """Return a likelihood judge's verdict; a figure of None is a response that was not shown."""
    shown = tuple(place for place, figure in enumerate(figures) if figure is not None)
    case = case_of(number, MODELS[: len(figures)])
    origin = {"models": tuple(case.models), "case_digest": case.digest, "settings": "s1"}
    fields = origin | {"valid": True, "expected_scores": tuple(figures)} | more
    return Verdict(case.id, judge, "likelihood@1", shown, **fields)


UNREAD = {"valid": False, "error": "too long", "expected_scores": None}
INVALID = verdict_of(24, (0.0, 0.0, 0.0), **UNREAD)


def rated(verdict: Verdict, scores: Sequence[float]) -> list[Rating]:
    return [
        Rating(verdict.case_id, name, "ann", "overall", score)
        for name, score in zip(MODELS, scores)
    ]


def study(number: int = 30, seed: int = 0) -> list[Verdict]:
    """Return verdicts on cases of three responses, with made-up figures between -4 and -2."""
    rng = np.random.default_rng(seed)
    return [verdict_of(at, rng.uniform(-4, -2, 3).tolist()) for at in range(number)]


def people(
    verdicts: Sequence[Verdict], noise: float = 0.0, rubric: Rubric = FEEDBACK
) -> list[Rating]:
    """Return ratings on the line, or whole ratings around it if `noise` is given."""
    rng = np.random.default_rng(1)
    ratings = []
    for verdict in verdicts:
        values = np.array(verdict.expected_scores)
        scores = 4.5 + 0.5 * (values - values.mean()) + 0.6 * values
        if noise:
            scores = np.clip(np.round(scores + rng.normal(0, noise, len(scores))), *rubric.scale)
        ratings += rated(verdict, scores.tolist())
    return ratings
