"""The baselines as judges, so that what is asked of a judge can be asked of them: an audit, a calibration, a comparison."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from automedeval.judges.base import ApartJudge
from automedeval.judges.requests import Request
from automedeval.metrics.lexical import BASELINES, Collection, bm25
from automedeval.records import RecordError, Verdict
from automedeval.rubrics import COUNTED


@dataclass
class BaselineJudge(ApartJudge):
    """Scores every response by itself, by what a baseline counts: `expected_scores` without a scale, and no model at all.

    Args:
        baseline: one of `baselines.BASELINES`.
        collection: what BM25 takes for the rarity of words, so that one answer's score does not hang on which others are
            judged with it; None takes the cases of each window.
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
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return no tokens and no cost."""
        return 0, 0.0

    def refuse_overlong(self, requests: Sequence[Request]) -> None:
        """Refuse nothing: a count has no context window."""

    def judge(self, requests: Sequence[Request], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Verdict]]:
        """Score one window of requests; yield (index, verdict) of the wanted ones."""
        scores, start = self._score([request.case for request in requests]), 0
        for index, request in enumerate(requests):
            own = scores[start : start + len(request.case.responses)]
            start += len(own)
            if wanted is None or wanted[index]:
                yield index, self._verdict(request, own)

    def _verdict(self, request: Request, scores: np.ndarray) -> Verdict:
        case, shown = request.case, [float(scores[slot]) for slot in request.slots]
        valid = bool(np.isfinite(shown).all())
        values = self.spread(request.slots, [round(score, 6) for score in shown], len(case.responses))
        return Verdict(
            case_id=case.id,
            judge=self.name,
            rubric=self.rubric_name,
            order=request.slots,
            valid=valid,
            error=None if valid else "the case has no reference",
            expected_scores=values if valid else None,
            extra=self.origin(case),
        )
