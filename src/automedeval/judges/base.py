"""The base class of all judges: cases in, verdicts out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from automedeval.evidence.run import Evidence, marked_numbers, passages_beside, reference_of
from automedeval.judges.empty import put_empty_lowest
from automedeval.judges.requests import Request, plan_apart
from automedeval.models.base import Answer, NoChat, Results
from automedeval.records import Case, JsonObject, Verdict, question_text
from automedeval.records.types import by_response
from automedeval.rubrics import Rubric
from automedeval.rubrics.questions import Search

WINDOW = 512  # requests that are sorted by length and batched together


def windows_of(values: Iterable[Any], size: int = WINDOW) -> Iterator[list]:
    """Yield values, such as requests, in windows of so many; the last one may have fewer."""
    values = iter(values)
    while window := list(islice(values, size)):
        yield window


class BaseJudge(ABC):
    """Plan which requests a case takes, and judge them.

    Attributes:
        name, rubric_name: the `judge` and the `rubric` of the verdicts.
        wording, chat: the rubric as it was read, None where there is none, and the model.
        search: finds the passages of books that it reads, None without books.
        apart: whether each response is judged by itself, so that other responses do not change its score.
        score_decoding: how scores are taken from what the model says; None where it says nothing.
        blind_to: the kinds of danger that a judge made like this one cannot see; None: not known.
        gives: the name of its scores, if they have a scale.
    """

    name: str | None
    rubric_name: str
    wording: Rubric | None = None
    chat: Any = NoChat()
    search: Search | None = None
    apart = False
    score_decoding: str | None = None
    blind_to: tuple[str, ...] | None = None
    gives = "scores"

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Yield one verdict per request, in the order of the cases."""
        requests = chain.from_iterable(map(self.plan, cases))
        for window in windows_of(requests, self.window):
            verdicts = dict(self.judge(window, [True] * len(window)))
            yield from (verdicts[index] for index in sorted(verdicts))

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits over everything that changes a verdict."""

    @property
    def author(self) -> tuple[str, str]:
        """The judge and the rubric that verdicts record (`Verdict.author`)."""
        return self.name or "", self.rubric_name

    @property
    def window(self) -> int:
        """How many requests are answered together, see `judge`."""
        return WINDOW

    @property
    def reads_reference(self) -> bool:
        """Whether the reference of a case can change a verdict."""
        return self.wording is not None and self.wording.needs_reference

    @abstractmethod
    def plan(self, case: Case) -> list[Request]:
        """Return the requests that this case takes."""

    def prompt(self, request: Request) -> Any:
        """Return what `answer` takes for a request: its prompt; the request itself by a judge that renders none."""
        return request

    def estimate(self, requests: Sequence[Request]) -> int:
        """Return about how many prompt tokens the requests take."""
        return 0

    @abstractmethod
    def answer(self, prompts: Sequence[Any], wanted: Sequence[bool]) -> Results:
        """Answer one window of prompts; yield (index, answer) of the wanted ones, in any order.

        One that exceeds the context window has an `Answer` that is `overlong`.
        """

    @abstractmethod
    def verdict(self, request: Request, answer: Any) -> Verdict:
        """Return the verdict that an answer gives, in the case's order of responses."""

    def judge(
        self, requests: Sequence[Request], wanted: Sequence[bool]
    ) -> Iterator[tuple[int, Verdict]]:
        """Judge one window of requests; yield (index, verdict) of the wanted ones as they come.

        Without an answer a verdict is invalid, and `failed` or, if the prompt is too long, `overlong`. ChatError if the chat
        cannot go on.
        """
        if not any(wanted):
            return
        prompts = [self.prompt(request) for request in requests]
        for index, answer in self.answer(prompts, wanted):
            if isinstance(answer, Answer) and (answer.failed or answer.overlong):
                yield index, self.record(
                    requests[index], answer.error, raw=answer.text, usage=answer.usage,
                    truncated=answer.truncated, overlong=answer.overlong, failed=answer.failed,
                )  # fmt: skip
            else:
                yield index, self.verdict(requests[index], answer)

    def passages_on(self, request: Request, index: int) -> list[Evidence]:
        """Return the passages of books beside which the numbers of a response are compared."""
        assert self.search is not None
        return passages_beside(request.case.responses[index].text, self.search)

    def _differing(self, request: Request) -> dict[str, list[JsonObject]]:
        """Return model → the numbers that differ from the reference and the books, of the responses that could be compared."""
        case = request.case
        question = question_text(case.question)
        reference = reference_of(case)
        marks_of = {}
        for index in request.slots:
            text = case.responses[index].text
            passages = self.passages_on(request, index)
            marks, unread = marked_numbers(question, text, reference, passages)
            if unread is None:
                marks_of[case.models[index]] = marks
        return marks_of

    def record(self, request: Request, error: str | None, **values: Any) -> Verdict:
        """Return a verdict, invalid if there is an error, with its origin; empty responses are named, and put lowest."""
        case = request.case
        if request.empty and not request.checklist:
            error, values = put_empty_lowest(request, self.wording, error, values, self.gives)
        if self.search is not None:
            values["differs"] = self._differing(request)
        rows = {case.row_of(index) for index in range(len(case.responses))}
        if rows != {None}:  # of a table
            values["question"] = question_text(case.question)
            values["row"] = rows.pop() if len(rows) == 1 else None
        return Verdict(
            case.id, *self.author, request.slots, request.pair, request.run, error is None, error,
            models=tuple(case.models), case_digest=request.digest, settings=self.fingerprint,
            checkpoint=self.chat.checkpoint, left_out=tuple(self.chat.left_out),
            empty=tuple(case.models[index] for index in request.empty), blind_to=self.blind_to,
            **values,
        )  # fmt: skip


class ApartJudge(BaseJudge):
    """A judge that looks at each response by itself."""

    apart = True
    gives = "expected_scores"

    def plan(self, case: Case) -> list[Request]:
        return plan_apart(case)

    def scored(
        self, request: Request, values: Iterable[float], error: str | None, **more: Any
    ) -> Verdict:
        """Return the verdict of a number for each response that is shown; with the error, if any, where none is finite."""
        finite = [round(float(value), 6) if math.isfinite(value) else None for value in values]
        if error and all(value is None for value in finite):
            return self.record(request, error)
        expected = by_response(finite, request.slots, len(request.case.responses))
        return self.record(request, None, expected_scores=expected, **more)

    @staticmethod
    def by_case(values: np.ndarray, cases: Iterable[Case]) -> list[np.ndarray]:
        """Split what is known of the responses of all cases, [responses, …], into that of each case."""
        return np.split(values, np.cumsum([len(case.responses) for case in cases])[:-1])
