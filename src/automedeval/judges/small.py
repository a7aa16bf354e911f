"""The small judge: it scores each response by itself, by what a small encoder with a trained adapter says of it.

What it sees is whether a response is about the question, and answers it. It does not know medicine.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from automedeval.judges.base import ApartJudge
from automedeval.judges.requests import Request
from automedeval.metrics.embedding import QUESTION, TextEncoder, nearest
from automedeval.models.arguments import ENCODER, EncoderArguments
from automedeval.models.checkpoints import checkpoint_folder, fingerprint
from automedeval.models.cross_encoder import load_cross_encoder, relevance
from automedeval.records import Case, RecordError, Verdict, digest, question_text
from automedeval.records.journal import write_whole
from automedeval.rubrics import Rubric
from automedeval.rubrics.slots import by_response
from automedeval.stats.agreement import Panel
from automedeval.stats.logistic import fit_logistic, order_weights

# The cosine of the nearest piece and of the first piece with the question, and the cross-encoder's value of the nearest piece.
FEATURES = ("cosine", "first", "relevance")


def features_of(cases: Sequence[Case], encoder: TextEncoder, cross_encoder: Any) -> np.ndarray:
    """Return the features of every response: float [responses of all cases, FEATURES]; NaN where there are no words to compare.

    Args:
        cross_encoder: a `sentence_transformers.CrossEncoder`.
    """
    found = nearest(cases, encoder, [QUESTION])[QUESTION]
    questions = [question_text(case.question) for case in cases for _ in case.responses]
    pairs = [(question, each.piece) for question, each in zip(questions, found) if each.piece]
    values = iter(relevance(cross_encoder, pairs).tolist())
    return np.array([[each.cosine, each.first, next(values) if each.piece else np.nan] for each in found], float)


@dataclass(frozen=True)
class Scale:
    """How features become a share of a scale, from 0, its lowest score, to 1.

    Args:
        weights: of FEATURES, 0 or more.
        intercept, slope: of the logistic function of their weighted sum.
    """

    weights: tuple[float, ...]
    intercept: float
    slope: float

    @classmethod
    def fit(cls, features: np.ndarray, shares: np.ndarray, panel: Panel) -> "Scale":
        """Learn from people.

        The weights are those that put the pairs of a case in people's order. The logistic function of the weighted sum is
        fitted to people's scores.

        Args:
            features: float [responses, FEATURES].
            shares: people's mean scores as shares of their scale: float [responses].
            panel: the cases of the responses.

        Raises:
            RecordError: people's scores do not depend on the features.
        """
        first, second = panel.pairs
        order = panel.relations(shares)
        gaps = ((features[first] - features[second]) * order[:, None])[order != 0]
        weights = order_weights(gaps)
        total, slope = features @ weights, 0.0
        if weights.any():
            intercept, slope = fit_logistic(np.column_stack([np.ones(len(total)), total]), shares)
        if not slope > 0:
            raise RecordError("people's ratings do not rise with what the encoder says: there is nothing to learn")
        return cls(tuple(weights.tolist()), float(intercept), float(slope))

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return the share of the scale of every response: float [responses]."""
        return expit(self.intercept + self.slope * (features @ np.array(self.weights)))


@dataclass
class SmallJudge(ApartJudge):
    """Score every response by itself: `expected_scores` on the rubric's scale, calibrated with people's ratings.

    Args:
        encoder, cross_encoder: the encoder, and the same with the adapter.
        scale: what `Scale.fit` learnt.
        adapter: the fingerprint of the adapter.
        rubric: its scale is the one of the scores.
        models: only these models' responses are judged.
        name: what verdicts record as their judge.
    """

    encoder: TextEncoder
    cross_encoder: Any
    scale: Scale
    adapter: str
    rubric: Rubric
    models: Sequence[str] | None = None
    name: str | None = None

    chat = None

    def __post_init__(self) -> None:
        if not self.rubric.scale:
            raise RecordError(f"the small judge reads a scale, and the rubric {self.rubric.name} gives choices")
        self.name = self.name or "small"
        self.rubric_name = self.rubric.name
        settings = [self.encoder.fingerprint, self.adapter, asdict(self.scale), self.rubric.scale]
        self.fingerprint = digest(settings)

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        return 0, 0.0

    def prompt(self, request: Request, texts: Sequence[str] | None = None) -> Request:
        return request  # it reads the case

    def overflow(self, prompts: Sequence[Request]) -> list[int]:
        return [0] * len(prompts)  # a response is read in pieces

    def answer(self, prompts: Sequence[Request], wanted: Sequence[bool]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (index, shares of the scale of all responses) of the wanted requests."""
        chosen = [index for index, want in enumerate(wanted) if want]
        cases = [prompts[index].case for index in chosen]
        shares = self.scale.shares(features_of(cases, self.encoder, self.cross_encoder))
        ends = np.cumsum([len(case.responses) for case in cases])
        yield from zip(chosen, np.split(shares, ends[:-1]))

    def verdict(self, request: Request, answer: np.ndarray, notes: dict[str, Any] | None = None) -> Verdict:
        """Return the verdict of a case's shares; it is invalid if one of them is not finite."""
        shown = [float(answer[slot]) for slot in request.slots]
        if not np.isfinite(shown).all():
            return self.record(request, "the question or a response has no words", notes, expected_scores=None)
        low, high = self.rubric.scale
        scores = [round(low + (high - low) * share, 6) for share in shown]
        return self.record(
            request, None, notes, expected_scores=by_response(scores, request.slots, len(request.case.responses))
        )


def load_small_judge(
    folder: Path,
    rubric: Rubric,
    encoder: EncoderArguments,
    device: str = "auto",
    models: Sequence[str] | None = None,
    name: str | None = None,
) -> SmallJudge:
    """Load the small judge that recipes/fit_small_judge.py wrote to a folder.

    Raises:
        RecordError: the folder holds none, a library or the encoder is missing, or the adapter is of another encoder.
    """
    file = folder / "judge.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        found = content["scale"]
        scale = Scale(tuple(found["weights"][name] for name in FEATURES), found["intercept"], found["slope"])
        wanted = content["encoder"]
        base_name, base = wanted["name"], wanted["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not the description of a small judge ({error})") from None
    network = encoder.load(device)
    place = checkpoint_folder(encoder.encoder or ENCODER)
    if fingerprint(place, []) != base:
        raise RecordError(f"{place} is not the {base_name} that the small judge was trained on (fingerprint {base})")
    cross_encoder = load_cross_encoder(place, folder / "adapter", network.device)
    return SmallJudge(network, cross_encoder, scale, fingerprint(folder / "adapter", []), rubric, models, name)


def write_small_judge(folder: Path, scale: Scale, encoder: str, facts: Mapping[str, Any]) -> None:
    """Write the description of a small judge beside its adapter; `encoder` is a folder, `facts` what was measured."""
    named = {"name": Path(encoder).name, "fingerprint": fingerprint(Path(encoder), [])}
    learnt = {"weights": dict(zip(FEATURES, scale.weights)), "intercept": scale.intercept, "slope": scale.slope}
    content = {"encoder": named, "scale": learnt, **facts}
    write_whole(folder / "judge.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
