"""The base class of all judges: cases in, verdicts out."""

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from automedeval.judges.empty import put_empty_lowest
from automedeval.judges.requests import Request, plan_apart
from automedeval.models.base import Answer
from automedeval.records import Case, RecordError, Verdict
from automedeval.rubrics import Rubric

WINDOW = 512  # requests that are sorted by length and batched together
LEAST_SHARED = 16  # requests of the last windows that processes share


def windows_of(requests: Iterable[Request], sizes: Iterable[int] = ()) -> Iterator[list[Request]]:
    """Yield requests in windows of these sizes, and then of `WINDOW`; each is sorted and batched as a whole."""
    requests = iter(requests)
    for size in itertools.chain(sizes, itertools.repeat(WINDOW)):
        if not (window := list(itertools.islice(requests, size))):
            return
        yield window


def shared_sizes(total: int, processes: int) -> Iterator[int]:
    """Yield the sizes of the windows that processes take one after another, so that they end at nearly the same time.

    Each round of equal windows, one for each process, takes two thirds of what remains; small windows are last. The sizes
    depend on nothing else, so that a resumed run composes the same batches.
    """
    while total > 0 and processes > 1:
        size = min(WINDOW, max(LEAST_SHARED, math.ceil(total / (1.5 * processes))))
        yield from itertools.repeat(size, processes)
        total -= size * processes


