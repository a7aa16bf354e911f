"""Judges that write nothing: by how likely a response makes the question, or a score on it."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.judges.base import ApartJudge, refuse, shorten_longest
from automedeval.judges.requests import Request
from automedeval.models.base import Messages
from automedeval.records import RecordError, Verdict
from automedeval.rubrics import LIKELIHOOD, Rubric, read_rubric
from automedeval.rubrics.prompts import channel_fingerprint, channel_texts, likelihood_fingerprint, likelihood_texts

LIKELIHOODS = ("likelihood", "channel")
# By default: the difference of two log-likelihoods that differ little drowns in bfloat16.
DTYPES = {"channel": "float32"}


@dataclass
class LikelihoodJudge(ApartJudge):
    """Scores a response by how likely it makes the question: the mean log-probability of the question's tokens given it.

    The idea of GPTScore (Fu et al. 2023) and BARTScore (Yuan et al. 2021), with any causal checkpoint. It sees relevance
    only: a wrong dose changes nothing. Scores are null; `expected_scores` are nats per token, without a scale.

    With a rubric it is the channel judge, for a checkpoint that was trained on the rows of recipes/build_channel_dataset.py. A
    response's expected score is how much likelier its question is after the response with the best score than after the same
    response with the worst. Both log-probabilities stand in a verdict's `likelihoods`, by score, for recipes/calibrate.py.
    """

    chat: Any
    rubric: Rubric | str | None = None
    models: Sequence[str] | None = None
    on_overlong: str = "error"
    name: str | None = None

    def __post_init__(self) -> None:
        self.rubric = read_rubric(self.rubric) if isinstance(self.rubric, str) else self.rubric
        if self.rubric and not self.rubric.scale:
            raise RecordError(f"the channel judge reads a scale, and the rubric {self.rubric.name} gives choices")
        self.name = self.name or f"{'channel' if self.rubric else 'likelihood'}:{self.chat.name}"
        self.rubric_name = LIKELIHOOD
        wording = [channel_fingerprint(), self.rubric.fingerprint] if self.rubric else [likelihood_fingerprint()]
        settings = [self.chat.fingerprint, *wording, self.on_overlong]
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return how many tokens the requests take, and no cost."""
        pairs = [pair for request in requests for pair in self._pairs(request)]
        return sum(over + self.chat.window for over in self.chat.overflow_pairs(pairs)), 0.0

    def refuse_overlong(self, requests: Sequence[Request]) -> None:
        """Raise RecordError, naming the case, if `on_overlong` is "error" and a response exceeds the context window."""
        if self.on_overlong == "error":
            for request in requests:
                refuse([request], [max(self.chat.overflow_pairs(self._pairs(request)))])

    def _pairs(self, request: Request, texts: Sequence[str] | None = None) -> list[tuple[str | Messages, str]]:
        """Return (condition, target) of every response; with a rubric two each, the worst score first."""
        case = request.case
        texts = [case.responses[slot].text for slot in request.slots] if texts is None else texts
        if self.rubric is None:
            return [likelihood_texts(case.question, text) for text in texts]
        return [channel_texts(self.rubric, case.question, text, score) for text in texts for score in self.rubric.scale]

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
                refuse([request], [over])
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
            return self.spread(request.slots, [round(value, 6) for value in some], len(case.responses))

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
            extra=self.origin(case) | notes,
        )
