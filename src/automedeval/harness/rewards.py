"""A judge as the reward of TRL's GRPOTrainer and RLOOTrainer.

    AUTOMEDEVAL_REWARD=reward.yaml trl grpo --reward_funcs automedeval.harness.rewards.medical_judge …

The completions of one prompt are judged together, as the responses of one case. The YAML file names the judge, and what
`automedeval judge` takes to load and to ask a model.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from statistics import fmean
from typing import Any

from automedeval.harness.questions import refuse_template
from automedeval.harness.scoring import warn_of_references
from automedeval.judges.base import BaseJudge
from automedeval.judges.judge import load_by_settings
from automedeval.records import Case, RecordError, Response, digest
from automedeval.records.messages import answer_text
from automedeval.records.tables.columns import fault_of_reference

SETTINGS = "AUTOMEDEVAL_REWARD"  # the environment variable that names the YAML file


class JudgeReward:
    """Reward completions with a judge's expected scores, as TRL calls a reward function."""

    __name__ = "medical_judge"  # TRL logs rewards under this name

    def __init__(self, judge: BaseJudge):
        self.judge = judge

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        question: Sequence[Any] | None = None,
        reference: Sequence[str | None] | None = None,
        log_metric: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the reward of each completion; None, which TRL leaves out, where the judge's verdict is invalid.

        An empty completion, such as a thought without an end, has the lowest score of the scale; one that the judge cannot
        read, or whose last message is not the assistant's, has None. Prompts and completions are texts or conversations; those
        of one prompt stand together. The judge reads the `question`, by default the prompt, and, if it can, the `reference`;
        other columns of the data set are not read.
        """
        if question is None:
            question = [_question_of(prompt) for prompt in prompts]
        warn_of_references(self.judge, reference or ())
        texts = [_written(completion) for completion in completions]
        cases = cases_of(question, reference or [None] * len(texts), [text or "" for text in texts])
        values = defaultdict[tuple[str, int], list[float]](list)
        for verdict in self.judge(cases):
            for index, value in verdict.values.items():
                values[verdict.case_id, index].append(value)
        rewards: list[float | None] = []
        for case in cases:
            for index in range(len(case.responses)):
                given = values[case.id, index]
                is_read = texts[len(rewards)] is not None
                rewards.append(fmean(given) if given and is_read else None)
        if log_metric is not None and rewards:
            log_metric("judge/valid_rate", fmean(value is not None for value in rewards))
        return rewards


def _question_of(prompt: Any) -> Any:
    """Return what a prompt asks: its only message is its text. RecordError for a text in a chat template."""
    if not isinstance(prompt, str) and len(prompt) == 1:
        prompt = prompt[0]["content"]
    refuse_template(prompt, "a prompt", "a column 'question'")
    return prompt


def _written(completion: Any) -> str | None:
    """Return the text of a completion, None if the assistant did not write its last message."""
    try:
        return answer_text(completion, "completion")
    except RecordError:
        return None


def medical_judge(
    prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
) -> list[float | None]:
    """Reward completions by the judge of the YAML file that AUTOMEDEVAL_REWARD names; see `JudgeReward`."""
    return load_reward(os.environ.get(SETTINGS))(prompts, completions, **columns)


@cache
def load_reward(settings: str | None) -> JudgeReward:
    """Load the judge that a YAML file names, once in each process; None takes the defaults.

    RecordError for a fault of the file, and a judge that cannot be loaded or gives no scores.
    """
    from transformers.integrations import deepspeed  # loads torch, which the judges load too

    # the judge's weights are loaded whole, though ZeRO-3 splits those of the model that is trained
    reference = deepspeed._hf_deepspeed_config_weak_ref  # only its dict has a public name
    config = reference() if reference is not None else None
    deepspeed.unset_hf_deepspeed_config()
    try:
        return JudgeReward(load_by_settings({"config": settings}))
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)


def cases_of(
    questions: Sequence[Any], references: Sequence[str | None], completions: Sequence[str]
) -> list[Case]:
    """Return one case for each run of equal questions and references; its responses are the completions in their order.

    RecordError for a reference that is none.
    """
    cases = []
    groups = groupby(zip(questions, references, completions), key=lambda row: row[:2])
    for number, ((question, reference), rows) in enumerate(groups):
        if fault := fault_of_reference(reference):
            raise RecordError(fault)
        records = [
            {"model": f"completion-{at}", "text": text} for at, (*_, text) in enumerate(rows)
        ]
        responses = tuple(map(Response.from_dict, records))
        name = f"{digest([question, reference])}-{number}"
        cases.append(Case(name, question, responses, reference))
    return cases
