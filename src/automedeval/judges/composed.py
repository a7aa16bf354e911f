"""Compose the rationale of the small judge: the steps of the paper's rationales, filled with what it found."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from automedeval.evidence.checker import CONTRADICTED, SUPPORTED, Finding, was_read
from automedeval.judges.features import FEATURES, newest
from automedeval.records import Case
from automedeval.records.templates import environment


def compose(
    case: Case,
    features: np.ndarray,
    findings: Sequence[Sequence[Finding]],
    scores: Sequence[float | None],
    scale: tuple[int, int],
) -> str:
    """Return the rationale in four steps: what is asked, what each response covers, what contradicts evidence, the scores.

    `features` are float [responses, FEATURES], NaN where one was not read; `findings` are empty where there was no evidence.
    """
    near, covered = (
        features[:, FEATURES.index(name)].tolist() for name in ("late_interaction", "covered")
    )
    responses = []
    for model, asked, likeness, found, score in zip(case.models, near, covered, findings, scores):
        labels = Counter(each.label for each in found)
        wrong = [each for each in found if each.label == CONTRADICTED and each.passage]
        responses.append(
            {
                "model": model,
                "asked": asked,
                "covered": likeness,
                "score": score,
                "read": was_read(found),
            }
            | {"statements": len(found), "supported": labels[SUPPORTED], "wrong": wrong}
        )
    names = {
        "question": newest(case.question),
        "responses": responses,
        "low": scale[0],
        "high": scale[1],
    }
    return _template().render(names).strip()


@cache
def _template() -> Any:
    return environment("automedeval.judges").get_template("composed.jinja")