def shorten_longest(texts: list[str], over: int) -> int | None:
    """Cut the longest text, in place, by about `over` tokens, at most by half; return its index, None if all are short.

    Blanks around a text go before any of its words. A word is cut in two only where it is long, as in languages that put no
    blanks between words.
    """
    slot = max(range(len(texts)), key=lambda index: len(texts[index]))
    text = texts[slot].strip()
    if text != texts[slot]:
        texts[slot] = text
        return slot
    if len(text) < 80:
        return None
    cut = text[: max(len(text) - 3 * over - 8, len(text) // 2)]
    texts[slot] = re.sub(r"\s\S{0,30}\Z", "", cut).rstrip() + " …"
    return slot


class BaseJudge(ABC):
    """Plan which requests a case takes, and judge them.

    Attributes:
        name, rubric_name: the `judge` and the `rubric` of the verdicts.
        wording: the rubric as it was read; None if the judge follows none.
        chat: the model, None where there is none.
        on_overlong: "error", "skip" or "clip", see `Judge`.
        apart: whether each response is judged by itself, so that other responses do not change its score.
        blind_to: the kinds of danger that a judge made like this one cannot see; None: not known. See `reports.facts`.
    """

    name: str | None
    rubric_name: str
    wording: Rubric | None = None
    chat: Any
    on_overlong = "error"
    apart = False
    blind_to: Sequence[str] | None = None

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Yield one verdict per request, in the order of the cases."""
        requests = (request for case in cases for request in self.plan(case))
        for window in windows_of(requests):
            verdicts = dict(self.judge(window))
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
    def gives_choices(self) -> bool:
        """Whether verdicts compare two responses by choices, or say which criteria are met; else they score each response."""
        return self.wording is not None and self.wording.scale is None

    @abstractmethod
    def plan(self, case: Case) -> list[Request]:
        """Return the requests that this case takes."""

    def prompt(self, request: Request, texts: Sequence[str] | None = None) -> Any:
        """Render a request; `texts`, in slot order, take the place of the case's responses.

        A judge without prompts reads the request itself.
        """
        return request

    def overflow(self, prompts: Sequence[Any]) -> list[int]:
        """Return for each prompt by how many tokens it exceeds the context window; 0 or less fits."""
        return [0] * len(prompts) if self.chat is None else self.chat.overflow(prompts)

    def answer(self, prompts: Sequence[Any], wanted: Sequence[bool]) -> Iterator[tuple[int, Any]]:
        """Answer one window of prompts that fit; yield (index, answer) of the wanted ones, in any order."""
        return self.chat.answer(prompts, wanted)

    @abstractmethod
    def verdict(self, request: Request, answer: Any, notes: dict[str, Any] | None = None) -> Verdict:
        """Return the verdict that an answer gives, in the case's order of responses; an `Answer` with an error is invalid."""

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return about how many prompt tokens the requests take, and the most that judging them can cost."""
        return 0, 0.0

    def judge(self, requests: Sequence[Request], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Verdict]]:
        """Judge one window of requests; yield (index, verdict) of the wanted ones as they come.

        A request that an endpoint did not answer gives an invalid verdict with the note `failed`.

        Raises:
            RecordError: a prompt is longer than the context window and `on_overlong` is "error".
            ChatError: the chat cannot go on.
        """
        wanted = [True] * len(requests) if wanted is None else wanted
        if not any(wanted):
            return
        prompts, sent = [self.prompt(request) for request in requests], []
        notes: list[dict[str, Any]] = [{} for _ in requests]
        for index, over in enumerate(self._refused_overflow(requests, prompts)):
            if over > 0 and self.on_overlong == "clip":
                prompts[index], over, clipped = self._clip(requests[index])
                notes[index] = {"clipped": clipped} if clipped else {}
            if over <= 0:
                sent.append(index)
            elif wanted[index]:
                error = f"the prompt is {over} tokens longer than the context window"
                yield index, self.verdict(requests[index], Answer(error=error))
        answers = self.answer([prompts[index] for index in sent], [wanted[index] for index in sent])
        for place, answer in answers:
            index = sent[place]
            if isinstance(answer, Answer) and answer.failed:
                notes[index]["failed"] = True
            yield index, self.verdict(requests[index], answer, notes[index])

    @property
    def overlong_setting(self) -> str:
        """Return `on_overlong` for a fingerprint: "error" for "skip" too, for the verdicts that there are do not differ."""
        return "clip" if self.on_overlong == "clip" else "error"

    @property
    def refuses_overlong(self) -> bool:
        """Whether a prompt can be too long for this judge to go on; an endpoint's window is not known."""
        return self.on_overlong == "error" and getattr(self.chat, "batched", False)

    def refuse_overlong(self, requests: Sequence[Request]) -> None:
        """Raise RecordError, naming the case, if `on_overlong` is "error" and a prompt exceeds the context window."""
        if self.refuses_overlong:
            self._refused_overflow(requests, [self.prompt(request) for request in requests])

    def _refused_overflow(self, requests: Sequence[Request], prompts: Sequence[Any]) -> list[int]:
        excess = self.overflow(prompts)
        for request, over in zip(requests, excess):
            if over > 0 and self.on_overlong == "error":
                too_long = f"case {request.case.id!r} is {over} tokens too long for the context window"
                raise RecordError(f"{too_long} (--on_overlong skip or clip continues)")
        return excess

    def _clip(self, request: Request) -> tuple[Any, int, list[str]]:
        """Shorten the longest response until the prompt fits or all are short; return it, its excess and whose were cut.

        Blanks around a response are left out first.
        """
        texts, clipped = [request.case.responses[index].text.strip() for index in request.slots], set()
        prompt = self.prompt(request, texts)
        (over,) = self.overflow([prompt])
        while over > 0 and (slot := shorten_longest(texts, over)) is not None:
            clipped.add(request.case.models[request.slots[slot]])
            prompt = self.prompt(request, texts)
            (over,) = self.overflow([prompt])
        return prompt, over, sorted(clipped)

    def record(self, request: Request, error: str | None, notes: dict[str, Any] | None, **values: Any) -> Verdict:
        """Return a verdict, invalid if there is an error, with its origin: models, digest of the case, settings, weights.

        Empty responses are put lowest, and named (see `judges.empty`); a judge of criteria does so itself.
        """
        case, checkpoint = request.case, getattr(self.chat, "checkpoint", None)
        made = {"models": case.models, "case_digest": request.digest, "settings": self.fingerprint}
        made |= {"checkpoint": checkpoint} if checkpoint else {}
        if empty := [case.models[index] for index in request.slots if case.responses[index].is_empty]:
            made["empty"] = empty
            if not request.checklist:
                error, values = put_empty_lowest(request, self.wording, error, values)
        if self.blind_to is not None:
            made["blind_to"] = list(self.blind_to)
        if left_out := getattr(self.chat, "left_out", None):
            made["left_out"] = list(left_out)
        return Verdict(
            case.id, *self.author, request.slots, request.pair, request.run, error is None, error,
            extra=made | (notes or {}), **values,
        )  # fmt: skip


class ApartJudge(BaseJudge):
    """A judge that looks at each response by itself; only the responses of `models` are judged, all if that is None."""

    models: Sequence[str] | None
    apart = True

    def plan(self, case: Case) -> list[Request]:
        return plan_apart(case, self.models)
