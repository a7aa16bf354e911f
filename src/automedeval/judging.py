"""Judges: cases in, verdicts out.

A judge plans which prompts a case needs (orders, pairs, groups), renders them, lets a chat answer, and reads the answers
back into the case's own order of responses and its models' names. What chat that is does not matter here.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from automedeval.planning import Request, plan_requests, selected_responses
from automedeval.prompts import (
    Answer,
    Messages,
    Prompt,
    channel_fingerprint,
    channel_texts,
    judge_messages,
    likelihood_fingerprint,
    likelihood_texts,
)
from automedeval.records import Case, RecordError, Verdict
from automedeval.rubrics import LIKELIHOOD, Rubric, read_rubric
from automedeval.verdicts import Reading, answer_parts, answer_schema, parse_verdict, reading_from_values

if TYPE_CHECKING:
    from automedeval.chat import Chat  # its client is slow to import, and local judges do not need it

LIKELIHOODS = ("likelihood", "channel")  # kinds of judge that write nothing
DTYPES = {
    "channel": "float32"
}  # by default: the difference of two log-likelihoods that differ little drowns in bfloat16
WINDOW = 512  # requests that are sorted by length and batched together


def shorten_longest(texts: list[str], over: int) -> int | None:
    """Cut the longest text, in place, by about `over` tokens, at most by half; return which, None if all are short."""
    slot = max(range(len(texts)), key=lambda index: len(texts[index]))
    text = texts[slot]
    if len(text) < 80:
        return None
    texts[slot] = text[: max(len(text) - 3 * over - 8, len(text) // 2)].rsplit(None, 1)[0] + " …"
    return slot


def _refuse(requests: Sequence[Request], over: Sequence[int]) -> None:
    for request, excess in zip(requests, over):
        if excess > 0:
            raise RecordError(
                f"case {request.case.id!r} is {excess} tokens too long for the context window "
                "(--on_overlong skip or clip goes on)"
            )


def _origin(chat: Any, settings: str) -> dict[str, str]:
    """Return what a verdict tells of its making: the settings, and the weights where they are a checkpoint's."""
    checkpoint = getattr(chat, "checkpoint", None)
    return {"settings": settings} | ({"checkpoint": checkpoint} if checkpoint else {})


