"""Judges that ask a model by prompts: what they share in answering windows of prompts."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from automedeval.judges.base import BaseJudge
from automedeval.judges.requests import Request
from automedeval.models.base import Answer
from automedeval.records import Verdict


class PromptJudge(BaseJudge):
    """A judge that asks `chat` by prompts; one that is longer than the context window makes an invalid verdict."""

    @abstractmethod
    def prompt(self, request: Request) -> Any:
        """Render a request."""

    @abstractmethod
    def estimate(self, requests: Sequence[Request]) -> int:
        """Return about how many prompt tokens the requests take."""

    def overflow(self, prompts: Sequence[Any]) -> list[int]:
        """Return for each prompt by how many tokens it exceeds the context window; 0 or less fits."""
        return self.chat.overflow(prompts)

    def answer(self, prompts: Sequence[Any], wanted: Sequence[bool]) -> Iterator[tuple[int, Any]]:
        """Answer one window of prompts that fit; yield (index, answer) of the wanted ones, in any order."""
        return self.chat.answer(prompts, wanted)

    def judge(self, requests: Sequence[Request], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Verdict]]:
        """Judge one window of requests; yield (index, verdict) of the wanted ones as they come.

        A request that an endpoint did not answer gives an invalid verdict with the note `failed`, one with a prompt that is too
        long one with the note `overlong`. ChatError if the chat cannot go on.
        """
        wanted = [True] * len(requests) if wanted is None else wanted
        if not any(wanted):
            return
        prompts, sent = [self.prompt(request) for request in requests], []
        notes: list[dict[str, Any]] = [{} for _ in requests]
        for index, over in enumerate(self.overflow(prompts)):
            if over <= 0:
                sent.append(index)
            elif wanted[index]:
                error = f"the prompt is {over} tokens longer than the context window"
                yield index, self.verdict(requests[index], Answer(error=error), {"overlong": True})
        answers = self.answer([prompts[index] for index in sent], [wanted[index] for index in sent])
        for place, answer in answers:
            index = sent[place]
            if isinstance(answer, Answer):
                notes[index] |= {name: True for name in ("failed", "overlong") if getattr(answer, name)}
            yield index, self.verdict(requests[index], answer, notes[index])
