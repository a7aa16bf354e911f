"""The small judge: it scores each response by itself, by what a small encoder with a trained adapter says of it.

It sees whether a response is about the question, answers it, and says what the reference says. It does not know medicine.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.judges.base import ApartJudge
from automedeval.judges.composed import compose
from automedeval.judges.features import FEATURES, QUESTION, columns_of, newest, read_responses
from automedeval.judges.requests import Request
from automedeval.models.arguments import EncoderArguments
from automedeval.models.checkpoints import checkpoint_folder, fingerprint, weights_fingerprint
from automedeval.models.pair_reader import PairReader
from automedeval.records import (
    UNSEEN,
    Case,
    JsonObject,
    RecordError,
    Verdict,
    digest,
    foreign_errors_at,
)
from automedeval.records.journal import write_json
from automedeval.rubrics import Rubric
from automedeval.rubrics.questions import Search
from automedeval.rubrics.slots import by_slot
from automedeval.stats.agreement import Panel
from automedeval.stats.logistic import fit_logistic, order_weights

PACKAGED = Path(__file__).parent / "packaged/small"
ADAPTER = "relevance"  # folder of the adapter
READING = (
    5  # version of what is read and said, for the fingerprint: the rationales of 4 named the models
)
CHUNK = 32  # cases that are read together, but for the first one: the vectors of all their tokens are kept
SCALES = {"question": QUESTION, "reference": FEATURES}  # what is read without and with a reference


@dataclass(frozen=True)
class Scale:
    """How features become a share of a scale, from 0, its lowest score, to 1: a logistic function of a weighted sum.

    `weights` are those of the features that are read, by name, each 0 or more.
    """

    weights: Mapping[str, float]
    intercept: float
    slope: float

    @classmethod
    def fit(
        cls, names: Sequence[str], features: np.ndarray, shares: np.ndarray, panel: Panel
    ) -> "Scale":
        """Learn from people weights that put the pairs of a case in their order, and a logistic function of the weighted sum.

        `names` are those of `FEATURES` that are read, `features` float [responses, FEATURES], `shares` people's mean scores as
        shares of their scale, float [responses]. RecordError if these do not depend on the features.
        """
        features = columns_of(features, names)
        first, second = panel.pairs
        order = panel.relations(shares)
        gaps = ((features[first] - features[second]) * order[:, None])[order != 0]
        weights = order_weights(gaps)
        total = features @ weights
        slope = 0.0
        if weights.any():
            intercept, slope = fit_logistic(
                np.column_stack([np.ones(len(total)), total]), shares, ridge=1e-6
            )
        if not slope > 0:
            raise RecordError(
                "people's ratings do not rise with what the encoder says: there is nothing to learn"
            )
        return cls(dict(zip(names, weights.tolist())), float(intercept), float(slope))

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return the share of the scale of every response: float [responses], NaN where a feature is."""
        total = columns_of(features, self.weights) @ np.array(list(self.weights.values()))
        return 1 / (1 + np.exp(-self.intercept - self.slope * total))


Scales = Mapping[str, Scale]  # by the names of `SCALES`; one may be missing


def shares_by(scales: Scales, features: np.ndarray) -> np.ndarray:
    """Return what `Scale.shares` does, each response by the scale for what its case has; of `SCALES` one may be missing."""
    shares = scales["question"].shares(features)
    if "reference" not in scales:  # then references are not read
        return shares
    both = scales["reference"].shares(features)
    return np.where(np.isnan(both), shares, both)