@dataclass
class Judge:
    """A chat that judges by a rubric.

    Args:
        chat: what answers the prompts.
        rubric: a `Rubric`, a packaged rubric's id or the path of a YAML file.
        rationale: False asks for scores or choices alone.
        score_decoding: "constrained" lays the answer down and lets only allowed values compete (chats that can), "free"
            parses what the model writes.
        orders, seed, runs, baseline, models: see `plan_requests`.
        on_overlong: what becomes of a prompt beyond the context window: "error" refuses it, "skip" records an invalid
            verdict, "clip" shortens the longest responses until it fits.
        name: what verdicts record as their judge; by default the chat's name.
    """

    chat: "Chat"
    rubric: Rubric | str = "automedeval"
    rationale: bool = True
    score_decoding: str = "constrained"
    orders: str = "1"
    seed: int = 0
    runs: int = 1
    baseline: str | None = None
    models: Sequence[str] | None = None
    on_overlong: str = "error"
    name: str | None = None

    apart = False  # responses stand side by side in a prompt

    def __post_init__(self) -> None:
        if isinstance(self.rubric, str):
            self.rubric = read_rubric(self.rubric)
        self.name = self.name or self.chat.name
        self.rubric_name = self.rubric.name
        self.rationale = self.rationale and self.rubric.rationale
        if not self.chat.constrains:
            self.score_decoding = "free"
        settings = [
            self.chat.fingerprint,
            self.rubric.fingerprint,
            self.rationale,
            self.score_decoding,
            self.on_overlong,
        ]
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    @classmethod
    def from_pretrained(
        cls, model: str, rubric: Rubric | str = "automedeval", *, chat: dict | None = None, **options: Any
    ):
        """Load a checkpoint, by folder or Hub id, as a judge; `likelihood:MODEL` and `channel:MODEL` give those judges.

        Args:
            chat: arguments of `LocalChat`, for instance {"max_new_tokens": 256}.
            options: arguments of `Judge`.
        """
        from automedeval.local_chat import LocalChat  # torch is loaded by those who need it

        kind, _, path = model.partition(":")
        if kind in LIKELIHOODS:
            rubric = rubric if kind == "channel" else None
            dtype = {"dtype": DTYPES[kind]} if kind in DTYPES else {}
            return LikelihoodJudge(LocalChat(path, **dtype | (chat or {})), rubric, **options)
        return cls(LocalChat(model, **(chat or {})), rubric, **options)

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Yield the verdicts of the cases, every request's one, in the order of the cases."""
        requests = (request for case in cases for request in self.plan(case))
        while window := list(itertools.islice(requests, WINDOW)):
            verdicts = dict(self.judge(window))
            yield from (verdicts[index] for index in sorted(verdicts))

    def plan(self, case: Case) -> list[Request]:
        """Return the requests that this case takes; see `plan_requests`."""
        return plan_requests(case, self.rubric, self.orders, self.seed, self.runs, self.baseline, self.models)

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return how many prompt tokens requests take, about, and what an endpoint could charge for them at most."""
        return self.chat.estimate([self.prompt(request) for request in requests])

    def prompt(self, request: Request, texts: Sequence[str] | None = None) -> Prompt:
        """Render a request, with other texts than the case's own if some are given (in slot order)."""
        case = request.case
        texts = [case.responses[index].text for index in request.slots] if texts is None else texts
        messages = judge_messages(self.rubric, case.question, texts, case.reference, self.rationale)
        parts = tuple(answer_parts(self.rubric, len(texts), self.rationale))
        return Prompt(
            messages,
            parts if self.score_decoding == "constrained" else None,
            answer_schema(parts),
            request.run,
            f"{self.rubric_name}:{self.rubric.fingerprint}",
        )

    def judge(self, requests: Sequence[Request], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Verdict]]:
        """Judge one window of requests; yield (index, verdict) as they come, for the wanted ones.

        Raises:
            RecordError: a prompt beyond the context window, unless `on_overlong` says otherwise.
            ChatError: the chat cannot go on.
        """
        wanted = [True] * len(requests) if wanted is None else wanted
        if not any(wanted):
            return
        prompts = [self.prompt(request) for request in requests]
        notes: list[dict[str, Any]] = [{} for _ in requests]
        sent = []
        for index, over in enumerate(self._overflow(requests, prompts)):
            problem = f"the prompt is {over} tokens longer than the context window" if over > 0 else None
            if problem and self.on_overlong == "clip":
                prompts[index], notes[index]["clipped"] = self._clip(requests[index], over)
                problem = None if prompts[index] else problem
            if problem:
                if wanted[index]:
                    yield index, self.verdict(requests[index], Answer(error=problem))
            else:
                sent.append(index)
        answers = self.chat.answer([prompts[index] for index in sent], [wanted[index] for index in sent])
        for place, answer in answers:
            index = sent[place]
            yield index, self.verdict(requests[index], answer, notes[index])

    def refuse_overlong(self, requests: Sequence[Request]) -> None:
        """Raise RecordError, naming the case, if `on_overlong` is "error" and a prompt exceeds the context window."""
        if self.on_overlong == "error" and self.chat.constrains:  # an endpoint alone knows its window
            self._overflow(requests, [self.prompt(request) for request in requests])

    def _overflow(self, requests: Sequence[Request], prompts: Sequence[Prompt]) -> list[int]:
        over = self.chat.overflow(prompts)
        if self.on_overlong == "error":
            _refuse(requests, over)
        return over

    def _clip(self, request: Request, over: int) -> tuple[Prompt | None, list[str]]:
        """Shorten the longest response, again and again, until the prompt fits; None if that leaves nothing to judge."""
        texts = [request.case.responses[index].text for index in request.slots]
        clipped = set()
        while over > 0:
            slot = shorten_longest(texts, over)
            if slot is None:
                return None, []
            clipped.add(request.case.models[request.slots[slot]])
            prompt = self.prompt(request, texts)
            (over,) = self.chat.overflow([prompt])
        return prompt, sorted(clipped)

    def verdict(self, request: Request, answer: Answer, notes: dict[str, Any] | None = None) -> Verdict:
        """Read an answer to a request, and turn slots into the case's responses and models."""
        slots, case = request.slots, request.case
        if answer.error:
            reading = Reading(False, answer.error)
        elif answer.values is not None:
            reading = reading_from_values(list(answer.values), self.rubric, answer.free or None)
        else:
            reading = parse_verdict(answer.text, self.rubric, len(slots), truncated=answer.truncated)
        scores = expected = choices = None
        extra: dict[str, Any] = {**_origin(self.chat, self.fingerprint), **(notes or {})}
        if answer.truncated:
            extra["truncated"] = True
        if answer.probabilities:
            extra["probabilities"] = [{word: round(p, 5) for word, p in odds.items()} for odds in answer.probabilities]
        if reading.scores:
            scores = self.spread(slots, reading.scores, len(case.responses))
            means = self._expected(answer, reading)
            expected = None if means is None else self.spread(slots, means, len(case.responses))
        if reading.choices:
            words = {"a": case.models[slots[0]], "b": case.models[slots[1]], "tie": "tie", "neither": "neither"}
            choices = {name: words[choice] for name, choice in reading.choices.items()}
        return Verdict(
            case_id=case.id,
            judge=self.name,
            rubric=self.rubric_name,
            order=slots,
            pair=request.pair,
            run=request.run,
            valid=reading.valid,
            error=reading.error,
            rationale=reading.rationale if reading.valid else None,
            scores=scores,
            expected_scores=expected,
            choices=choices,
            raw=answer.text,
            usage=answer.usage,
            extra={"models": case.models, "case_digest": case.digest, **extra},
        )

    @staticmethod
    def spread(slots: tuple[int, ...], values: Sequence, count: int) -> tuple:
        """Lay slots' values out over all responses of the case, None for those not shown."""
        spread = [None] * count
        for index, value in zip(slots, values):
            spread[index] = value
        return tuple(spread)

    def _expected(self, answer: Answer, reading: Reading) -> list[float] | None:
        """Return the probability-weighted mean score of each slot, where the chat gave probabilities for all of them."""
        odds = list(answer.probabilities or ())
        if not odds:
            low, high = self.rubric.scale
            allowed = {str(value) for value in range(low, high + 1)}
            competing = dict(answer.scored)
            for (start, _), score in zip(reading.spans, reading.scores):
                found = {word: p for word, p in competing.get(start, {}).items() if word in allowed}
                if str(score) not in found:  # no probabilities, or those of a number's first digit
                    return None
                odds.append(found)
        means = [sum(int(word) * p for word, p in one.items()) / sum(one.values()) for one in odds]
        return [round(mean, 6) for mean in means]


