"""Calibration: log-likelihoods without a scale become scores on the scale that people rated on, learnt from a few rated cases.

Figures of a response are how far its log-likelihood lies above the mean of its case, of a channel judge also how far what the
best score gives the question over the worst lies above that mean, and this last mean itself. The first two order the responses
of a case, and their weights are learnt from the pairs that people put in an order, by logistic regression (Bradley and Terry's
model on figures); one that orders may count for nothing, but never against a response. The last tells cases apart. People's
mean ratings are then a linear function of the two parts, by least squares. A whole score comes from cut points that give the
scores the shares that they have among people's ratings (equipercentile linking, Kolen & Brennan, chapter 2): a regression's
values keep to the middle, so that rounding them would give nearly everything one score.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear, minimize
from scipy.special import expit

from automedeval.agreement import SAME, Panel, accuracies
from automedeval.records import Rating, RecordError, Verdict
from automedeval.rubrics import Rubric
from automedeval.scaling import FOLDS, calibration_facts, check_enough, models_of, rated_responses, without_scores

RIDGE = 0.01  # holds the weights where people's order is met without a fault
NAMES = {2: ("value_in_case", "case"), 3: ("likelihood_in_case", "contrast_in_case", "case")}


@dataclass(frozen=True)
class Calibration:
    """A line from figures to ratings, and the cut points between scores.

    Args:
        weights: by `NAMES` of the figures, in points per nat per token, the intercept first.
        levels: the scores that people gave, ascending; no other is given.
        cuts: between one level and the next, in points.
        settings: of the judge whose verdicts it was learnt from; it fits no other's.
    """

    rubric: Rubric
    weights: tuple[float, ...]
    levels: tuple[int, ...]
    cuts: tuple[float, ...]
    settings: str | None
    facts: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over the judge's settings and what was learnt."""
        told = [self.settings, self.rubric.fingerprint, self.weights, self.levels, self.cuts]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]

    @classmethod
    def fit(cls, verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric) -> "Calibration":
        """Learn from one judge's verdicts on rated cases.

        Args:
            verdicts: without a scale, one of each case; invalid ones, and responses without a rating, say nothing.
            ratings: on the rubric's scale; those of other cases are passed over. The mean over a response's ratings counts.

        Raises:
            RecordError: too few rated cases, one rating throughout, a rating off the scale, or verdicts of several judges.
        """
        given = rated_responses(verdicts, ratings, rubric)
        figures, means, single, sizes = [], [], [], []
        for verdict in verdicts:
            known = [(place, given.get((verdict.case_id, models_of(verdict)[place]))) for place in verdict.order]
            known = [(place, scores) for place, scores in known if scores]
            if verdict.valid and known:
                rows = dict(zip(sorted(verdict.order), figures_of(verdict)))
                figures += [rows[place] for place, _ in known]
                means += [sum(scores) / len(scores) for _, scores in known]
                single += [score for _, scores in known for score in scores]
                sizes.append(len(known))
        check_enough(len(sizes), np.array(means))
        x, y = np.column_stack([np.ones(len(figures)), figures]), np.array(means)
        weights = _weights(x, y, Panel.of_sizes(sizes))
        if np.ptp(x @ weights) < SAME:
            raise RecordError("the judge gives every response the same; there is nothing to learn from that")
        whole = np.floor(np.array(single) + 0.5).astype(int)
        levels, counts = np.unique(whole, return_counts=True)
        cuts = np.quantile(x @ weights, np.cumsum(counts)[:-1] / len(whole))
        facts = {"cases": len(sizes), "responses": len(y), "ratings": len(single)}
        apart = _apart(x, y, sizes)
        facts |= {"concordance": _concordances(x, y, sizes, apart)}
        case = np.repeat(np.arange(len(sizes)), sizes)
        facts |= calibration_facts("what has no scale cannot be off it", np.clip(apart, *rubric.scale), y, case)
        settings = verdicts[0].extra.get("settings")
        weights, cuts = (tuple(np.round(values, 6).tolist()) for values in (weights, cuts))
        return cls(rubric, weights, tuple(levels.tolist()), cuts, settings, facts)

    def apply(self, verdict: Verdict, name: str) -> Verdict:
        """Return the verdict on the rubric's scale, under the judge's new name; an invalid one stays invalid.

        Raises:
            RecordError: the verdict is of another judge, or of other settings, than this was learnt from.
        """
        fresh = without_scores(verdict, name, self.rubric, self.settings, self.fingerprint)
        if not verdict.valid:
            return fresh
        low, high = self.rubric.scale
        points = np.column_stack([np.ones(len(verdict.order)), figures_of(verdict)]) @ self.weights
        scores: list[int | None] = [None] * len(verdict.expected_scores)
        expected: list[float | None] = [None] * len(scores)
        for place, value in zip(sorted(verdict.order), points):
            scores[place] = self.levels[int(np.searchsorted(self.cuts, value))]
            expected[place] = round(float(np.clip(value, low, high)), 6)
        return replace(fresh, scores=tuple(scores), expected_scores=tuple(expected))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "rubric": self.rubric.name,
            "judge_settings": self.settings,
            "weights": dict(zip(("intercept", *NAMES[len(self.weights) - 1]), self.weights)),
            "levels": list(self.levels),
            "cuts": list(self.cuts),
            **self.facts,
        }


