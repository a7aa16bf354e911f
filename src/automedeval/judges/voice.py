"""The voice of a language model beside the small judge: of each response by itself, whether it answers the question.

Its wording was chosen by measurement; the question stands behind the response, in which it is asked. Beside a reference the
small judge is better alone, as was measured: the model is asked about cases without one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from automedeval.judges.features import newest
from automedeval.models.base import Answer, Chat, Prompt, answer_fitting, answer_groups
from automedeval.models.questions import Judgement, read_questions
from automedeval.records import Case, digest

QUESTION = read_questions("judges")["answered"]
MOST = 6.0  # nats: no response counts as surer
NO_ODDS = Judgement(error="the model tells no probabilities")


@dataclass(frozen=True)
class Voice:
    """A chat, and what its log-odds are worth: less `mean`, they count `weight` times as much as the small judge's."""

    chat: Chat
    weight: float
    mean: float

    @property
    def fingerprint(self) -> str:
        """Return a digest of everything that changes the voice."""
        wording = [QUESTION.name, QUESTION.wording, QUESTION.options]
        return digest(
            [self.chat.fingerprint, wording, self.weight, self.mean, MOST, "without a reference"]
        )

    def prompts(self, case: Case) -> list[Prompt]:
        """Return the question on each response; nothing of a case with a reference."""
        if case.reference:
            return []
        asked = newest(case.question)
        return [
            QUESTION.prompt({"answer": each.text, "question": asked}) for each in case.responses
        ]

    def ask(
        self, cases: Sequence[Case], wanted: Sequence[bool]
    ) -> Iterator[tuple[int, list[Judgement] | Answer]]:
        """Yield (index, what the chat says of each response) of the wanted cases; an answer that failed stands for all.

        Of a case with a reference it says nothing: the list is empty.
        """
        prompts = [self.prompts(case) for case in cases]
        yield from ((at, []) for at, want in enumerate(wanted) if want and not prompts[at])
        ask = partial(answer_fitting, overflow=self.chat.overflow, answer=self.chat.answer)
        for at, answers in answer_groups(prompts, wanted, ask, self.chat.batched):
            said = [QUESTION.read(each) for each in answers]
            failed = next((each for each in answers if each.failed), None)
            yield (
                at,
                failed or [each if each.probabilities or each.error else NO_ODDS for each in said],
            )

    def add(self, shares: np.ndarray, said: Sequence[Judgement]) -> np.ndarray:
        """Return the small judge's shares of the scale with the voice; NaN where it says nothing."""
        voice = self.weight * (np.array([log_odds(each) for each in said]) - self.mean)
        return 1 / (1 + (1 - shares) / shares * np.exp(-voice))


def log_odds(said: Judgement) -> float:
    """Return the logarithm of the odds of yes against no, NaN without probabilities."""
    if not said.probabilities:
        return np.nan
    yes, no = (max(said.probabilities[each], 1e-9) for each in QUESTION.options)
    return float(np.clip(np.log(yes / no), -MOST, MOST))
