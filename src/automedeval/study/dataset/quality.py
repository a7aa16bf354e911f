"""Classify verdicts as high or low quality (paper, Appendix B).

The paper embeds each instruction with a SimCSE encoder and trains a support vector machine by grid search on 200 verdicts of
high and 200 of low quality. An embedding of the whole does not show that two doctors were swapped or that scores contradict the
words; the report says how far it comes alone. So there are more features here: how close each step is to its response, and
whether the scores fit the steps.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from automedeval.records import Case, RecordError, Verdict, question_text
from automedeval.rubrics.rationale import split_steps
from automedeval.stats import bootstrap
from automedeval.study.dataset.terms import terms

if TYPE_CHECKING:  # slow to import
    from automedeval.models.embeddings import Encoder

QUALITIES = ("low", "high")
PER_QUALITY, TEST = (
    200,
    100,
)  # Paper: 200 verdicts of each quality to train on, 100 others to measure on (Appendix B)
FOLDS = 5
FEWEST = 20  # verdicts of a quality to train on: with fewer, a grid search chooses by chance
PENALTIES = (0.1, 1.0, 10.0)
WIDTHS = ("scale", 0.003, 0.01, 0.03)
COMPONENTS = (0, 16)  # of the instruction's embedding; 0 leaves it out


@dataclass(frozen=True)
class Labelled:
    """A verdict of known quality; `kind` names its fault, for the report."""

    case: Case
    verdict: Verdict
    quality: str
    kind: str | None = None


class QualityClassifier:
    """Tell verdicts of high quality from those of low quality; `embed` turns texts into vectors."""

    def __init__(self, embed: "Encoder"):
        self.embed = embed

    def fit(self, labelled: Iterable[Labelled], seed: int) -> dict[str, Any]:
        """Train on verdicts drawn from `labelled`, and measure on others, on other cases; `seed` decides draw and folds.

        Args:
            labelled: verdicts of quality "high" or "low", at least `FEWEST` of each to train on.

        Returns:
            The report. On the test: "accuracy" with its interval over cases, "kinds" {kind: {"right", "n"}}, and in "alone" the
            same of the paper's classifier, which has the embedding alone. On training: "parameters" and "cross_validation".
            "train" and "test" hold counts.

        Raises:
            RecordError: one quality only, or too few verdicts.
        """
        train, held_out = draw(labelled, seed, PER_QUALITY, TEST)
        for quality in QUALITIES:
            trained, measured = _count(train, quality), _count(held_out, quality)
            if trained < FEWEST or not measured:
                raise RecordError(
                    f"{trained} verdicts of {quality} quality to train on and {measured} to test on: at least {FEWEST} and 1 "
                    "of each quality are needed, on different cases"
                )
        groups = np.array([example.case.id for example in train])
        truth = np.array([example.quality == "high" for example in train])
        read = self._read([(example.case, example.verdict) for example in train])
        features: list[np.ndarray] = [np.empty(0)] * len(train)
        # The tone of a training verdict comes from a model that was fitted without its case, as in use.
        for known, unknown in GroupKFold(min(FOLDS, len(set(groups)))).split(read, groups=groups):
            tone = _fit_tone([read[index] for index in known if truth[index]])
            for index in unknown:
                features[index] = read[index].features(tone)
        self._tone = _fit_tone([reading for reading, high in zip(read, truth) if high])
        search = _search(read[0].instruction.size, len(train), seed).fit(
            np.array(features), truth, groups=groups
        )
        self._machine = search.best_estimator_
        alone = _grid([("scale", StandardScaler())], {}, seed)
        alone.fit(np.array([each.instruction for each in read]), truth, groups=groups)
        tested = self._read([(each.case, each.verdict) for each in held_out])
        by_alone = alone.predict([each.instruction for each in tested])
        decided = self.decide([(example.case, example.verdict) for example in held_out])
        chosen = {
            name.removeprefix("svc__"): value
            for name, value in search.best_params_.items()
            if "svc__" in name
        }
        components = getattr(search.best_params_["blocks__instruction"], "n_components", 0)
        return {
            **_measures(held_out, decided),
            "alone": _measures(held_out, [QUALITIES[int(high)] for high in by_alone]),
            "parameters": {**chosen, "components": components},
            "cross_validation": round(float(search.best_score_), 4),
            "train": _counts(train),
            "test": _counts(held_out),
            "seed": seed,
            "encoder": self.embed.name,
        }

    def decide(self, pairs: Sequence[tuple[Case, Verdict]]) -> list[str]:
        """Return the quality of each (case, valid verdict) after `fit`: "high" or "low"."""
        features = np.array([each.features(self._tone) for each in self._read(pairs)])
        return [QUALITIES[int(high)] for high in self._machine.predict(features)]

    def _read(self, pairs: Sequence[tuple[Case, Verdict]]) -> list["_Features"]:
        texts: dict[str, int] = {}
        for case, verdict in pairs:
            for text in _texts(case, verdict):
                texts.setdefault(text, len(texts))
        vectors = np.asarray(self.embed.encode(list(texts)), dtype=np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        vector_of = {text: vectors[row] for text, row in texts.items()}
        return [_Features(case, verdict, vector_of) for case, verdict in pairs]


class _Features:
    def __init__(self, case: Case, verdict: Verdict, vectors: Mapping[str, np.ndarray]):
        rationale, count = verdict.rationale or "", len(verdict.order)
        steps = split_steps(rationale)
        self.instruction = np.mean([vectors[text] for text in _texts(case, verdict)], axis=0)
        doctors = [doctor for doctor in range(1, count + 1) if doctor in steps]
        self.steps = np.array([vectors[steps[doctor]] for doctor in doctors]).reshape(
            -1, self.instruction.size
        )
        scores = verdict.scores or (None,) * len(case.responses)
        by_step = [scores[verdict.order[doctor - 1]] for doctor in doctors]
        self.scores = np.array(
            [np.nan if score is None else score for score in by_step], dtype=float
        )
        question = vectors[question_text(case.question)]
        responses = [case.responses[index].text for index in verdict.order]
        near = self.steps @ np.array([vectors[text] for text in responses]).T
        words = [terms(steps[doctor]) for doctor in doctors]
        others = [terms(text) for text in responses]
        shared = np.array(
            [[len(one & other) / max(len(one), 1) for other in others] for one in words]
        )
        lengths = [len(steps.get(doctor, "").split()) for doctor in range(1, count + 1)]
        self.relations = [
            *_closeness(near, doctors),
            *_closeness(shared.reshape(near.shape), doctors),
            float(vectors[steps[0]] @ question) if 0 in steps else 0.0,
            float(np.mean(self.steps @ question)) if doctors else 0.0,
            (count - len(doctors)) / count,
            float(rationale.rstrip().endswith((".", "!", "?", '"', "”", ")"))),
            np.log1p(min(lengths)),
            np.log1p(np.mean(lengths)),
        ]

    def features(self, tone: Ridge) -> np.ndarray:
        """Return the features [d + relations + 6]; `tone` predicts scores from the steps' words."""
        use = ~np.isnan(self.scores)
        tones = tone.predict(self.steps) if self.steps.size else np.empty(0)
        return np.concatenate(
            [self.instruction, self.relations, _fit_of_scores(self.scores[use], tones[use])]
        )


