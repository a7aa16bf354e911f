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
from scipy.optimize import isotonic_regression, lsq_linear, minimize
from scipy.special import expit

from automedeval.records import Rating, RecordError, Verdict
from automedeval.rubrics import Rubric, without_scale
from automedeval.stats.agreement import SAME, Panel, accuracies
from automedeval.stats.bootstrap import Estimate, estimate
from automedeval.stats.calibration_error import (
    FOLDS,
    calibration_error,
    calibration_floor,
    calibration_noise,
    reliability_bins,
)

FEWEST = 10  # rated cases, below which there would be next to nothing to learn from


@dataclass(frozen=True)
class Scaling:
    """A line from a judge's scores to people's, and the cut points between whole scores.

    Args:
        source: "expected_scores", or "scores" of a judge whose verdicts do not all have them.
        knots: (judge's score, people's), ascending in both; straight lines between them, level beyond them.
        levels: the scores that people gave, ascending; no other is given.
        cuts: between one level and the next, in the judge's own points.
        settings: of the judge whose verdicts it was learnt from; it fits no other's.
    """

    rubric: Rubric
    source: str
    knots: tuple[tuple[float, float], ...]
    levels: tuple[int, ...]
    cuts: tuple[float, ...]
    settings: str | None
    facts: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over the judge's settings and what was learnt."""
        told = [self.settings, self.rubric.fingerprint, self.source, self.knots, self.levels, self.cuts]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]

    @classmethod
    def fit(cls, verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric) -> "Scaling":
        """Learn from one judge's verdicts on rated cases.

        Args:
            verdicts: with scores; several readings of a response (orders, runs, groups) count together as one. Invalid
                verdicts, and responses without a rating, say nothing.
            ratings: on the rubric's scale; those of other cases are passed over. The mean over a response's ratings counts.

        Raises:
            RecordError: too few rated cases, one rating throughout, a rating off the scale, verdicts of several judges or
                without scores, or people's ratings do not rise with the judge's scores.
        """
        given = rated_responses(verdicts, ratings, rubric)
        valid = [verdict for verdict in verdicts if verdict.valid]
        source = "expected_scores" if all(verdict.expected_scores is not None for verdict in valid) else "scores"
        readings = [
            (verdict.case_id, model, value)
            for verdict in sorted(valid, key=lambda verdict: (verdict.case_id, verdict.order, verdict.run))
            for model, value in zip(models_of(verdict), _values(verdict, source))
            if value is not None and (verdict.case_id, model) in given
        ]
        responses = {key: number for number, key in enumerate(dict.fromkeys(reading[:2] for reading in readings))}
        cases = {case_id: number for number, case_id in enumerate(dict.fromkeys(case_id for case_id, _ in responses))}
        people = np.array([np.mean(given[key]) for key in responses])
        check_enough(len(cases), people)
        case = np.array([cases[case_id] for case_id, _ in responses])
        of = np.array([responses[reading[:2]] for reading in readings])
        x, weight = np.array([value for *_, value in readings], float), 1 / np.bincount(of)[of]
        knots = _knots(x, people[of], weight)
        if len(knots) < 2:
            raise RecordError(
                "people's ratings do not rise with the judge's scores; there is nothing to learn from that"
            )
        single = np.floor(np.concatenate([given[key] for key in responses]) + 0.5).astype(int)
        levels, counts = np.unique(single, return_counts=True)
        shares = np.cumsum(counts)[:-1] / len(single)
        cuts = np.quantile(x, shares, weights=weight, method="inverted_cdf")
        before = np.bincount(of, weights=x * weight)
        after = np.empty(len(people))
        folds = min(len(cases), FOLDS)
        for fold in range(folds):
            held = case % folds == fold
            line = _knots(x[~held[of]], people[of][~held[of]], weight[~held[of]])
            after[held] = np.bincount(of, weights=np.interp(x, *zip(*line)) * weight)[held]
        own = {verdict.rubric for verdict in valid} == {rubric.name}
        reason = (
            None
            if own
            else f"judged by {', '.join(sorted({verdict.rubric for verdict in valid}))}, on a scale of its own"
        )
        facts = {"cases": len(cases), "responses": len(people), "ratings": len(single)}
        facts |= calibration_facts(before if own else reason, after, people, case)
        settings = verdicts[0].extra.get("settings")
        return cls(rubric, source, knots, tuple(levels.tolist()), tuple(np.round(cuts, 6).tolist()), settings, facts)

    def apply(self, verdict: Verdict, name: str) -> Verdict:
        """Return the verdict on the rubric's scale, under the judge's new name; an invalid one stays invalid.

        Raises:
            RecordError: the verdict is of another judge, or of other settings, than this was learnt from.
        """
        fresh = without_scores(verdict, name, self.rubric, self.settings, self.fingerprint)
        if not verdict.valid:
            return fresh
        values = _values(verdict, self.source)
        points = [None if value is None else float(np.interp(value, *zip(*self.knots))) for value in values]
        # Rounded as the cuts are: one of them is the very value of some response.
        places = [None if value is None else int(np.searchsorted(self.cuts, round(value, 6))) for value in values]
        whole = [None if place is None else self.levels[place] for place in places]
        expected = tuple(None if point is None else round(point, 6) for point in points)
        return replace(fresh, scores=tuple(whole), expected_scores=expected)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "rubric": self.rubric.name,
            "judge_settings": self.settings,
            "from": self.source,
            "knots": [list(knot) for knot in self.knots],
            "levels": list(self.levels),
            "cuts": list(self.cuts),
            **self.facts,
        }


