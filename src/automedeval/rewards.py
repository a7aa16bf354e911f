"""A judge as the reward of TRL's GRPOTrainer and RLOOTrainer.

    AUTOMEDEVAL_REWARD=reward.yaml trl grpo --reward_funcs automedeval.rewards.medical_judge …
    python recipes/grpo.py --reward reward.yaml --cases cases.jsonl …

The completions of one prompt are judged together, as the responses of one case. The YAML file names the judge, a second judge
that watches, and what `automedeval judge` takes to load and to ask a model.
"""

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from statistics import fmean, pstdev
from typing import Any

from scipy.stats import ttest_ind

from automedeval.cli import parse
from automedeval.judges.base import BaseJudge
from automedeval.judges.settings import JudgeSettings
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import Case, Response, digest

SETTINGS = "AUTOMEDEVAL_REWARD"  # the environment variable that names the YAML file
WINDOW = 20  # batches at the start and at the end whose means are compared
LEVEL = 0.05  # a mean has risen if a one-sided test says so at this level
logger = logging.getLogger(__name__)


@dataclass
class RewardArguments(JudgeSettings):
    """Which judge gives the rewards, and which one watches."""

    watch_judge: str | None = field(
        default=None,
        metadata={"help": "a second judge, which trains nothing: it is logged, and a line says if it does not follow"},
    )


class Watch:
    """Compare how the mean rewards of two judges rise over the batches.

    Args:
        window: number of batches at the start, and of the latest, that are compared.
    """

    def __init__(self, window: int):
        self.window = window
        self.means: list[tuple[float, float]] = []

    def add(self, reward: float, watched: float) -> str | None:
        """Add the means of one batch; after every `window` batches say whether only the reward has risen.

        A mean has risen if Welch's one-sided t-test of the latest batches against the first ones has p < 0.05.
        """
        self.means.append((reward, watched))
        if len(self.means) < 2 * self.window or len(self.means) % self.window:
            return None
        first, last = zip(*self.means[: self.window]), zip(*self.means[-self.window :])
        (risen, before, now), (followed, then, seen) = (self._rise(*each) for each in zip(first, last))
        if not risen or followed:
            return None
        return (
            f"after {len(self.means)} batches the reward has risen from {before:.3f} to {now:.3f}, and the judge that "
            f"watches has not: {then:.3f} and {seen:.3f}; the model may be learning to please the judge"
        )

    @staticmethod
    def _rise(first: Sequence[float], last: Sequence[float]) -> tuple[bool, float, float]:
        before, now = fmean(first), fmean(last)
        if len(set(first)) == len(set(last)) == 1:  # the test has no variance to compare with
            return now > before, before, now
        return bool(ttest_ind(last, first, equal_var=False, alternative="greater").pvalue < LEVEL), before, now


