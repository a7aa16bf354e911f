"""What all judges have in common: cases in, verdicts out, one request's verdict at a time."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from automedeval.judges.requests import Request, selected_responses
from automedeval.records import Case, RecordError, Verdict

WINDOW = 512  # requests that are sorted by length and batched together


def shorten_longest(texts: list[str], over: int) -> int | None:
    """Cut the longest text, in place, by about `over` tokens, at most by half; return which, None if all are short."""
    slot = max(range(len(texts)), key=lambda index: len(texts[index]))
    text = texts[slot]
    if len(text) < 80:
        return None
    texts[slot] = text[: max(len(text) - 3 * over - 8, len(text) // 2)].rsplit(None, 1)[0] + " …"
    return slot


def refuse(requests: Sequence[Request], over: Sequence[int]) -> None:
    """Raise RecordError, naming the case, for the first request that is too long by some tokens."""
    for request, excess in zip(requests, over):
        if excess > 0:
            raise RecordError(
                f"case {request.case.id!r} is {excess} tokens too long for the context window "
                "(--on_overlong skip or clip goes on)"
            )


class BaseJudge(ABC):
    """A judge: it plans which requests a case takes, and judges them.

    `name`, `rubric_name` and `fingerprint` tell whose verdicts are whose; the fingerprint is over everything that changes one.
    `apart` says whether each response is judged by itself, so that neither order nor company can matter. `chat` is the model
    behind it, None where there is none.
    """

    name: str | None
    rubric_name: str
    fingerprint: str
    chat: Any
    apart = False

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Yield the verdicts of the cases, every request's one, in the order of the cases."""
        requests = (request for case in cases for request in self.plan(case))
        while window := list(itertools.islice(requests, WINDOW)):
            verdicts = dict(self.judge(window))
            yield from (verdicts[index] for index in sorted(verdicts))

    @abstractmethod
    def plan(self, case: Case) -> list[Request]:
        """Return the requests that this case takes."""

    @abstractmethod
    def judge(self, requests: Sequence[Request], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Verdict]]:
        """Judge one window of requests; yield (index, verdict) of the wanted ones, in any order."""

    @abstractmethod
    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return about how many prompt tokens requests take, and what judging them can cost at most."""

    @abstractmethod
    def refuse_overlong(self, requests: Sequence[Request]) -> None:
        """Raise RecordError, naming the case, if a request is to be refused for its length."""

    def origin(self, case: Case) -> dict[str, Any]:
        """Return what a verdict tells of its making: models, texts, settings, and the weights where a checkpoint has them."""
        checkpoint = getattr(self.chat, "checkpoint", None)
        made = {"models": case.models, "case_digest": case.digest, "settings": self.fingerprint}
        return made | ({"checkpoint": checkpoint} if checkpoint else {})

    @staticmethod
    def spread(slots: tuple[int, ...], values: Iterable, count: int) -> tuple:
        """Lay slots' values out over all responses of a case, None for those not shown."""
        spread = [None] * count
        for index, value in zip(slots, values):
            spread[index] = value
        return tuple(spread)


class ApartJudge(BaseJudge):
    """A judge that looks at each response by itself; `models` names those whose responses it judges, None all."""

    models: Sequence[str] | None
    apart = True

    def plan(self, case: Case) -> list[Request]:
        """Return the one request that shows all responses, each by itself."""
        return [Request(case, tuple(selected_responses(case, self.models)))]
