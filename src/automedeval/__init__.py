"""AutoMedEval: an open judge of medical answers. README.md has the commands."""

from importlib import import_module
from typing import TYPE_CHECKING

from automedeval.records import (
    AutoMedEvalError,
    Case,
    Rating,
    RecordError,
    Response,
    Verdict,
    offline,
    read_records,
)
from automedeval.records.tables.cases import read_cases
from automedeval.rubrics import Criterion, Rubric, packaged_rubrics, read_rubric

if TYPE_CHECKING:
    from automedeval.judges.judge import Judge, load_judge
    from automedeval.judges.likelihood import LikelihoodJudge
    from automedeval.judges.tables import Verdicts, judge_dataset
    from automedeval.models.endpoint import OpenAIChat
    from automedeval.models.local import LocalChat

__version__ = "0.2.0"
__all__ = [
    "AutoMedEvalError",
    "Case",
    "Criterion",
    "Judge",
    "LikelihoodJudge",
    "LocalChat",
    "OpenAIChat",
    "Rating",
    "RecordError",
    "Response",
    "Rubric",
    "Verdict",
    "Verdicts",
    "judge_dataset",
    "load_judge",
    "packaged_rubrics",
    "read_cases",
    "read_records",
    "read_rubric",
]

# These load torch or openai, so they are loaded when they are asked for.
_HOMES = {
    "Judge": "judges.judge",
    "LikelihoodJudge": "judges.likelihood",
    "LocalChat": "models.local",
    "OpenAIChat": "models.endpoint",
    "Verdicts": "judges.tables",
    "judge_dataset": "judges.tables",
    "load_judge": "judges.judge",
}


if offline.is_offline():
    offline.stay_offline()


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"automedeval.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'automedeval' has no attribute {name!r}")
