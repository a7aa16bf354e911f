"""The quality classifier: is a verdict good enough to learn from (paper, Appendix B)?

The paper embeds each instruction with a SimCSE encoder and trains a support vector machine by grid search on 200 verdicts of
high and 200 of low quality. Here the instruction's embedding has company: how close each step is to the response that it is
about, whether the scores fit what the steps say, and what `attribution` marks. An embedding of the whole cannot see that two
doctors were exchanged or that scores contradict the words; these features can.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import sklearn
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from automedeval.records import Case, RecordError, Verdict, question_text
from automedeval.records.journal import write_whole
from automedeval.rubrics.misattribution import misattributions, terms
from automedeval.rubrics.rationale import split_steps
from automedeval.stats import bootstrap

QUALITIES = ("low", "high")
FEATURES = 1  # raised whenever a feature changes: a classifier of other features is refused
FOLDS = 5
FEWEST = 20  # verdicts of a quality to train on, below which a grid search chooses by chance
PENALTIES = (0.1, 1.0, 10.0)
WIDTHS = ("scale", 0.003, 0.01, 0.03)
COMPONENTS = (0, 16)  # of the instruction's embedding; 0 leaves it out


class Encoder(Protocol):
    """Turns texts into vectors; the fingerprint changes with everything that changes one."""

    name: str
    fingerprint: str

    def encode(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class Labelled:
    """A verdict whose quality somebody knows; `kind` names what is wrong with it, for the report."""

    case: Case
    verdict: Verdict
    quality: str
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.quality not in QUALITIES:
            raise RecordError(f"{_shown(self.verdict)}: quality must be high or low, not {self.quality!r}")


class Quality(NamedTuple):
    """What the classifier makes of a verdict: high or low, and how far from the border (positive is high)."""

    label: str
    value: float


class QualityClassifier:
    """Tell verdicts of high quality from those of low quality.

    Args:
        embed: an `embeddings.Encoder`, or what has the like of its `encode`; its fingerprint is saved with the classifier.
    """

    def __init__(self, embed: Encoder):
        self.embed = embed
        self.report: dict[str, Any] = {}
        self._machine: Pipeline | None = None
        self._tone: Ridge | None = None

    def fit(self, labelled: Iterable[Labelled], seed: int, per_quality: int = 200, test: int = 100) -> dict[str, Any]:
        """Train on verdicts drawn from `labelled`, and measure on others, about other cases.

        Args:
            labelled: verdicts of known quality, at least `FEWEST` of each to train on.
            seed: of the draw and the folds.
            per_quality: verdicts of each quality to train on (Appendix B: 200). Fewer where there are fewer; the share
                of the test then stays.
            test: verdicts to measure on, half of each quality (Appendix B: 100).

        Returns:
            The report, of which nothing but the figures of training is about verdicts trained on: "accuracy" with its
            interval over cases, "confusion" {is: {taken for: count}}, "kinds" {kind: {"right", "n"}}, "parameters",
            "cross_validation", "train" and "test" with counts, "encoder".

        Raises:
            RecordError: one quality only, too few verdicts, or an invalid one.
        """
        train, held_out = draw(labelled, seed, per_quality, test)
        _refuse_few(train, held_out)
        groups = np.array([one.case.id for one in train])
        truth = np.array([one.quality == "high" for one in train])
        readings = self._read([(one.case, one.verdict) for one in train])
        # The tone of a training verdict is read by a model that has seen no verdict of its case, as in use.
        tones: list[np.ndarray] = [np.empty(0)] * len(train)
        for known, unknown in GroupKFold(min(FOLDS, len(set(groups)))).split(readings, groups=groups):
            tone = _fit_tone([readings[index] for index in known if truth[index]])
            for index in unknown:
                tones[index] = _tones(tone, readings[index])
        self._tone = _fit_tone([reading for reading, high in zip(readings, truth) if high])
        features = np.array([reading.features(tone) for reading, tone in zip(readings, tones)])
        search = GridSearchCV(
            *_machine_and_grid(readings[0].instruction.size, len(train)),
            cv=StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed),
        )
        search.fit(features, truth, groups=groups)
        self._machine = search.best_estimator_
        decided = self.decide([(one.case, one.verdict) for one in held_out])
        chosen = {
            name.rpartition("__")[2]: value for name, value in search.best_params_.items() if name.startswith("svc")
        }
        self.report = {
            **_measures(held_out, decided),
            "parameters": {
                **chosen,
                "components": getattr(search.best_params_["blocks__instruction"], "n_components", 0),
            },
            "cross_validation": round(float(search.best_score_), 4),
            "train": _counts(train),
            "test": _counts(held_out),
            "seed": seed,
            "encoder": self.embed.name,
        }
        return self.report

    def decide(self, pairs: Sequence[tuple[Case, Verdict]]) -> list[Quality]:
        """Return the quality of each (case, verdict).

        Raises:
            RecordError: a verdict is invalid, or nothing has been fitted or loaded.
        """
        self._require()
        if not pairs:
            return []
        readings = self._read(pairs)
        features = np.array([reading.features(_tones(self._tone, reading)) for reading in readings])
        values = self._machine.decision_function(features)
        return [Quality(QUALITIES[int(value > 0)], float(value)) for value in values]

    def save(self, folder: str | Path) -> None:
        """Write the classifier into a folder: quality.skops, and quality.json with its encoder and its report."""
        self._require()
        folder = Path(folder)
        archive = skops.io.dumps({"machine": self._machine, "tone": self._tone})
        scratch = folder / ".quality.skops.tmp"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            scratch.write_bytes(archive)
            scratch.replace(folder / "quality.skops")
        except OSError as error:
            raise RecordError(f"{folder}: {error.strerror or error}") from None
        known = {
            "features": FEATURES,
            "encoder": self.embed.name,
            "encoder_fingerprint": self.embed.fingerprint,
            "archive": hashlib.sha256(archive).hexdigest(),
            "scikit-learn": sklearn.__version__,
            "report": self.report,
        }
        write_whole(folder / "quality.json", json.dumps(known, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: str | Path, embed: Encoder) -> "QualityClassifier":
        """Read a classifier from a folder. Nothing in it is run: a type that skops does not trust is refused.

        Raises:
            RecordError: no classifier there, another encoder or other features than it was trained with, untrusted types.
        """
        file = Path(folder) / "quality.skops"
        try:
            known = dict(json.loads((Path(folder) / "quality.json").read_text(encoding="utf-8")))
            archive = file.read_bytes()
            if untrusted := skops.io.get_untrusted_types(data=archive):
                raise RecordError(f"{file}: holds the type {untrusted[0]}, which a quality classifier has not")
            parts = skops.io.loads(archive, trusted=[])
        except OSError as error:
            raise RecordError(f"{error.filename or folder}: {error.strerror or error}") from None
        except RecordError:
            raise
        except Exception as error:  # noqa: BLE001 - a broken archive makes zipfile, json and skops raise what they like
            raise RecordError(f"{folder}: cannot be read: {' '.join(str(error).split())[:200]}") from None
        if known.get("archive") != hashlib.sha256(archive).hexdigest():
            raise RecordError(f"{file}: is not the file that quality.json beside it was written with; train it anew")
        if known.get("features") != FEATURES:
            raise RecordError(
                f"{folder}: has features of version {known.get('features')}, not {FEATURES}; train it anew"
            )
        if known.get("encoder_fingerprint") != embed.fingerprint:
            raise RecordError(
                f"{folder}: was trained with the encoder {known.get('encoder')} ({known.get('encoder_fingerprint')}), "
                f"not {embed.name} ({embed.fingerprint})"
            )
        classifier = cls(embed)
        classifier.report = known.get("report", {})
        classifier._machine, classifier._tone = parts["machine"], parts["tone"]
        return classifier

    def _require(self) -> None:
        if self._machine is None:
            raise RecordError("the quality classifier has not been trained; fit it, or load one")

    def _read(self, pairs: Sequence[tuple[Case, Verdict]]) -> list["_Reading"]:
        texts: dict[str, int] = {}
        for case, verdict in pairs:
            if not verdict.valid:
                raise RecordError(f"{_shown(verdict)} is invalid; only valid ones have a quality")
            for text in _texts(case, verdict):
                texts.setdefault(text, len(texts))
        vectors = np.asarray(self.embed.encode(list(texts)), dtype=np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        found = {text: vectors[row] for text, row in texts.items()}
        return [_Reading(case, verdict, found) for case, verdict in pairs]


class _Reading:
    """The vectors of one verdict's texts, and the features that follow from them."""

    def __init__(self, case: Case, verdict: Verdict, vectors: Mapping[str, np.ndarray]):
        rationale = verdict.rationale or ""
        steps = split_steps(rationale)
        count = len(verdict.order)
        self.instruction = np.mean([vectors[text] for text in _texts(case, verdict)], axis=0)
        doctors = [doctor for doctor in range(1, count + 1) if doctor in steps]
        self.steps = np.array([vectors[steps[doctor]] for doctor in doctors]).reshape(
            len(doctors), self.instruction.size
        )
        scores = verdict.scores or (None,) * len(case.responses)
        given = [scores[verdict.order[doctor - 1]] for doctor in doctors]
        self.scores = np.array([np.nan if score is None else score for score in given], dtype=float)
        question = vectors[question_text(case.question)]
        responses = [case.responses[index].text for index in verdict.order]
        near = self.steps @ np.array([vectors[text] for text in responses]).T
        words = [terms(steps[doctor]) for doctor in doctors]
        told = [terms(text) for text in responses]
        shared = np.array([[len(one & other) / max(len(one), 1) for other in told] for one in words])
        lengths = [len(steps.get(doctor, "").split()) for doctor in range(1, count + 1)]
        marked = misattributions(case, verdict)
        self.relations = [
            *_closeness(near, doctors),
            *_closeness(shared.reshape(near.shape), doctors),
            float(vectors[steps[0]] @ question) if 0 in steps else 0.0,
            float(np.mean(self.steps @ question)) if doctors else 0.0,
            (count - len(doctors)) / count,
            float(rationale.rstrip().endswith((".", "!", "?", '"', "”", ")"))),
            np.log1p(min(lengths)),
            np.log1p(np.mean(lengths)),
            float(len(marked)),
            sum(mark.weight for mark in marked),
        ]

    def features(self, tones: np.ndarray) -> np.ndarray:
        """Return the features [d + relations + 6]; `tones` are the scores [steps] that the steps' words would suggest."""
        use = ~np.isnan(self.scores)
        return np.concatenate([self.instruction, self.relations, _fit_of_scores(self.scores[use], tones[use])])


