"""Classify verdicts as high or low quality (paper, Appendix B).

The paper embeds each instruction with a SimCSE encoder and trains a support vector machine by grid search on 200 verdicts of
high and 200 of low quality. An embedding of the whole does not show that two doctors were swapped or that scores contradict the
words; the report says how far it comes alone. So there are more features here: how close each step is to its response, and
each score to the tone of its step.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy import ndarray
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedGroupKFold,
    cross_val_predict,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import SVC

from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    Verdict,
    foreign_errors_at,
    question_text,
)
from automedeval.rubrics.rationale import split_steps
from automedeval.rubrics.slots import by_slot
from automedeval.stats import bootstrap
from automedeval.study.dataset.corruption import corrupt
from automedeval.study.dataset.terms import terms

if TYPE_CHECKING:  # slow to import
    from automedeval.models.embeddings import Encoder

QUALITIES = ("low", "high")
# A fold is the test. Paper: 400 verdicts to train on, 100 others to measure on (Appendix B)
FOLDS = 5
FEWEST = 25  # verdicts of a quality: with fewer, a grid search chooses by chance
PENALTIES = (0.1, 1.0, 10.0)
WIDTHS = ("scale", 0.003, 0.01, 0.03)
COMPONENTS = 16  # of the instruction's embedding
Shown = tuple[Case, Verdict]  # a verdict, and its case with the responses that the verdict is on


@dataclass(frozen=True)
class Labelled:
    """A verdict of known quality; `kind` names its fault, or is "high" too."""

    shown: Shown
    quality: str
    kind: str


def labelled(high: Sequence[Shown], faulty: Sequence[Shown], seed: int) -> list[Labelled]:
    """Return verdicts to learn from: good ones with a rationale, and those in which physicians saw a fault.

    As many corrupted copies of good ones as there are fewer `faulty` than `high` are of low quality too.
    """
    cases = {case.id: case for case, _ in high}
    corrupted = corrupt([verdict for _, verdict in high[len(faulty) :]], cases, seed)
    examples = [Labelled(shown, "high", "high") for shown in high if shown[1].rationale]
    examples += [Labelled(shown, "low", "by_physicians") for shown in faulty]
    for verdict in corrupted:
        shown = (cases[verdict.case_id], verdict)
        examples.append(Labelled(shown, "low", verdict.extra["corruption"]))
    return examples


class QualityClassifier:
    """Tell verdicts of high quality from those of low quality; `embed` turns texts into vectors."""

    def __init__(self, embed: "Encoder"):
        self.embed = embed

    def fit(self, examples: Sequence[Labelled], seed: int) -> JsonObject:
        """Train on four of five verdicts, and measure on the others, on other cases; `seed` draws the folds.

        Args:
            examples: verdicts of quality "high" or "low", at least `FEWEST` of each.

        Returns:
            The report. On the test: "accuracy" with its interval over cases, "kinds" {kind: {"right", "n"}}, and in "alone" the
            same of the paper's classifier, which has the embedding alone. "train" and "test" hold counts.

        Raises:
            RecordError: one quality only, or too few verdicts, cases, or steps with scores.
        """
        truth = np.array([example.quality == "high" for example in examples], int)
        fewest = min(np.bincount(truth, minlength=2))
        if fewest < FEWEST:
            raise RecordError(
                f"{fewest} verdicts of the rarer quality, high or low, and at least {FEWEST} of "
                "each are needed to learn it: give more verdicts, or a plan without quality"
            )
        cases = _cases_of(examples)
        with foreign_errors_at("the quality of verdicts cannot be learnt", ValueError):
            train, test = next(_folds(seed).split(truth, truth, cases))
            known = self._read([examples[at].shown for at in train])
            tones = self._learn_tone(known, truth[train], cases[train])
            instructions = _instructions(known)
            width = instructions.shape[1]
            components = PCA(min(COMPONENTS, width), whiten=True, random_state=0)
            of_instruction = ("instruction", components, slice(width))
            others = ("others", StandardScaler(), slice(width, None))
            self._machine = _search(ColumnTransformer([of_instruction, others]), seed)
            self._machine.fit(_features(known, tones), truth[train], groups=cases[train])
            alone = _search(StandardScaler(), seed)
            alone.fit(instructions, truth[train], groups=cases[train])
        held_out = [examples[at] for at in test]
        shown = [example.shown for example in held_out]
        decided_alone = _names(alone.predict(_instructions(self._read(shown))))
        return {
            **_measures(held_out, self.decide(shown)),
            "alone": _measures(held_out, decided_alone),
            "train": _counts([examples[at] for at in train]),
            "test": _counts(held_out),
            "seed": seed,
            "encoder": self.embed.name,
        }

    def decide(self, verdicts: Sequence[Shown]) -> list[str]:
        """Return the quality of each valid verdict after `fit`: "high" or "low"."""
        readings = self._read(verdicts)
        steps = np.concatenate([reading.steps for reading in readings])
        tones = self._tone.predict(steps) if len(steps) else np.empty(0)
        return _names(self._machine.predict(_features(readings, tones)))

    def _learn_tone(self, known: Sequence["_Reading"], truth: ndarray, cases: ndarray) -> ndarray:
        """Learn to tell a score by the words of its step; return the tone of each step by what its case did not teach.

        Only verdicts of high quality teach.
        """
        numbers = [len(reading.scores) for reading in known]
        teaches = np.repeat(truth, numbers)
        if not teaches.any():
            raise RecordError("no verdict of high quality has steps on doctors and scores for them")
        steps = np.concatenate([reading.steps for reading in known])
        scores = np.concatenate([reading.scores for reading in known])
        self._tone = Ridge().fit(steps, scores, teaches)
        return cross_val_predict(
            Ridge(),
            steps,
            scores,
            groups=np.repeat(cases, numbers),
            cv=GroupKFold(FOLDS),
            params={"sample_weight": teaches},
        )

    def _read(self, verdicts: Sequence[Shown]) -> list["_Reading"]:
        """Embed the texts of some verdicts."""
        texts: dict[str, None] = {}
        for shown in verdicts:
            texts |= dict.fromkeys(_texts(*shown))
        vectors = normalize(np.asarray(self.embed.encode(list(texts)), float))
        vector_of = dict(zip(texts, vectors))
        return [_read(*shown, vector_of) for shown in verdicts]


class _Reading(NamedTuple):
    """What is read of one verdict.

    Its `instruction` [d] and 16 `relations`; the vectors of m `steps` [m, d] on doctors with a score, and these `scores` [m].
    """

    instruction: ndarray
    relations: list[float]
    steps: ndarray
    scores: ndarray


def _read(case: Case, verdict: Verdict, vector_of: Mapping[str, ndarray]) -> _Reading:
    question, *texts = _texts(case, verdict)
    responses = texts[: len(verdict.order)]
    steps = split_steps(verdict.rationale or "")
    own = [slot for slot in range(len(responses)) if slot + 1 in steps]
    own_steps = [steps[slot + 1] for slot in own]
    asked = vector_of[question]
    answers = np.array([vector_of[response] for response in responses])
    said = np.array([vector_of[step] for step in own_steps]).reshape(-1, len(asked))
    shared = [[_share(step, response) for response in responses] for step in own_steps]
    lengths = [len(steps.get(slot, "").split()) for slot in range(1, len(responses) + 1)]
    relations = [
        *_closeness(said @ answers.T, own),
        *_closeness(np.array(shared), own),
        vector_of[steps[0]] @ asked if 0 in steps else 0.0,
        np.mean(said @ asked) if own else 0.0,
        len(own) / len(responses),
        (verdict.rationale or "").rstrip().endswith((".", "!", "?", '"', "”", ")")),
        np.log1p(min(lengths)),
        np.log1p(np.mean(lengths)),
    ]
    given = np.array(by_slot(verdict.scores or (), verdict.order), float)[own]  # NaN for None
    scored = bootstrap.is_known(given)
    instruction = np.mean([vector_of[text] for text in (question, *texts)], axis=0)
    return _Reading(instruction, relations, said[scored], given[scored])


def _instructions(readings: Sequence[_Reading]) -> ndarray:
    """Return the instructions of n verdicts [n, d]."""
    return np.array([reading.instruction for reading in readings])


def _features(readings: Sequence[_Reading], tones: ndarray) -> ndarray:
    """Return the features of n verdicts [n, d + 23]; `tones` are the scores that the words of all their steps suggest.

    Of scores: how close they are to the tones of their steps, and whether tones are in their order.
    """
    features = []
    ends = np.cumsum([len(reading.scores) for reading in readings])
    for reading, told in zip(readings, np.split(tones, ends)):
        near = -np.abs(reading.scores[:, None] - told)
        ahead = reading.scores[:, None] - reading.scores
        apart = told[:, None] - told
        fit = _closeness(near, range(len(told)))
        fit += [(np.sign(ahead) * apart).sum(), (ahead * apart).min(initial=0)]
        features.append([*reading.instruction, *reading.relations, *fit])
    return np.array(features)


def _texts(case: Case, verdict: Verdict) -> list[str]:
    """Return the texts of an instruction: question, responses shown, steps of the rationale."""
    responses = case.texts(verdict.order)
    steps = split_steps(verdict.rationale or "")
    return [question_text(case.question), *responses, *steps.values()]


def _share(step: str, response: str) -> float:
    """Return which share of a step's terms a response has."""
    words = terms(step)
    return len(words & terms(response)) / max(len(words), 1)


