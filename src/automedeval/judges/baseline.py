"""Use lexical baselines as judges, so that they can be audited, calibrated and compared like any judge."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from automedeval.judges.base import ApartJudge
from automedeval.judges.requests import Request
from automedeval.metrics.lexical import BASELINES, Collection, bm25
from automedeval.records import RecordError, Verdict, digest
from automedeval.rubrics import COUNTED
from automedeval.rubrics.slots import by_response


@dataclass
class BaselineJudge(ApartJudge):
    """Score every response by itself with a lexical baseline: `expected_scores` without a scale, and no model.

    Args:
        baseline: one of `metrics.lexical.BASELINES`.
        collection: the word frequencies of BM25; None takes those of the cases that are judged together.
        models: only these models' responses are judged.
        name: what verdicts record as their judge.

    Raises:
        RecordError: there is no such baseline.
    """

    baseline: str
    collection: Collection | None = None
    models: Sequence[str] | None = None
    name: str | None = None

    rubric_name = COUNTED
    chat = None

    def __post_init__(self) -> None:
        if self.baseline not in BASELINES:
            raise RecordError(f"no baseline {self.baseline!r}; there are {', '.join(BASELINES)}")
        self.name = self.name or f"baseline:{self.baseline}"
        self._score, settings = BASELINES[self.baseline], [self.baseline]
        if self._score is bm25 and self.collection is not None:
            self._score = partial(bm25, collection=self.collection)
            settings.append(self.collection.fingerprint)
        self.fingerprint = digest(settings)

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        return 0, 0.0

    def prompt(self, request: Request, texts: Sequence[str] | None = None) -> Request:
        return request  # a baseline reads the case

    def overflow(self, prompts: Sequence[Request]) -> list[int]:
        return [0] * len(prompts)

    def answer(self, prompts: Sequence[Request], wanted: Sequence[bool]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (index, scores of all responses) of the wanted requests."""
        scores = self._score([request.case for request in prompts])
        ends = np.cumsum([len(request.case.responses) for request in prompts])
        return ((index, own) for index, own in enumerate(np.split(scores, ends[:-1])) if wanted[index])

    def verdict(self, request: Request, answer: np.ndarray, notes: dict[str, Any] | None = None) -> Verdict:
        """Return the verdict of a case's scores; it is invalid if one of them is not finite."""
        shown = [float(answer[slot]) for slot in request.slots]
        if not np.isfinite(shown).all():
            return self.record(request, "the case has no reference", notes, expected_scores=None)
        values = by_response([round(score, 6) for score in shown], request.slots, len(request.case.responses))
        return self.record(request, None, notes, expected_scores=values)