def _fit_of_scores(scores: np.ndarray, tones: np.ndarray) -> list[float]:
    """Return whether scores fit the tones of their steps.

    Mean and greatest distance, how far the tones are apart in the order of the scores, the pair that contradicts most, what
    exchanging two scores would gain for the pair where it gains most, and the range of the scores.
    """
    if len(scores) < 2:
        return [*([abs(scores - tones)[0]] * 2 if len(scores) else [0.0, 0.0]), 0.0, 0.0, 0.0, 0.0]
    off = np.abs(scores[:, None] - tones)  # of one step's score from another's tone
    own, pairs = np.diag(off), np.triu_indices(len(scores), 1)
    ahead, apart = (scores[:, None] - scores)[pairs], (tones[:, None] - tones)[pairs]
    agreement = (np.sign(ahead) * apart).sum() / max(np.abs(np.sign(ahead)).sum(), 1.0)
    gain = (own[:, None] + own - off - off.T)[pairs]
    return [own.mean(), own.max(), agreement, (ahead * apart).min(), gain.max(), np.ptp(scores)]


def _closeness(near: np.ndarray, doctors: Sequence[int]) -> list[float]:
    """Return whether steps are close to their own responses, by closeness [steps, responses].

    Least and mean closeness to the own response, least and mean lead over the closest other, and what exchanging the two
    doctors would gain for whom it gains most.
    """
    if not doctors or near.shape[1] < 2:
        return [*([near.min(), near.mean()] if doctors else [0.0, 0.0]), 0.0, 0.0, 0.0]
    rows, columns = np.arange(len(doctors)), np.array(doctors) - 1
    own, others = near[rows, columns], near.copy()
    others[rows, columns] = -np.inf
    lead = own - others.max(axis=1)
    gained = near[:, columns] - own[:, None]  # of one step on the response of another
    gain = (gained + gained.T)[np.triu_indices(len(doctors), 1)]
    return [own.min(), own.mean(), lead.min(), lead.mean(), gain.max() if gain.size else 0.0]