class JudgeReward:
    """Reward completions with a judge's expected scores, as TRL calls a reward function.

    Args:
        judge: gives the rewards.
        watch: judges the same completions, and trains nothing.
        window: see `Watch`.
    """

    __name__ = "medical_judge"  # TRL logs rewards under this name

    def __init__(self, judge: BaseJudge, watch: BaseJudge | None = None, window: int = WINDOW):
        self.judge, self.watch, self.history = judge, watch, Watch(window)

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

        An empty completion has the lowest score of the scale; one that the judge cannot read has None.

        Args:
            prompts: of each completion, a text or a conversation; those of one prompt stand together.
            completions: texts, or conversations that end with the assistant's message.
            question: what the judge reads as the question; by default the prompt.
            reference: the references of the prompts.
            log_metric: TRL's function that logs a figure by its name.
            columns: the other columns of the data set, which are not read.
        """
        questions = [asked(prompt) for prompt in prompts] if question is None else list(question)
        references = [None] * len(questions) if reference is None else list(reference)
        cases = cases_of(questions, references, [written(completion) for completion in completions])
        rewards = rewards_of(self.judge, cases)
        figures = {"judge/valid_rate": fmean(value is not None for value in rewards) if rewards else None}
        figures["judge/spread"] = spread(cases, rewards)
        if self.watch is not None:
            watched = rewards_of(self.watch, cases)
            both = [pair for pair in zip(rewards, watched) if None not in pair]
            figures["judge/watch_valid_rate"] = fmean(value is not None for value in watched) if watched else None
            if both:
                mean, seen = (fmean(values) for values in zip(*both))
                figures["judge/watch_reward"] = seen
                if note := self.history.add(mean, seen):
                    logger.warning(note)
        for name, value in figures.items():
            if log_metric is not None and value is not None:
                log_metric(name, value)
        return rewards


def medical_judge(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """Reward completions by the judge of the YAML file that AUTOMEDEVAL_REWARD names; see `JudgeReward`."""
    return load_reward(os.environ.get(SETTINGS))(prompts, completions, **columns)


async def medical_judge_async(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """Do as `medical_judge` beside other reward functions: for a judge behind an endpoint, which one waits for."""
    return await asyncio.to_thread(medical_judge, prompts, completions, **columns)


@cache
def load_reward(settings: str | None = None) -> JudgeReward:
    """Load the judges that a YAML file names, once in each process; None takes the defaults.

    Raises:
        RecordError: a fault of the file, or a judge that cannot be loaded or gives no scores.
    """
    given = ["--config", settings] if settings else []
    args, encoder, chat = parse((RewardArguments, EncoderArguments, ChatArguments), __doc__, given)

    with whole_weights():
        watch = args.load(chat, encoder, args.watch_judge) if args.watch_judge else None
        return JudgeReward(args.load(chat, encoder), watch)


@contextmanager
def whole_weights() -> Iterator[None]:
    """Load models whole within this context, though ZeRO-3 splits the weights of the one that is trained."""
    from transformers.integrations import deepspeed  # loads torch, which the judges load too

    held = deepspeed._hf_deepspeed_config_weak_ref  # only its dict has a public name
    config = held() if held is not None else None
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)


def cases_of(questions: Sequence[Any], references: Sequence[str | None], completions: Sequence[str]) -> list[Case]:
    """Return one case for each run of equal questions and references; its responses are the completions in their order."""
    cases = []
    numbered = groupby(range(len(completions)), key=lambda index: (questions[index], references[index]))
    for number, ((question, reference), indices) in enumerate(numbered):
        responses = tuple(Response(f"completion-{place}", completions[index]) for place, index in enumerate(indices))
        cases.append(Case(f"{digest([question, reference])}-{number}", question, responses, reference))
    return cases


def rewards_of(judge: BaseJudge, cases: Sequence[Case]) -> list[float | None]:
    """Return the mean of what the verdicts say of each response (`Verdict.value`), of all cases in turn; None: nothing."""
    found: dict[str, list[list[float]]] = {case.id: [[] for _ in case.responses] for case in cases}
    for verdict in judge(cases):
        for index, value in verdict.values.items():
            found[verdict.case_id][index].append(value)
    return [fmean(values) if values else None for case in cases for values in found[case.id]]


def spread(cases: Sequence[Case], rewards: Sequence[float | None]) -> float | None:
    """Return the mean standard deviation of a prompt's rewards: at 0 its completions teach nothing; None without two."""
    given, spreads = iter(rewards), []
    for case in cases:
        values = [value for _, value in zip(case.responses, given) if value is not None]
        spreads += [pstdev(values)] if len(values) > 1 else []
    return fmean(spreads) if spreads else None


def asked(prompt: Any) -> Any:
    """Return a prompt as a question: a text, or its conversation; the text alone if it is the only message."""
    if isinstance(prompt, str) or len(prompt) > 1:
        return prompt
    return prompt[0]["content"]


def written(completion: Any) -> str:
    """Return a completion as one text: of a conversation the last message."""
    return completion if isinstance(completion, str) else str(completion[-1].get("content") or "")
