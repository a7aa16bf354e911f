"""Classify verdicts as high or low quality (paper, Appendix B).

The paper embeds each instruction with a SimCSE encoder and trains a support vector machine by grid search on 200 verdicts of
high and 200 of low quality. An embedding of the whole does not show that two doctors were swapped or that scores contradict the
words; the report says how far it comes alone. So there are more features here: how close each step is to its response, and
whether the scores fit the steps.
"""

import itertools
import random
from collections import Counter, defaultdict
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
from automedeval.study.dataset.teacher_verdicts import JudgedCase
from automedeval.study.dataset.terms import terms

if TYPE_CHECKING:  # slow to import
    from automedeval.models.embeddings import Encoder

QUALITIES = ("low", "high")
# Paper: 200 verdicts of each quality to train on, 100 others to measure on (Appendix B)
PER_QUALITY, TEST = 200, 100
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

    @property
    def shown(self) -> tuple[Case, Verdict]:
        return self.case, self.verdict


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
        _check_enough(train, held_out)
        cases = [example.case.id for example in train]
        truth = np.array([example.quality == "high" for example in train])
        readings = self._read(train)
        self._tone = _fit_tone(list(itertools.compress(readings, truth)))
        features = _out_of_fold(readings, truth, cases)
        search = _search(readings[0].instruction.size, len(train), seed)
        search.fit(features, truth, groups=cases)
        self._machine = search.best_estimator_
        decided = self.decide(held_out)
        alone = _grid([("scale", StandardScaler())], {}, seed)
        alone.fit(_instructions(readings), truth, groups=cases)
        decided_alone = _names(alone.predict(_instructions(self._read(held_out))))
        best = search.best_params_
        chosen = {name.removeprefix("svc__"): best[name] for name in best if "svc__" in name}
        components = getattr(best["blocks__instruction"], "n_components", 0)
        return {
            **_measures(held_out, decided),
            "alone": _measures(held_out, decided_alone),
            "parameters": {**chosen, "components": components},
            "cross_validation": round(float(search.best_score_), 4),
            "train": _counts(train),
            "test": _counts(held_out),
            "seed": seed,
            "encoder": self.embed.name,
        }

    def decide(self, verdicts: Sequence[Labelled | JudgedCase]) -> list[str]:
        """Return the quality of each valid verdict after `fit`, whatever it is labelled: "high" or "low"."""
        readings = self._read(verdicts)
        features = np.array([reading.features(self._tone) for reading in readings])
        return _names(self._machine.predict(features))

    def _read(self, verdicts: Sequence[Labelled | JudgedCase]) -> list["_Features"]:
        pairs = [verdict.shown for verdict in verdicts]
        of_all = itertools.chain.from_iterable(itertools.starmap(_texts, pairs))
        texts = list(dict.fromkeys(of_all))
        vectors = np.asarray(self.embed.encode(texts), dtype=np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        vector_of = dict(zip(texts, vectors))
        return [_Features(*pair, vector_of) for pair in pairs]


class _Features:
    def __init__(self, case: Case, verdict: Verdict, vectors: Mapping[str, np.ndarray]):
        rationale, count = verdict.rationale or "", len(verdict.order)
        texts = _texts(case, verdict)
        responses = texts[1 : count + 1]
        self.instruction = np.mean([vectors[text] for text in texts], axis=0)
        by_doctor = split_steps(rationale)
        doctors = [doctor for doctor in range(1, count + 1) if doctor in by_doctor]
        steps = [by_doctor[doctor] for doctor in doctors]
        width = self.instruction.size
        self.steps = np.array([vectors[step] for step in steps]).reshape(-1, width)
        scores = verdict.scores or (None,) * len(case.responses)
        by_step = [scores[verdict.order[doctor - 1]] for doctor in doctors]
        self.scores = np.array(by_step, dtype=float)  # NaN for None
        question = vectors[texts[0]]
        near = self.steps @ np.array([vectors[text] for text in responses]).T
        of_responses = [terms(text) for text in responses]
        shared = np.array([_shares(terms(step), of_responses) for step in steps])
        lengths = [len(by_doctor.get(slot, "").split()) for slot in range(1, count + 1)]
        self.relations = [
            *_closeness(near, doctors),
            *_closeness(shared.reshape(near.shape), doctors),
            float(vectors[by_doctor[0]] @ question) if 0 in by_doctor else 0.0,
            float(np.mean(self.steps @ question)) if doctors else 0.0,
            (count - len(doctors)) / count,
            float(rationale.rstrip().endswith((".", "!", "?", '"', "”", ")"))),
            np.log1p(min(lengths)),
            np.log1p(np.mean(lengths)),
        ]

    def features(self, tone: Ridge) -> np.ndarray:
        """Return the features [d + relations + 6]; `tone` predicts scores from the steps' words."""
        scored = ~np.isnan(self.scores)
        tones = tone.predict(self.steps) if self.steps.size else np.empty(0)
        fit = _fit_of_scores(self.scores[scored], tones[scored])
        return np.concatenate([self.instruction, self.relations, fit])


def _check_enough(train: Sequence[Labelled], held_out: Sequence[Labelled]) -> None:
    """Raise RecordError if one quality has too few verdicts to train on, or none to test on."""
    for quality in QUALITIES:
        trained, measured = _count(train, quality), _count(held_out, quality)
        if trained < FEWEST or not measured:
            raise RecordError(
                f"{trained} verdicts of {quality} quality to train on and {measured} to test on: at least {FEWEST} and 1 "
                "of each quality are needed, on different cases"
            )


def _out_of_fold(readings: list[_Features], truth: np.ndarray, cases: list[str]) -> np.ndarray:
    """Return the features of training verdicts; the tone of each comes from a model fitted without its case, as in use."""
    rows = [np.empty(0)] * len(readings)
    folds = GroupKFold(min(FOLDS, len(set(cases))))
    for known, unknown in folds.split(readings, groups=cases):
        tone = _fit_tone([readings[index] for index in known if truth[index]])
        for index in unknown:
            rows[index] = readings[index].features(tone)
    return np.array(rows)


def _instructions(readings: Sequence[_Features]) -> np.ndarray:
    return np.array([reading.instruction for reading in readings])


def _names(decisions: np.ndarray) -> list[str]:
    return [QUALITIES[int(high)] for high in decisions]


def _shares(words: set[str], of_responses: Sequence[set[str]]) -> list[float]:
    """Return which share of a step's words each response has."""
    return [len(words & others) / max(len(words), 1) for others in of_responses]


def _fit_of_scores(scores: np.ndarray, tones: np.ndarray) -> list[float]:
    """Return six features of how scores fit the tones of their steps.

    Mean and largest distance, mean difference of the tones in the order of the scores, the most contradictory pair, the largest
    gain from swapping two scores, and the range of the scores.
    """
    off = np.abs(scores[:, None] - tones)  # of one step's score from another's tone
    if len(scores) < 2:
        return [*np.resize(off, 2), 0.0, 0.0, 0.0, 0.0]
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
    if not doctors:
        return [0.0] * 5
    if near.shape[1] < 2:
        return [near.min(), near.mean(), 0.0, 0.0, 0.0]
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
    examples = list(labelled)
    by_case = defaultdict(list)
    for example in examples:
        by_case[example.case.id].append(example)
    fewest = min(_count(examples, quality) for quality in QUALITIES)
    share = min(1.0, fewest / (per_quality + test / 2))
    most_tested, most_trained = int(share * test / 2), int(share * per_quality)
    train: list[Labelled] = []
    held_out: list[Labelled] = []
    rng = random.Random(seed)
    for case_id in rng.sample(sorted(by_case), len(by_case)):
        of_case = by_case[case_id]
        qualities = {example.quality for example in of_case}
        # A case goes to the test if that still needs a quality that the case has.
        tested = any(_count(held_out, quality) < most_tested for quality in qualities)
        part, most = (held_out, most_tested) if tested else (train, most_trained)
        for example in rng.sample(of_case, len(of_case)):
            if _count(part, example.quality) < most:
                part.append(example)
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
    instruction = [PCA(size, whiten=True, random_state=0) if size else "drop" for size in sizes]
    first = ("instruction", "drop", slice(0, width))
    second = ("relations", StandardScaler(), slice(width, None))
    blocks = ColumnTransformer([first, second])
    return _grid([("blocks", blocks)], {"blocks__instruction": instruction}, seed)


def _grid(steps: list[tuple[str, Any]], parameters: dict[str, Any], seed: int) -> GridSearchCV:
    """Return the search for the parameters of a support vector machine, and of the steps before it."""
    shared = parameters | {"svc__C": list(PENALTIES)}
    linear = shared | {"svc__kernel": ["linear"]}
    curved = shared | {"svc__kernel": ["rbf"], "svc__gamma": list(WIDTHS)}
    pipeline = Pipeline([*steps, ("svc", SVC(class_weight="balanced"))])
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    return GridSearchCV(pipeline, [linear, curved], cv=folds)


def _measures(held_out: Sequence[Labelled], decided: Sequence[str]) -> dict[str, Any]:
    hits = [example.quality == quality for example, quality in zip(held_out, decided)]
    cases = [example.case.id for example in held_out]
    once = list(dict.fromkeys(cases))
    rows = [once.index(case_id) for case_id in cases]
    right, total = np.bincount(rows, hits), np.bincount(rows)
    shares = {"accuracy": bootstrap.ratio(right, total)}
    kinds = [example.kind or example.quality for example in held_out]
    recognised = Counter(itertools.compress(kinds, hits))
    counts = sorted(Counter(kinds).items())
    return {
        "accuracy": bootstrap.estimate(shares, len(total))["accuracy"].to_dict(),
        "kinds": {kind: {"right": recognised[kind], "n": count} for kind, count in counts},
    }
