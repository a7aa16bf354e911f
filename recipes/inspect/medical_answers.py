"""An evaluation for inspect_ai: a model answers the sample's questions, and the packaged small judge scores its answers.

inspect eval recipes/inspect/medical_answers.py --model openai/MODEL
inspect eval recipes/inspect/medical_answers.py --model openai/MODEL -T cases=my_cases.jsonl -T judge=openai:JUDGE

The sample's questions are made up. Not for clinical use.
"""

from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.solver import generate

import automedeval
from automedeval.harness.inspect_scorer import judge as judge_scorer

SAMPLE = Path(automedeval.__file__).parent / "sample" / "test_cases.jsonl"


@task
def medical_answers(cases: str = str(SAMPLE), **judge: Any) -> Task:
    """Answer the questions of a file of cases; `judge` are the settings of the scorer `automedeval/judge`."""
    dataset = json_dataset(cases, FieldSpec(input="question", target="reference", id="id"))
    return Task(dataset=dataset, solver=generate(), scorer=judge_scorer(**judge))