def without_scores(verdict: Verdict, name: str, rubric: Rubric, settings: str | None, fingerprint: str) -> Verdict:
    """Return a verdict under its judge's new name, rubric and fingerprint; the scores are for the caller to fill in.

    Args:
        settings: of the judge that the new scores were learnt from.

    Raises:
        RecordError: the verdict is of another judge, or of other settings.
    """
    if verdict.extra.get("settings") != settings:
        raise RecordError(f"case {verdict.case_id!r}: judged with other settings than the verdicts to calibrate with")
    extra = {**verdict.extra, "settings": fingerprint}
    return replace(verdict, judge=name, rubric=rubric.name, scores=None, expected_scores=None, extra=extra)


def rated_responses(
    verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric
) -> dict[tuple[str, str], list[float]]:
    """Return (case id, model) → the ratings of a response that the verdicts are on.

    Raises:
        RecordError: the rubric has no scale, a rating is off it or was given before, a verdict names no models, or the
            verdicts are of several judges.
    """
    if rubric.scale is None:
        raise RecordError(f"the rubric {rubric.name} gives choices, not scores")
    low, high = rubric.scale
    models: dict[str, list[str]] = {verdict.case_id: models_of(verdict) for verdict in verdicts}
    given: dict[tuple[str, str], list[float]] = {}
    seen: set[tuple[str, ...]] = set()
    for rating in ratings:
        if rating.model in models.get(rating.case_id, ()):
            if not low <= rating.score <= high:
                raise RecordError(
                    f"case {rating.case_id!r}: the rating {rating.score:g} is off {rubric.name}'s scale {low} to {high}"
                )
            key = (rating.case_id, rating.model, rating.annotator, rating.criterion)
            if key in seen:
                raise RecordError(f"case {rating.case_id!r}: {rating.annotator!r} rated {rating.model!r} before")
            seen.add(key)
            given.setdefault(key[:2], []).append(rating.score)
    if len({verdict.extra.get("settings") for verdict in verdicts}) > 1:
        raise RecordError("the verdicts to calibrate with are of several judges, or of one with several settings")
    return given


def models_of(verdict: Verdict) -> list[str]:
    """Return the names of the models of a verdict's case, in the order of its responses.

    Raises:
        RecordError: the verdict does not record them.
    """
    models = verdict.extra.get("models")
    if not isinstance(models, list) or len(models) <= max(verdict.order, default=-1):
        raise RecordError(f"case {verdict.case_id!r}: the verdict does not name the models whose responses it is on")
    return models


def check_enough(cases: int, people: np.ndarray) -> None:
    """Raise RecordError where ratings [responses] of so many cases leave nothing to learn."""
    if cases < FEWEST:
        raise RecordError(f"{cases} rated cases with a valid verdict; a calibration needs {FEWEST} at least")
    if len(set(people.tolist())) == 1:
        raise RecordError(f"every response is rated {people[0]:g}; there is nothing to learn from that")


def calibration_facts(
    before: np.ndarray | str, after: np.ndarray, people: np.ndarray, case: np.ndarray
) -> dict[str, Any]:
    """Return expected calibration errors with intervals over cases, and the bins that they are of.

    Distances grow with noise, so that the figure is too high by about as much as a resample of the cases is higher still. The
    upper end is that of the resamples, moved down by this. The lower end is 0 where the figure is no more than
    `calibration_noise` makes of a perfect judge, and else that of `calibration_floor`, which noise hardly lifts.

    Args:
        before, after: scores [responses] without and with calibration, `after` cross-fitted; a text says why there is no
            score before.
        people: people's mean ratings [responses].
        case: int [responses], from 0 without a gap.
    """
    scores = {"before": before, "after": after}
    known = {name: values for name, values in scores.items() if not isinstance(values, str)}
    kinds = {"error": calibration_error, "noise": calibration_noise, "floor": calibration_floor}
    statistics = {
        name: {kind: of(values, people, case) for kind, of in kinds.items()} for name, values in known.items()
    }
    errors = {name: _moved(**parts) for name, parts in estimate(statistics, int(case.max()) + 1).items()}
    missing = {name: {"value": None, "reason": why} for name, why in scores.items() if name not in known}
    return {
        "calibration_error": missing | {name: error.to_dict() for name, error in errors.items()},
        "reliability": {name: reliability_bins(values, people) for name, values in known.items()},
    }


def _moved(error: Estimate, noise: Estimate, floor: Estimate) -> Estimate:
    if error.low is None or noise.high is None or floor.low is None:
        return error
    excess = float(error.draws.mean()) - error.value
    low = 0.0 if error.value <= noise.high else min(max(0.0, floor.low), error.value)
    return replace(error, low=low, high=max(error.value, error.high - excess))


def _knots(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return the centres of the steps of isotonic regression of y on x, ascending in both."""
    levels, level = np.unique(x, return_inverse=True)
    weights = np.bincount(level, weights=weight)
    fitted = isotonic_regression(np.bincount(level, weights=weight * y) / weights, weights=weights)
    block = np.repeat(np.arange(len(fitted.blocks) - 1), np.diff(fitted.blocks))
    heights = fitted.x[fitted.blocks[:-1]]
    centres = np.bincount(block, weights=weights * levels) / np.bincount(block, weights=weights)
    return tuple(zip(np.round(centres, 6).tolist(), np.round(heights, 6).tolist()))


def _values(verdict: Verdict, source: str) -> Sequence[float | None]:
    values = getattr(verdict, source)
    if without_scale(verdict.rubric):
        raise RecordError(f"case {verdict.case_id!r}: numbers by {verdict.rubric} are no scores")
    if values is None:
        what = source.replace("_", " ")
        raise RecordError(
            f"case {verdict.case_id!r}: the verdict has no {what}, and there is nothing else to calibrate"
        )
    return values


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