def _closeness(near: ndarray, own: Sequence[int]) -> list[float]:
    """Return five features of how close things are to their own, by closeness [things, others]; `own` are the columns of these.

    Smallest and mean closeness to the own, smallest and mean lead over the closest other, and the largest gain from swapping
    the own ones of two.
    """
    if len(own) < 2:
        same = near[0, own[0]] if own else 0.0
        return [same, same, 0.0, 0.0, 0.0]
    rows = np.arange(len(own))
    same = near[rows, own]
    others = near.copy()
    others[rows, own] = -np.inf
    lead = same - others.max(axis=1)
    swapped = near[:, own]
    gain = (swapped + swapped.T - same - same[:, None])[np.triu_indices(len(own), 1)]
    return [same.min(), same.mean(), lead.min(), lead.mean(), gain.max()]


def _names(decisions: ndarray) -> list[str]:
    return [QUALITIES[high] for high in decisions]


def _folds(seed: int) -> StratifiedGroupKFold:
    return StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)


def _search(scale: Any, seed: int) -> GridSearchCV:
    """Return the search for the parameters of a support vector machine behind a step that scales."""
    pipeline = Pipeline([("scale", scale), ("svc", SVC(class_weight="balanced"))])
    linear = {"svc__C": PENALTIES, "svc__kernel": ["linear"]}
    curved = {"svc__C": PENALTIES, "svc__gamma": WIDTHS}
    return GridSearchCV(pipeline, [linear, curved], cv=_folds(seed))


def _cases_of(examples: Sequence[Labelled]) -> ndarray:
    """Return the id of each example's case."""
    return np.array([example.shown[0].id for example in examples])


def _counts(examples: Sequence[Labelled]) -> dict[str, int]:
    qualities = Counter(example.quality for example in examples)
    return {"cases": len(set(_cases_of(examples))), **qualities}


def _measures(held_out: Sequence[Labelled], decided: Sequence[str]) -> JsonObject:
    """Return the accuracy of decisions with its interval over cases, and how many were right of each kind."""
    hits = [quality == example.quality for example, quality in zip(held_out, decided)]
    kinds = {}
    for kind in sorted({example.kind for example in held_out}):
        of_kind = [hit for example, hit in zip(held_out, hits) if example.kind == kind]
        kinds[kind] = {"right": sum(of_kind), "n": len(of_kind)}
    cases, rows = np.unique(_cases_of(held_out), return_inverse=True)
    accuracy = bootstrap.mean_of(np.array(hits, float), rows, len(cases), bounds=bootstrap.SHARE)
    return {
        "accuracy": bootstrap.estimate([accuracy], len(cases))[0].to_dict(),
        "kinds": kinds,
    }