def figures_of(verdict: Verdict) -> np.ndarray:
    """Return [responses shown, in the case's order; figures]: those that `NAMES` has for a likelihood and a channel judge.

    Raises:
        RecordError: the verdict has no figures, or is on a scale already.
    """
    places = sorted(verdict.order)
    if verdict.scores is not None or verdict.expected_scores is None:
        raise RecordError(f"case {verdict.case_id!r}: only verdicts without a scale are calibrated here")
    own = np.array([verdict.expected_scores[place] for place in places], float)
    columns = [own - own.mean(), np.full(len(places), own.mean())]
    by_score = verdict.extra.get("likelihoods")
    if by_score is not None:
        best = np.array([by_score[max(by_score, key=int)][place] for place in places], float)
        columns.insert(0, best - best.mean())
    figures = np.column_stack(columns)
    if not np.isfinite(figures).all():
        raise RecordError(f"case {verdict.case_id!r}: a response that was shown has no number")
    return figures


def _weights(x: np.ndarray, y: np.ndarray, panel: Panel) -> np.ndarray:
    """Return the weights of intercept and figures [columns of x]; those within cases, all but the last, are 0 or more."""
    first, second = panel.pairs
    order = panel.relations(y)
    inside = x[:, 1:-1]
    gaps = ((inside[first] - inside[second]) * order[:, None])[order != 0]
    spread = np.sqrt((gaps**2).mean(axis=0)) if len(gaps) else np.zeros(inside.shape[1])
    spread[spread < SAME] = np.inf  # what never differs orders nothing
    gaps = gaps / spread

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = gaps @ weights
        slope = -expit(-margins) @ gaps + RIDGE * weights
        return float(np.logaddexp(0, -margins).sum() + RIDGE / 2 * (weights**2).sum()), slope

    start = np.zeros(inside.shape[1])
    told = minimize(loss, start, jac=True, bounds=[(0, None)] * len(start)).x / spread if len(gaps) else start
    # The slope only stretches the order, and never turns it.
    parts = np.column_stack([x[:, 0], inside @ told, x[:, -1]])
    intercept, slope, level = lsq_linear(parts, y, ([-np.inf, 0, -np.inf], np.inf), method="bvls").x
    return np.array([intercept, *(slope * told), level])


def _apart(x: np.ndarray, y: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the points [responses] that the line of the other cases gives each case."""
    panel, apart = Panel.of_sizes(sizes), np.empty(len(y))
    folds = min(len(sizes), FOLDS)
    for fold in range(folds):
        held = panel.case % folds == fold
        others = Panel.of_sizes([size for case, size in enumerate(sizes) if case % folds != fold])
        apart[held] = x[held] @ _weights(x[~held], y[~held], others)
    return apart


def _concordances(x: np.ndarray, y: np.ndarray, sizes: Sequence[int], apart: np.ndarray) -> dict[str, float | None]:
    """Return the concordance with people of each figure within cases, and of the line that the other cases give each case.

    None where people order no pair of responses.
    """
    panel = Panel.of_sizes(sizes)
    people = panel.relations(y)

    def concordance(values: np.ndarray) -> float | None:
        one = accuracies(panel, people, panel.relations(values))["concordance"]
        value = float(one.of(one.sums(np.ones((1, len(sizes)))))[0])
        return round(value, 4) if np.isfinite(value) else None

    names = NAMES[x.shape[1] - 1][:-1]
    return {name: concordance(x[:, at]) for at, name in enumerate(names, 1)} | {"cross_fitted": concordance(apart)}