@dataclass
class LikelihoodJudge:
    """Scores a response by how likely it makes the question: the mean log-probability of the question's tokens given it.

    The idea of GPTScore (Fu et al. 2023) and BARTScore (Yuan et al. 2021), with any causal checkpoint. It sees relevance
    only: a wrong dose changes nothing. Scores are null; `expected_scores` are nats per token, without a scale.

    With a rubric it is the channel judge, for a checkpoint that recipes/channel_dataset.py's rows taught: what counts is how
    much likelier the question is behind a response that carries the best score than behind the same with the worst. Both
    log-probabilities stand in a verdict's `likelihoods`, by score, for recipes/calibrate.py.
    """

    chat: Any
    rubric: Rubric | str | None = None
    models: Sequence[str] | None = None
    on_overlong: str = "error"
    name: str | None = None

    apart = True

    def __post_init__(self) -> None:
        self.rubric = read_rubric(self.rubric) if isinstance(self.rubric, str) else self.rubric
        if self.rubric and not self.rubric.scale:
            raise RecordError(f"the channel judge reads a scale, and the rubric {self.rubric.name} gives choices")
        self.name = self.name or f"{'channel' if self.rubric else 'likelihood'}:{self.chat.name}"
        self.rubric_name = LIKELIHOOD
        wording = [channel_fingerprint(), self.rubric.fingerprint] if self.rubric else [likelihood_fingerprint()]
        settings = [self.chat.fingerprint, *wording, self.on_overlong]
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Yield one verdict per case, in the order of the cases."""
        yield from Judge.__call__(self, cases)

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return how many tokens the requests take, and no cost."""
        pairs = [pair for request in requests for pair in self._pairs(request)]
        return sum(over + self.chat.window for over in self.chat.overflow_pairs(pairs)), 0.0

    def refuse_overlong(self, requests: Sequence[Request]) -> None:
        """Raise RecordError, naming the case, if `on_overlong` is "error" and a response exceeds the context window."""
        if self.on_overlong == "error":
            for request in requests:
                _refuse([request], [max(self.chat.overflow_pairs(self._pairs(request)))])

    def _pairs(self, request: Request, texts: Sequence[str] | None = None) -> list[tuple[str | Messages, str]]:
        """Return (condition, target) of every response; with a rubric two each, the worst score first."""
        case = request.case
        texts = [case.responses[slot].text for slot in request.slots] if texts is None else texts
        if self.rubric is None:
            return [likelihood_texts(case.question, text) for text in texts]
        return [channel_texts(self.rubric, case.question, text, score) for text in texts for score in self.rubric.scale]

    def plan(self, case: Case) -> list[Request]:
        """Return the one request that shows all responses, each by itself."""
        return [Request(case, tuple(selected_responses(case, self.models)))]

    def judge(self, requests: Sequence[Request], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Verdict]]:
        """Judge one window of requests; yield (index, verdict) of the wanted ones as their last response is done.

        Raises:
            RecordError: a response beyond the context window, unless `on_overlong` says otherwise.
        """
        wanted = [True] * len(requests) if wanted is None else wanted
        if not any(wanted):
            return
        notes: list[dict[str, Any]] = [{} for _ in requests]
        owners, pairs = [], []
        for index, request in enumerate(requests):
            texts = [request.case.responses[slot].text for slot in request.slots]
            own = self._pairs(request)
            over = max(self.chat.overflow_pairs(own))
            if self.on_overlong == "error":
                _refuse([request], [over])
            clipped = set()
            while over > 0 and self.on_overlong == "clip" and (slot := shorten_longest(texts, over)) is not None:
                clipped.add(request.case.models[request.slots[slot]])
                own = self._pairs(request, texts)
                over = max(self.chat.overflow_pairs(own))
            if clipped:
                notes[index]["clipped"] = sorted(clipped)
            if over > 0:
                if wanted[index]:
                    yield index, self.verdict(request, None, {}, f"{over} tokens longer than the context window allows")
                continue
            owners += [index] * len(own)
            pairs += own
        awaited, first = Counter(owners), {owner: place for place, owner in reversed(list(enumerate(owners)))}
        found: dict[int, dict[int, float]] = {}
        for place, value in self.chat.likelihoods(pairs, [wanted[owner] for owner in owners]):
            owner = owners[place]
            values = found.setdefault(owner, {})
            values[place - first[owner]] = value
            if len(values) == awaited[owner]:
                del found[owner]
                yield (
                    owner,
                    self.verdict(requests[owner], [values[slot] for slot in sorted(values)], notes[owner], None),
                )

    def verdict(
        self, request: Request, values: list[float] | None, notes: dict[str, Any], error: str | None
    ) -> Verdict:
        """Return the verdict that log-probabilities, in the order of `_pairs`, are; None and an error for an invalid one."""
        case = request.case
        if values is not None and not all(abs(value) < float("inf") for value in values):
            values, error = None, "a likelihood is not finite"

        def spread(some: Iterable[float]) -> tuple:
            return Judge.spread(request.slots, [round(value, 6) for value in some], len(case.responses))

        expected, notes = None, dict(notes)
        if values is not None and self.rubric:
            worst, best = values[::2], values[1::2]
            expected = spread(high - low for low, high in zip(worst, best))
            notes["likelihoods"] = dict(zip(map(str, self.rubric.scale), (list(spread(worst)), list(spread(best)))))
        elif values is not None:
            expected = spread(values)
        return Verdict(
            case_id=case.id,
            judge=self.name,
            rubric=self.rubric_name,
            order=request.slots,
            valid=values is not None,
            error=error,
            expected_scores=expected,
            extra={"models": case.models, "case_digest": case.digest, **_origin(self.chat, self.fingerprint), **notes},
        )