def draw(labelled: Iterable[Labelled], seed: int, per_quality: int, test: int) -> tuple[list[Labelled], list[Labelled]]:
    """Return verdicts to train on and verdicts to measure on, as many of either quality; no case is in both."""
    by_case: dict[str, list[Labelled]] = {}
    for one in labelled:
        by_case.setdefault(one.case.id, []).append(one)
    fewest = min(sum(one.quality == quality for many in by_case.values() for one in many) for quality in QUALITIES)
    share = min(1.0, fewest / (per_quality + test / 2))
    wanted = [(int(share * test / 2), held_out := []), (int(share * per_quality), train := [])]
    rng = random.Random(seed)
    for case_id in rng.sample(sorted(by_case), len(by_case)):
        # A case goes to the test as long as that lacks what the case has.
        has = {one.quality for one in by_case[case_id]}
        most, chosen = next(((m, c) for m, c in wanted if any(_count(c, quality) < m for quality in has)), (0, []))
        for one in rng.sample(by_case[case_id], len(by_case[case_id])):
            if _count(chosen, one.quality) < most:
                chosen.append(one)
    return train, held_out


def _count(labelled: Sequence[Labelled], quality: str) -> int:
    return sum(one.quality == quality for one in labelled)


def _counts(labelled: Sequence[Labelled]) -> dict[str, int]:
    return {"cases": len({one.case.id for one in labelled}), **{name: _count(labelled, name) for name in QUALITIES}}


