"""Judge by log-likelihoods: how likely a response makes the question. Nothing is generated."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from automedeval.judges.base import ApartJudge
from automedeval.judges.requests import Request
from automedeval.models.base import Answer, Results, answer_groups
from automedeval.records import UNSEEN, Verdict, digest
from automedeval.rubrics import LIKELIHOOD
from automedeval.rubrics.prompts import likelihood_texts, template_fingerprint


@dataclass
class LikelihoodJudge(ApartJudge):
    """Scores a response by how likely it makes the question: the mean log-probability of the question's tokens given it.

    The idea of GPTScore (Fu et al. 2023) and BARTScore (Yuan et al. 2021), with any causal checkpoint. It sees relevance
    only: a wrong dose changes nothing. Scores are null; `expected_scores` are nats per token, without a scale.
    """

    chat: Any
    name: str | None = None

    rubric_name = LIKELIHOOD
    blind_to = UNSEEN

    def __post_init__(self) -> None:
        self.name = self.name or f"likelihood:{self.chat.name}"

    @property
    def fingerprint(self) -> str:
        return digest([self.chat.fingerprint, template_fingerprint("likelihood"), "error"])

    def estimate(self, requests: Sequence[Request]) -> int:
        pairs = self.chat.encoder.encode_pairs([*chain.from_iterable(map(self.prompt, requests))])
        return sum(len(condition) + len(target) for condition, target in pairs)

    def prompt(self, request: Request) -> list[tuple[str, str]]:
        """Return (condition, target) of every response."""
        case = request.case
        return [likelihood_texts(case.question, text) for text in case.texts(request.slots)]

    def answer(self, prompts: Sequence[Any], wanted: Sequence[bool]) -> Results:
        """Yield (index, log-probabilities in the order of its pairs) of the wanted requests."""
        for index, group in answer_groups(prompts, wanted, self.chat.likelihoods):
            yield index, next((value for value in group if isinstance(value, Answer)), group)

    def verdict(self, request: Request, answer: list[float]) -> Verdict:
        """Return the verdict of log-probabilities in the order of `prompt`."""
        return self.scored(request, answer, "no likelihood is finite")