def _fit_of_scores(scores: np.ndarray, tones: np.ndarray) -> list[float]:
    """Return six features of how scores fit the tones of their steps.

    Mean and largest distance, mean difference of the tones in the order of the scores, the most contradictory pair, the largest
    gain from swapping two scores, and the range of the scores.
    """
    if len(scores) < 2:
        return [*([abs(scores - tones)[0]] * 2 if len(scores) else [0.0, 0.0]), 0.0, 0.0, 0.0, 0.0]
    off = np.abs(scores[:, None] - tones)  # of one step's score from another's tone
    same, pairs = np.diag(off), np.triu_indices(len(scores), 1)
    ahead, apart = (scores[:, None] - scores)[pairs], (tones[:, None] - tones)[pairs]
    agreement = (np.sign(ahead) * apart).sum() / max(np.abs(np.sign(ahead)).sum(), 1.0)
    gain = (same[:, None] + same - off - off.T)[pairs]
    return [same.mean(), same.max(), agreement, (ahead * apart).min(), gain.max(), np.ptp(scores)]


def _closeness(near: np.ndarray, doctors: Sequence[int]) -> list[float]:
    """Return five features of how close steps are to their own responses, by closeness [steps, responses].

    Smallest and mean closeness to the own response, smallest and mean lead over the closest other response, and the largest
    gain from swapping two doctors.
    """
    if not doctors or near.shape[1] < 2:
        return [*([near.min(), near.mean()] if doctors else [0.0, 0.0]), 0.0, 0.0, 0.0]
    rows, columns = np.arange(len(doctors)), np.array(doctors) - 1
    same, others = near[rows, columns], near.copy()
    others[rows, columns] = -np.inf
    lead = same - others.max(axis=1)
    gained = near[:, columns] - same[:, None]  # of one step on the response of another
    gain = (gained + gained.T)[np.triu_indices(len(doctors), 1)]
    return [same.min(), same.mean(), lead.min(), lead.mean(), gain.max() if gain.size else 0.0]


