"""Judges: cases in, verdicts out.

A judge plans which prompts a case needs (orders, pairs, groups), renders them, lets a chat answer, and reads the answers
back into the case's own order of responses and its models' names. What chat that is does not matter here.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.judges.base import BaseJudge, refuse, shorten_longest
from automedeval.judges.likelihood import DTYPES, LIKELIHOODS, LikelihoodJudge
from automedeval.judges.requests import Request, plan_requests
from automedeval.models.base import Answer, Chat, Prompt
from automedeval.records import Case, Verdict
from automedeval.rubrics import Rubric, read_rubric
from automedeval.rubrics.grammar import Reading, answer_parts, answer_schema, parse_verdict, reading_from_values
from automedeval.rubrics.prompts import judge_messages


@dataclass
class Judge(BaseJudge):
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

    chat: Chat
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
        from automedeval.models.local import LocalChat  # torch is loaded by those who need it

        kind, _, path = model.partition(":")
        if kind in LIKELIHOODS:
            rubric = rubric if kind == "channel" else None
            dtype = {"dtype": DTYPES[kind]} if kind in DTYPES else {}
            return LikelihoodJudge(LocalChat(path, **dtype | (chat or {})), rubric, **options)
        return cls(LocalChat(model, **(chat or {})), rubric, **options)

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
            refuse(requests, over)
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
        extra: dict[str, Any] = {**self.origin(case), **(notes or {})}
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
            extra=extra,
        )

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
