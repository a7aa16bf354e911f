"""The scorer `automedeval/judge` of inspect_ai, which finds it by the entry point of this package.

inspect score LOG --scorer automedeval/judge -S judge=openai:MODEL -S base_url=http://localhost:8000/v1
"""

from collections.abc import Sequence
from typing import Any

import anyio
from inspect_ai.log import transcript
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from automedeval.harness.logs import MULTIPLE_CHOICE, NO_FIT
from automedeval.harness.questions import (
    question_expression,
    question_in,
    question_of,
    reference_of,
)
from automedeval.harness.scoring import score_answers
from automedeval.judges.base import BaseJudge
from automedeval.judges.judge import load_by_settings
from automedeval.records import Case, JsonObject, Response
from automedeval.records.tables.columns import is_choice


class Together:
    """Judge in one call all answers that wait: at first those of all samples, then those that came in meanwhile."""

    def __init__(self, settings: JsonObject):
        self.settings = settings
        self.lock = anyio.Lock()
        self.judge: BaseJudge | None = None
        # Answers; once they are judged, the score of each, or what was raised.
        self.waiting: list[Any] = []

    async def score(self, answer: Case) -> JsonObject:
        """Return the score of an answer, see `score_answers`."""
        batch = self.waiting
        place = len(batch)
        batch.append(answer)
        async with self.lock:  # before it is held, the other samples run, so that they wait too
            if batch is self.waiting:
                self.waiting = []
                # The others wait for it, even if this sample is cancelled.
                with anyio.CancelScope(shield=True):
                    batch[:] = await anyio.to_thread.run_sync(self._judge, batch)
        if isinstance(batch[place], Exception):
            raise batch[place]
        return batch[place]

    def _judge(self, answers: list[Case]) -> Sequence[JsonObject | Exception]:
        try:
            self.judge = self.judge or load_by_settings(self.settings)
            return score_answers(self.judge, answers)
        except Exception as error:  # noqa: BLE001 - it is raised for each of the samples
            return [error] * len(answers)


@scorer(metrics=[mean(), stderr()])
def judge(question_pattern: str | None = None, **settings: Any) -> Scorer:
    """Score a sample's answer with the judge of `load_by_settings`; a sample without a valid verdict is unscored.

    So is one that ended with an error or was cancelled. The first group of `question_pattern`, a
    regular expression, is the question in the prompt; see `LogArguments`.
    """
    question_expression(question_pattern)
    together = Together(settings)

    async def score(state: TaskState, target: Target) -> Score:
        text = state.output.completion
        has_failed = any(event.event == "error" for event in transcript().events)
        if has_failed or not (state.output.choices or text):
            return Score.unscored(reason="no_response")
        reference = reference_of(list(target))
        if len(state.choices) or is_choice(reference):
            return Score.unscored(reason="scoring_failed", explanation=MULTIPLE_CHOICE)
        prompt = state.input
        if not isinstance(prompt, str):
            prompt = [message.model_dump() for message in prompt]
        question = question_in(question_of(prompt, "input"), question_pattern)
        if question is None:
            return Score.unscored(reason="scoring_failed", explanation=NO_FIT)
        name = f"{state.sample_id}/epoch-{state.epoch}" if state.epoch > 1 else str(state.sample_id)
        answer = Response.from_dict({"model": "answer", "text": text})
        scored = await together.score(Case(name, question, (answer,), reference))
        counts = {"verdicts": scored["verdicts"], "valid": scored["valid"]}
        facts = {"answer": text, "explanation": scored["explanation"], "metadata": counts}
        if not scored["valid"]:
            return Score.unscored(reason="grader_failed", **facts)
        return Score(value=scored["value"], **facts)

    return score