def draw(
    labelled: Iterable[Labelled], seed: int, per_quality: int, test: int
) -> tuple[list[Labelled], list[Labelled]]:
    """Return verdicts to train on and verdicts to test on, equally many of each quality; no case is in both."""
    labelled = list(labelled)
    by_case: dict[str, list[Labelled]] = {}
    for example in labelled:
        by_case.setdefault(example.case.id, []).append(example)
    fewest = min(_count(labelled, quality) for quality in QUALITIES)
    share = min(1.0, fewest / (per_quality + test / 2))
    held_out: list[Labelled] = []
    train: list[Labelled] = []
    wanted = [(int(share * test / 2), held_out), (int(share * per_quality), train)]
    rng = random.Random(seed)
    for case_id in rng.sample(sorted(by_case), len(by_case)):
        # A case goes to the test if that still needs a quality that the case has.
        has = {example.quality for example in by_case[case_id]}
        most, chosen = next(
            ((m, c) for m, c in wanted if any(_count(c, quality) < m for quality in has)), (0, [])
        )
        for example in rng.sample(by_case[case_id], len(by_case[case_id])):
            if _count(chosen, example.quality) < most:
                chosen.append(example)
    return train, held_out


def _count(labelled: Sequence[Labelled], quality: str) -> int:
    return sum(example.quality == quality for example in labelled)


def _counts(labelled: Sequence[Labelled]) -> dict[str, int]:
    return {
        "cases": len({example.case.id for example in labelled}),
        **{name: _count(labelled, name) for name in QUALITIES},
    }


def _texts(case: Case, verdict: Verdict) -> list[str]:
    """Return the texts of an instruction: question, responses shown, steps of the rationale."""
    responses = [case.responses[index].text for index in verdict.order]
    return [
        question_text(case.question),
        *responses,
        *split_steps(verdict.rationale or "").values(),
    ]


def _fit_tone(readings: Sequence[_Features]) -> Ridge:
    """Fit a regression of scores on the vectors of steps, on verdicts of high quality."""
    steps = np.concatenate([reading.steps for reading in readings])
    scores = np.concatenate([reading.scores for reading in readings])
    use = ~np.isnan(scores)
    if not use.any():
        raise RecordError("no verdict of high quality has steps on doctors and scores for them")
    return Ridge(alpha=1.0).fit(steps[use], scores[use])


def _search(width: int, verdicts: int, seed: int) -> GridSearchCV:
    """Return the search for a pipeline's parameters; `width` is the size of the embedding."""
    most = min(width, verdicts * (FOLDS - 1) // FOLDS - 1)
    sizes = sorted({min(size, most) for size in COMPONENTS})
    instruction = ["drop" if not size else PCA(size, whiten=True, random_state=0) for size in sizes]
    blocks = ColumnTransformer(
        [
            ("instruction", "drop", slice(0, width)),
            ("relations", StandardScaler(), slice(width, None)),
        ]
    )
    return _grid([("blocks", blocks)], {"blocks__instruction": instruction}, seed)


def _grid(steps: list[tuple[str, Any]], parameters: dict[str, Any], seed: int) -> GridSearchCV:
    """Return the search for the parameters of a support vector machine, and of the steps before it."""
    shared = parameters | {"svc__C": list(PENALTIES)}
    return GridSearchCV(
        Pipeline([*steps, ("svc", SVC(class_weight="balanced"))]),
        [
            shared | {"svc__kernel": ["linear"]},
            shared | {"svc__kernel": ["rbf"], "svc__gamma": list(WIDTHS)},
        ],
        cv=StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed),
    )


def _measures(held_out: Sequence[Labelled], decided: Sequence[str]) -> dict[str, Any]:
    hits = [example.quality == quality for example, quality in zip(held_out, decided)]
    places = {
        case_id: place
        for place, case_id in enumerate(dict.fromkeys(example.case.id for example in held_out))
    }
    rows = [places[example.case.id] for example in held_out]
    right, total = np.bincount(rows, hits), np.bincount(rows)
    kinds = [example.kind or example.quality for example in held_out]
    found = Counter(itertools.compress(kinds, hits))
    shares = {"accuracy": bootstrap.ratio(right, total)}
    return {
        "accuracy": bootstrap.estimate(shares, len(total))["accuracy"].to_dict(),
        "kinds": {
            kind: {"right": found[kind], "n": count}
            for kind, count in sorted(Counter(kinds).items())
        },
    }
