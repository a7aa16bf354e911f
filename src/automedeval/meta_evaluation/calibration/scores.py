"""Put a judge's verdicts on the scale that people rate on, learnt from a few rated cases.

A response gets a point on people's scale and a whole score. The whole score comes from cut points, so that the scores have the
shares that they have among people's ratings (equipercentile linking, Kolen & Brennan, chapter 2): points are means, and if they
were rounded, nearly every response would have the same score.

`ScoreCalibration`: the point is a rising function of the judge's score, by isotonic regression.

`LikelihoodCalibration`: the features of a response are how far its log-likelihood lies above the mean of its case, and that
mean. The point is a linear function of both, by least squares; the weight within a case is 0 or more.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import isotonic_regression, lsq_linear

from automedeval.meta_evaluation.agreement.ratings import scores_of_people
from automedeval.records import Rating, RecordError, Verdict, digest
from automedeval.rubrics import Rubric, without_scale
from automedeval.stats.agreement import SAME, Panel, concordance
from automedeval.stats.bootstrap import Estimate, estimate, value_of
from automedeval.stats.calibration_error import (
    FOLDS,
    calibration_error,
    calibration_floor,
    calibration_noise,
    reliability_bins,
)
from automedeval.stats.folds import deal, each_fold

FEWEST = 10  # rated cases; fewer are not enough to learn from
NAMES = ("value_in_case", "case")


@dataclass(frozen=True, kw_only=True)
class Calibration(ABC):
    """A function from a judge's verdicts to scores on people's scale.

    Args:
        rubric: the rubric of people's scale.
        levels: the whole scores that people gave, ascending; no other is given.
        cuts: the cut points between one level and the next, in the judge's scores or in points.
        settings: the settings fingerprint of the judge; verdicts with other settings are refused.
        facts: what the fit measured on the rated cases, for calibration.json.
    """

    rubric: Rubric
    levels: tuple[int, ...]
    cuts: tuple[float, ...]
    settings: str | None
    facts: Mapping[str, Any]
    line: ClassVar[tuple[str, ...]]  # the fields that define the function

    @staticmethod
    def fit(verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric) -> "Calibration":
        """Learn from one judge's verdicts on rated cases.

        Args:
            verdicts: either all with or all without a scale; of verdicts without a scale one per case. Invalid verdicts and
                responses without a rating are passed over.
            ratings: on the rubric's scale; ratings of other responses are passed over.

        Raises:
            RecordError: as `rated_responses` and `check_enough`, or people's ratings do not depend on the verdicts.
        """
        kind = LikelihoodCalibration if without_scale(verdicts[0].rubric) else ScoreCalibration
        return kind.learn(verdicts, ratings, rubric)

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over the judge's settings and what was learnt."""
        learnt = [getattr(self, name) for name in self.line]
        return digest([self.settings, self.rubric.fingerprint, *learnt, self.levels, self.cuts])

    def apply(self, verdict: Verdict, name: str) -> Verdict:
        """Return the verdict on the rubric's scale, under the judge's new name; an invalid verdict stays invalid.

        Raises:
            RecordError: the verdict is of another judge, or of other settings, than the verdicts that this was learnt from.
        """
        if verdict.settings != self.settings:
            where = f"case {verdict.case_id!r}"
            raise RecordError(f"{where}: judged with other settings than the verdicts to calibrate with")
        extra = {**verdict.extra, "settings": self.fingerprint}
        fresh = replace(  # the scores are on the judge's scale
            verdict, judge=name, rubric=self.rubric.name, extra=extra,
            scores=None, expected_scores=None, criterion_scores=None,
        )  # fmt: skip
        if not verdict.valid:
            return fresh
        points = self.points(verdict)
        models, lowest = models_of(verdict), _scale(self.rubric)[0]
        scores: list[int | None] = [None] * len(verdict.scores or verdict.expected_scores or ())
        expected: list[float | None] = [None] * len(scores)
        for place, (value, point) in points.items():
            scores[place] = self.levels[int(np.searchsorted(self.cuts, value))]
            expected[place] = round(point, 6)
        for place in verdict.order:
            if models[place] in verdict.empty:  # whatever was learnt of answers
                scores[place], expected[place] = lowest, float(lowest)
        return replace(fresh, scores=tuple(scores), expected_scores=tuple(expected))

    @abstractmethod
    def points(self, verdict: Verdict) -> dict[int, tuple[float, float]]:
        """Return index of a response → (value to compare with the cuts, point on people's scale) of a valid verdict."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "rubric": self.rubric.name,
            "judge_settings": self.settings,
            **self.line_facts(),
            "levels": list(self.levels),
            "cuts": list(self.cuts),
            **self.facts,
        }

    @abstractmethod
    def line_facts(self) -> dict[str, Any]:
        """Return the learnt function as JSON can hold it."""


@dataclass(frozen=True, kw_only=True)
class ScoreCalibration(Calibration):
    """A rising line from a judge's scores to people's.

    Args:
        source: "expected_scores", or "scores" of a judge whose verdicts do not all have expected scores.
        knots: (judge's score, people's score), ascending in both; straight lines between them, level beyond them.
    """

    source: str
    knots: tuple[tuple[float, float], ...]
    line = ("source", "knots")

    @classmethod
    def learn(cls, verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric) -> "ScoreCalibration":
        """Learn from verdicts with scores (see `Calibration.fit`); all verdicts on a response together weigh one."""
        given = rated_responses(verdicts, ratings, rubric)
        valid = [verdict for verdict in verdicts if verdict.valid]
        source = "expected_scores" if all(verdict.expected_scores is not None for verdict in valid) else "scores"
        entries = [
            ((verdict.case_id, model), value)
            for verdict in sorted(valid, key=lambda verdict: (verdict.case_id, verdict.order, verdict.run))
            for model, value in zip(models_of(verdict), _values(verdict, source))
            if value is not None and model not in verdict.empty and (verdict.case_id, model) in given
        ]
        # Responses and cases are numbered in the order of their first entries.
        responses = {key: number for number, key in enumerate(dict.fromkeys(key for key, _ in entries))}
        cases = {case_id: number for number, case_id in enumerate(dict.fromkeys(case_id for case_id, _ in responses))}
        people = np.array([given[key][0] for key in responses])
        check_enough(len(cases), people)
        case = np.array([cases[case_id] for case_id, _ in responses])
        of = np.array([responses[key] for key, _ in entries])
        x, weight = np.array([value for _, value in entries], float), 1 / np.bincount(of)[of]
        knots = _knots(x, people[of], weight)
        if len(knots) < 2:
            raise RecordError("people's ratings do not rise with the judge's scores: there is nothing to learn")
        single = np.concatenate([given[key][1] for key in responses])
        levels, shares = _levels(single)
        quantiles = np.quantile(x, shares, weights=weight, method="inverted_cdf")
        after = np.empty(len(people))
        for held in each_fold(deal(case, FOLDS)):
            line = _knots(x[~held[of]], people[of][~held[of]], weight[~held[of]])
            after[held] = np.bincount(of, weights=_interpolate(x, line) * weight)[held]
        before: np.ndarray | str = np.bincount(of, weights=x * weight)
        if {verdict.rubric for verdict in valid} != {rubric.name}:
            before = f"judged by {', '.join(sorted({verdict.rubric for verdict in valid}))}, on another scale"
        facts = _counts(case, single) | calibration_facts(before, after, people, case)
        cuts, settings = tuple(np.round(quantiles, 6).tolist()), verdicts[0].settings
        return cls(rubric=rubric, levels=levels, cuts=cuts, settings=settings, facts=facts, source=source, knots=knots)

    def points(self, verdict: Verdict) -> dict[int, tuple[float, float]]:
        """Return index of a response → (the judge's score, point)."""
        known = ((place, value) for place, value in enumerate(_values(verdict, self.source)) if value is not None)
        # Rounded as the cuts are: one of them is the very value of some response.
        return {place: (round(value, 6), float(_interpolate(value, self.knots))) for place, value in known}

    def line_facts(self) -> dict[str, Any]:
        return {"from": self.source, "knots": [list(knot) for knot in self.knots]}


@dataclass(frozen=True, kw_only=True)
class LikelihoodCalibration(Calibration):
    """A linear function from the features of a likelihood judge's verdicts to people's scores.

    Args:
        weights: the intercept, and the weights of the features in `NAMES`, in points per nat per token.
    """

    weights: tuple[float, ...]
    line = ("weights",)

    @classmethod
    def learn(cls, verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric) -> "LikelihoodCalibration":
        """Learn from verdicts without a scale, one per case (see `Calibration.fit`)."""
        given = rated_responses(verdicts, ratings, rubric)
        features: list[np.ndarray] = []
        rated: list[tuple[float, list[float]]] = []
        sizes: list[int] = []
        for verdict in verdicts:
            places = answered(verdict)
            models = models_of(verdict)
            known = [
                (place, given[verdict.case_id, models[place]])
                for place in places
                if (verdict.case_id, models[place]) in given
            ]
            if known:
                rows = dict(zip(places, features_of(verdict)))
                features += [rows[place] for place, _ in known]
                rated += [scores for _, scores in known]
                sizes.append(len(known))
        y = np.array([score for score, _ in rated])
        check_enough(len(sizes), y)
        x = np.column_stack([np.ones(len(features)), features])
        weights = _weights(x, y)
        if np.ptp(x @ weights) < SAME:
            raise RecordError("the judge gives every response the same: there is nothing to learn")
        single = np.concatenate([scores for _, scores in rated])
        levels, shares = _levels(single)
        quantiles = np.quantile(x @ weights, shares)
        case, cross_fitted = np.repeat(np.arange(len(sizes)), sizes), np.empty(len(y))
        for held in each_fold(deal(case, FOLDS)):
            cross_fitted[held] = x[held] @ _weights(x[~held], y[~held])
        facts = _counts(case, single) | {"concordance": _concordances(x, y, sizes, cross_fitted)}
        facts |= calibration_facts("the verdicts have no scale", np.clip(cross_fitted, *_scale(rubric)), y, case)
        line, cuts = (tuple(np.round(values, 6).tolist()) for values in (weights, quantiles))
        settings = verdicts[0].settings
        return cls(rubric=rubric, levels=levels, cuts=cuts, settings=settings, facts=facts, weights=line)

    def points(self, verdict: Verdict) -> dict[int, tuple[float, float]]:
        """Return index of a response → (point, point within the scale)."""
        if not (places := answered(verdict)):
            return {}
        points = np.column_stack([np.ones(len(places)), features_of(verdict)]) @ self.weights
        clipped = np.clip(points, *_scale(self.rubric)).tolist()
        return dict(zip(places, zip(points, clipped)))

    def line_facts(self) -> dict[str, Any]:
        return {"weights": dict(zip(("intercept", *NAMES), self.weights))}


def _scale(rubric: Rubric) -> tuple[int, int]:
    if rubric.scale is None:
        raise RecordError(f"the rubric {rubric.name} gives choices, not scores")
    return rubric.scale


def rated_responses(
    verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric
) -> dict[tuple[str, str], tuple[float, list[float]]]:
    """Return (case id, model) → people's score and single ratings (`scores_of_people`) of the responses of verdicts.

    Raises:
        RecordError: the rubric has no scale, a rating is off it or given twice, a verdict names no models, or the verdicts are
            of several judges.
    """
    low, high = _scale(rubric)
    models: dict[str, list[str]] = {verdict.case_id: models_of(verdict) for verdict in verdicts}
    given = [rating for rating in ratings if rating.model in models.get(rating.case_id, ())]
    for rating in given:
        if not low <= rating.score <= high:
            what = f"case {rating.case_id!r}: the rating {rating.score:g}"
            raise RecordError(f"{what} is off {rubric.name}'s scale {low} to {high}")
    if len({verdict.settings for verdict in verdicts}) > 1:
        raise RecordError("the verdicts to calibrate with are of several judges, or of one with several settings")
    return scores_of_people((("the ratings", rating) for rating in given), "the ratings")


def models_of(verdict: Verdict) -> list[str]:
    """Return the models of a verdict's case, in the order of its responses; RecordError if it does not record them."""
    models = verdict.extra.get("models")
    if not isinstance(models, list) or len(models) <= max(verdict.order, default=-1):
        raise RecordError(f"case {verdict.case_id!r}: the verdict does not name the models whose responses it is on")
    return models


def answered(verdict: Verdict) -> list[int]:
    """Return the responses of which a verdict says something, and that are not empty, as indices in the case, ascending."""
    models = models_of(verdict)
    return [place for place in verdict.values if models[place] not in verdict.empty]


def check_enough(cases: int, people: np.ndarray) -> None:
    """Raise RecordError where there are too few cases, or people's scores [responses] are all the same."""
    if cases < FEWEST:
        raise RecordError(f"{cases} rated cases with a valid verdict; a calibration needs {FEWEST} at least")
    if len(set(people.tolist())) == 1:
        raise RecordError(f"every response is rated {people[0]:g}: there is nothing to learn")


def _levels(single: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the whole scores among single ratings, ascending, and the share of ratings up to each but the last."""
    levels, counts = np.unique(np.floor(single + 0.5).astype(int), return_counts=True)
    return tuple(levels.tolist()), np.cumsum(counts)[:-1] / len(single)


def _counts(case: np.ndarray, single: np.ndarray) -> dict[str, int]:
    return {"cases": int(case.max()) + 1, "responses": len(case), "ratings": len(single)}


def calibration_facts(
    before: np.ndarray | str, after: np.ndarray, people: np.ndarray, case: np.ndarray
) -> dict[str, Any]:
    """Return expected calibration errors with intervals over cases, and the bins of the reliability diagram.

    `chance` of an error is the upper end of the 95 % interval of what chance gives a perfect judge on these cases.

    Args:
        before, after: scores [responses] without and with calibration, `after` cross-fitted; a text in the place of `before`
            is the reason why there are no scores on the scale.
        people: people's scores [responses].
        case: int [responses], from 0 without a gap.
    """
    errors: dict[str, Any] = {}
    known = {"after": after} if isinstance(before, str) else {"before": before, "after": after}
    if isinstance(before, str):
        errors["before"] = {"value": None, "reason": before}
    kinds = (calibration_error, calibration_noise, calibration_floor)
    statistics = {name: [of(values, people, case) for of in kinds] for name, values in known.items()}
    for name, estimates in estimate(statistics, int(case.max()) + 1).items():
        errors[name] = _moved(*estimates).to_dict() | {"chance": estimates[1].high}
    bins = {name: reliability_bins(values, people) for name, values in known.items()}
    return {"calibration_error": errors, "reliability": bins}


def _moved(error: Estimate, noise: Estimate, floor: Estimate) -> Estimate:
    """Return a calibration error with an interval that allows for noise.

    Noise makes the error of a sample too high, and that of a resample by about the same amount again. So the upper end is that
    of the resamples, less this amount. The lower end is 0 where the error is within `calibration_noise`, what noise gives a
    perfect judge, and else that of `calibration_floor`, which noise hardly changes.
    """
    if error.value is None or error.low is None or error.high is None or noise.high is None or floor.low is None:
        return error
    excess = float(error.draws.mean()) - error.value
    low = 0.0 if error.value <= noise.high else min(max(0.0, floor.low), error.value)
    return replace(error, low=low, high=max(error.value, error.high - excess))


def _interpolate(x: Any, knots: Sequence[tuple[float, float]]) -> Any:
    places, heights = zip(*knots)
    return np.interp(x, places, heights)


def _knots(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return the centres of the steps of isotonic regression of y on x, ascending in both."""
    y = np.round(y, 9)  # people's scores within 1e-9 are equal, in whatever order their ratings were summed
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
        raise RecordError(f"case {verdict.case_id!r}: numbers by {verdict.rubric} are not scores")
    if values is None:
        what = source.replace("_", " ")
        raise RecordError(f"case {verdict.case_id!r}: the verdict has no {what}, and nothing else can be calibrated")
    return values


def features_of(verdict: Verdict) -> np.ndarray:
    """Return the features of the `answered` responses: float [responses, features], named by `NAMES`.

    Raises:
        RecordError: the verdict is on a scale already.
    """
    places = answered(verdict)
    if verdict.scores is not None or verdict.expected_scores is None:
        raise RecordError(f"case {verdict.case_id!r}: only verdicts without a scale are calibrated here")
    own = np.array([verdict.expected_scores[place] for place in places], float)
    return np.column_stack([own - own.mean(), np.full(len(places), own.mean())])


def _weights(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the weights of intercept and features [columns of x]; that within cases is 0 or more, so that no order turns."""
    return lsq_linear(x, y, ([-np.inf, 0, -np.inf], np.inf), method="bvls").x


def _concordances(
    x: np.ndarray, y: np.ndarray, sizes: Sequence[int], cross_fitted: np.ndarray
) -> dict[str, float | None]:
    """Return the concordance with people by the value within cases, and by the points; None if people order no pair."""
    panel, found = Panel.of_sizes(sizes), {}
    for name, values in {NAMES[0]: x[:, 1], "cross_fitted": cross_fitted}.items():
        statistic = concordance(panel, panel.relations(y), panel.relations(values))
        value = value_of(statistic, len(sizes))
        found[name] = round(value, 4) if np.isfinite(value) else None
    return found
