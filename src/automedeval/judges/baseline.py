"""Use baselines as judges, so that they can be audited, calibrated and compared like any judge."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from automedeval.judges.base import ApartJudge
from automedeval.judges.requests import Request
from automedeval.metrics.embedding import (
    EMBEDDINGS,
    NAMES,
    READ_REFERENCE,
    TextEncoder,
    nearest_pieces,
)
from automedeval.metrics.lexical import BASELINES, Collection, bm25
from automedeval.records import UNSEEN, Case, RecordError, Verdict, digest
from automedeval.rubrics import COUNTED


@dataclass
class BaselineJudge(ApartJudge):
    """Score every response by itself with a baseline: `expected_scores` without a scale, by no model that was trained to judge.

    Without a `collection` BM25 takes the word frequencies of the cases that are judged together. An `encoder` is for those of
    `EMBEDDINGS`. RecordError: there is no such baseline in `metrics.embedding.NAMES`.
    """

    baseline: str
    collection: Collection | None = None
    name: str | None = None
    encoder: TextEncoder | None = None

    rubric_name = COUNTED
    fingerprint = ""
    blind_to = UNSEEN

    def __post_init__(self) -> None:
        if self.baseline not in NAMES:
            raise RecordError(f"no baseline {self.baseline!r}; there are {', '.join(NAMES)}")
        self.name = self.name or f"baseline:{self.baseline}"
        self._score = BASELINES.get(self.baseline, self._nearest)
        settings = [self.baseline]
        if self._score is bm25 and self.collection is not None:
            self._score = partial(bm25, collection=self.collection)
            settings.append(self.collection.fingerprint)
        if self.baseline in EMBEDDINGS:
            assert self.encoder is not None
            settings.append(self.encoder.fingerprint)
        self.fingerprint = digest(settings)

    @property
    def reads_reference(self) -> bool:
        return self.baseline in READ_REFERENCE

    def _nearest(self, cases: Sequence[Case]) -> np.ndarray:
        assert self.encoder is not None
        return nearest_pieces(cases, self.encoder, [self.baseline])[self.baseline]

    def answer(
        self, prompts: Sequence[Request], wanted: Sequence[bool]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (index, scores of all responses) of the wanted requests."""
        cases = [request.case for request in prompts]
        scores = self.by_case(self._score(cases), cases)
        return ((index, scores[index]) for index, want in enumerate(wanted) if want)

    def verdict(self, request: Request, answer: np.ndarray) -> Verdict:
        """Return the verdict of a case's scores, None for a response without words; it is invalid if none is finite."""
        text = "reference" if self.reads_reference else "question"
        missing = self.reads_reference and request.case.reference is None
        error = (
            "the case has no reference" if missing else f"the {text} or every response has no words"
        )
        return self.scored(request, answer[list(request.slots)], error)