@dataclass
class SmallJudge(ApartJudge):
    """Score every response by itself: `expected_scores` on the rubric's scale, calibrated with people's ratings.

    A response that the encoder cannot read has no score; the others of its case keep theirs. A `search` finds passages of
    books, beside which numbers are compared. `store` is its fingerprint.
    """

    pair_reader: PairReader
    scales: Scales
    rubric: Rubric
    name: str | None = None
    search: Search | None = None
    store: str = ""

    blind_to = UNSEEN

    def __post_init__(self) -> None:
        assert self.rubric.scale is not None  # `planner` refuses other rubrics
        self.wording = self.rubric
        self._scale = self.rubric.scale
        self.name = self.name or "small"
        self.rubric_name = self.rubric.name

    @property
    def fingerprint(self) -> str:
        encoder = self.pair_reader.encoder
        adapter = fingerprint(self.pair_reader.adapter)
        scales = {"scales": _written(self.scales)}
        read = [READING, encoder.fingerprint, adapter, scales, self._scale]
        if self.search:
            read.append(self.store)
        return digest(read)

    @property
    def reads_reference(self) -> bool:
        return "reference" in self.scales

    def answer(
        self, prompts: Sequence[Request], wanted: Sequence[bool]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (index, features of the responses in the slots) of the wanted requests, the shortest cases first.

        All cases are read, wanted or not: which texts share a batch changes the last digits of their vectors.
        """
        cases = [shown(prompt) for prompt in prompts]
        lengths = [sum(len(response.text) for response in case.responses) for case in cases]
        by_length = sorted(range(len(cases)), key=lengths.__getitem__)
        for start in range(
            1 - CHUNK, len(cases), CHUNK
        ):  # the first alone: a verdict is there soon
            chunk = by_length[max(start, 0) : start + CHUNK]
            if not any(wanted[index] for index in chunk):
                continue
            read = [cases[index] for index in chunk]
            features = read_responses(read, self.pair_reader)
            for index, of_case in zip(chunk, self.by_case(features, read)):
                if wanted[index]:
                    yield index, of_case

    def verdict(self, request: Request, answer: np.ndarray) -> Verdict:
        """Return the verdict of the features of a case; it is invalid if no response could be read, and none is empty."""
        if not self.pair_reader.encoder.reads([newest(request.case.question)])[0]:
            return self.record(request, "the question cannot be read")
        low, high = self._scale
        points = low + (high - low) * shares_by(self.scales, answer)
        error = None if request.empty else "no response can be read"
        verdict = self.scored(request, points, error, composed=True)
        if not verdict.valid:
            return verdict
        likeness = columns_of(answer, ["reference"])
        reads_reference = self.reads_reference and not np.isnan(likeness).all()
        scores = by_slot(verdict.expected_scores or (), request.slots)
        rationale = compose(shown(request), answer, scores, self._scale)
        return replace(verdict, reads_reference=reads_reference, rationale=rationale)


def shown(request: Request) -> Case:
    """Return the case of a request with the responses in its slots alone."""
    return replace(request.case, responses=by_slot(request.case.responses, request.slots))


def load_small_judge(
    folder: Path,
    rubric: Rubric,
    encoder: EncoderArguments,
    device: str,
    **options: Any,
) -> SmallJudge:
    """Load the small judge that recipes/fit_small_judge.py wrote.

    RecordError: there is no description of one, a library or the encoder is missing, or it is not the encoder of the adapter.
    """
    file = folder / "judge.json"
    place = checkpoint_folder(encoder.place)
    with foreign_errors_at(f"{file}: not the description of a small judge"):
        content = json.loads(file.read_text(encoding="utf-8"))
        base = content["encoder"]
        name = base["name"]
        trained_on = base["fingerprint"]
        written = content["scales"]
        scales = {name: Scale(**written[name]) for name in SCALES if name in written}
        shares_by(scales, np.empty((0, len(FEATURES))))  # fails for features that are not read
    if weights_fingerprint(place) != trained_on:
        raise RecordError(
            f"{place} is not the {name} that the small judge was trained on (fingerprint {trained_on})"
        )
    return SmallJudge(PairReader(encoder.load(device), folder / ADAPTER), scales, rubric, **options)


def write_small_judge(folder: Path, scales: Scales, encoder: Path, facts: JsonObject) -> None:
    """Write the description of a small judge beside its adapter; `facts` are what was measured."""
    named = {"name": encoder.name, "fingerprint": weights_fingerprint(encoder)}
    write_json(folder / "judge.json", {"encoder": named, "scales": _written(scales), **facts})


def _written(scales: Scales) -> JsonObject:
    return {name: asdict(scale) for name, scale in scales.items()}
