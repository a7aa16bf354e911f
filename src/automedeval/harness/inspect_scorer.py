"""The scorer `automedeval/judge` of inspect_ai, which finds it by the entry point of this package.

inspect score LOG --scorer automedeval/judge -S judge=openai:MODEL -S base_url=http://localhost:8000/v1
"""

from typing import Any

import anyio
from inspect_ai.model import ChatMessage
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from automedeval.harness.logs import Answer, Question, question_in, reference_of
from automedeval.harness.scoring import score_answers
from automedeval.harness.writing import FAILED
from automedeval.judges.settings import load_by_settings


class Together:
    """Judge in one call all answers that wait: at first those of all samples, then those that came in meanwhile."""

    def __init__(self, settings: dict[str, Any]):
        self.settings, self.judge, self.lock = settings, None, anyio.Lock()
        self.waiting: dict[object, Answer] = {}
        self.done: dict[object, dict[str, Any]] = {}

    async def score(self, answer: Answer) -> dict[str, Any]:
        """Return the score of an answer, see `score_answers`."""
        ticket = object()
        self.waiting[ticket] = answer
        async with self.lock:  # it lets the other samples run before it is held, so that they wait too
            if ticket not in self.done:
                taken = dict(self.waiting)
                self.done |= zip(taken, await anyio.to_thread.run_sync(self._judge, list(taken.values())))
                for each in taken:
                    del self.waiting[each]
        return self.done.pop(ticket)

    def _judge(self, answers: list[Answer]) -> list[dict[str, Any]]:
        self.judge = self.judge or load_by_settings(self.settings)
        return score_answers(self.judge, answers)


@scorer(metrics=[mean(), stderr()])
def judge(question_pattern: str | None = None, **settings: Any) -> Scorer:
    """Score a sample's answer with a judge; a sample without a valid verdict is unscored.

    Args:
        question_pattern: a regular expression whose first group is the question in the prompt; see `LogArguments`.
        settings: of the judge, see `load_by_settings`.
    """
    together = Together(settings)

    async def score(state: TaskState, target: Target) -> Score:
        if not state.output.choices:
            return Score.unscored(reason="no_response")
        question = question_in(_asked(state.input), question_pattern)
        if question is None:
            return Score.unscored(reason="scoring_failed", explanation="the prompt does not fit question_pattern")
        text = state.output.completion
        answer = Answer(str(state.sample_id), question, text, reference_of(list(target)), state.epoch)
        found = await together.score(answer)
        explanation = found["explanation"]
        if not found["valid"]:
            return Score.unscored(reason=FAILED, answer=text, explanation=explanation)
        return Score(value=found["value"], answer=text, explanation=explanation)

    return score


def _asked(given: str | list[ChatMessage]) -> Question:
    return given if isinstance(given, str) else [{"role": each.role, "content": each.text} for each in given]