def _refuse_few(train: Sequence[Labelled], held_out: Sequence[Labelled]) -> None:
    for quality in QUALITIES:
        found, measured = _count(train, quality), _count(held_out, quality)
        if found < FEWEST or not measured:
            raise RecordError(
                f"{found} verdicts of {quality} quality to train on and {measured} to measure on: at least {FEWEST} and 1 "
                "of each quality are needed, about different cases"
            )


def _texts(case: Case, verdict: Verdict) -> list[str]:
    """Return the texts that make up an instruction: question, responses shown, steps of the rationale."""
    responses = [case.responses[index].text for index in verdict.order]
    return [question_text(case.question), *responses, *split_steps(verdict.rationale or "").values()]


def _fit_tone(readings: Sequence[_Reading]) -> Ridge:
    """Learn which score the words of a step go with, from verdicts of high quality."""
    steps = np.concatenate([one.steps for one in readings])
    scores = np.concatenate([one.scores for one in readings])
    use = ~np.isnan(scores)
    if not use.any():
        raise RecordError("no verdict of high quality has steps on doctors and scores for them")
    return Ridge(alpha=1.0).fit(steps[use], scores[use])


def _tones(tone: Ridge, reading: _Reading) -> np.ndarray:
    return tone.predict(reading.steps) if reading.steps.size else np.empty(0)


def _machine_and_grid(width: int, verdicts: int) -> tuple[Pipeline, list[dict[str, list]]]:
    """Return the pipeline and what its grid search goes through; `width` is the embedding's."""
    most = min(width, verdicts * (FOLDS - 1) // FOLDS - 1)
    sizes = sorted({min(size, most) for size in COMPONENTS})
    instruction = ["drop" if not size else PCA(size, whiten=True, random_state=0) for size in sizes]
    blocks = ColumnTransformer(
        [("instruction", "drop", slice(0, width)), ("relations", StandardScaler(), slice(width, None))]
    )
    machine = Pipeline([("blocks", blocks), ("svc", SVC(class_weight="balanced"))])
    shared = {"blocks__instruction": instruction, "svc__C": list(PENALTIES)}
    return machine, [
        {**shared, "svc__kernel": ["linear"]},
        {**shared, "svc__kernel": ["rbf"], "svc__gamma": list(WIDTHS)},
    ]


def _measures(held_out: Sequence[Labelled], decided: Sequence[Quality]) -> dict[str, Any]:
    cases = {case_id: row for row, case_id in enumerate(dict.fromkeys(one.case.id for one in held_out))}
    right, total = np.zeros(len(cases)), np.zeros(len(cases))
    confusion = {quality: dict.fromkeys(QUALITIES, 0) for quality in QUALITIES}
    kinds: dict[str, dict[str, int]] = {}
    for one, found in zip(held_out, decided):
        hit = one.quality == found.label
        right[cases[one.case.id]] += hit
        total[cases[one.case.id]] += 1
        confusion[one.quality][found.label] += 1
        kind = kinds.setdefault(one.kind or one.quality, {"right": 0, "n": 0})
        kind["right"] += int(hit)
        kind["n"] += 1
    accuracy = bootstrap.estimate({"accuracy": bootstrap.ratio(right, total)}, len(cases))["accuracy"]
    return {"accuracy": accuracy.to_dict(), "confusion": confusion, "kinds": dict(sorted(kinds.items()))}


def _shown(verdict: Verdict) -> str:
    return f"the verdict of {verdict.judge} on the case {verdict.case_id!r}"
