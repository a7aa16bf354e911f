"""Score the answers of a harness with a judge, each answer by itself."""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from automedeval.harness.logs import Answer
from automedeval.harness.writing import score_of
from automedeval.judges.base import BaseJudge
from automedeval.judges.settings import load_by_settings
from automedeval.records import Case, Response, Verdict

SETTINGS = "AUTOMEDEVAL_HARNESS"  # names the YAML file where a harness passes no settings


@cache
def named_judge() -> BaseJudge:
    """Load the judge of the file that AUTOMEDEVAL_HARNESS names, once in each process; without it the small judge."""
    return load_by_settings({"config": os.environ.get(SETTINGS)})


def score_answers(judge: BaseJudge, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return the score of each answer, as `score_of` does; all are judged in one call."""
    cases = [
        Case(f"{number}", answer.question, (Response("answer", answer.text),), answer.reference)
        for number, answer in enumerate(answers)
    ]
    found: dict[str, list[Verdict]] = {case.id: [] for case in cases}
    for verdict in judge(cases):
        found[verdict.case_id].append(verdict)
    return [score_of(found[case.id], 0) for case in cases]
