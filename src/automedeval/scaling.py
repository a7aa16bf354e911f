"""Scaling: any judge's scores come onto people's scale, by a line that never falls, learnt from a few rated cases.

The line is isotonic regression of people's mean ratings on the judge's (expected) scores, with its steps drawn together to
their centres and joined (centred isotonic regression, Oron and Flournoy 2017): it orders two responses as the judge does,
where plain steps would tie most of them. Only beyond the outermost centres it is level. A whole score comes from cut points
that give the scores the shares that they have among people's ratings (equipercentile linking, Kolen and Brennan, chapter 2).

How far scores can be taken at their word is the expected calibration error: in bins of the score, as even as ties allow, the
distance of people's mean from the judge's, in points, weighted by the responses. The one after is cross-fitted: every case is
put on the scale by the others alone.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from automedeval.records import Rating, RecordError, Verdict
from automedeval.resampling import Estimate, Statistic, divide, estimate, mean
from automedeval.rubrics import Rubric, without_scale

FOLDS = 20
FEWEST = 10  # rated cases, below which there would be next to nothing to learn from
BINS = 10


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


def calibration_error(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return the expected calibration error of scores [responses], in points; even a perfect judge's is above 0 by chance."""
    columns = _gaps(judge, people, case)
    return Statistic(columns, lambda sums: divide(np.abs(sums[:, :-1]).sum(axis=1), sums[:, -1]), len(judge))


def calibration_noise(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return how far a resample's gaps between judge and people lie from those of the cases, bin by bin: 0 of the cases.

    No side of a triangle is longer than the others together: with the true gaps in the place of the cases', this bounds by how
    much chance can have lifted the error.
    """
    columns = _gaps(judge, people, case)
    gaps = columns[:, :-1].sum(axis=0) / columns[:, -1].sum()

    def apart(sums: np.ndarray) -> np.ndarray:
        return divide(np.abs(sums[:, :-1] - gaps * sums[:, -1:]).sum(axis=1), sums[:, -1])

    return Statistic(columns, apart, len(judge))


def calibration_floor(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> Statistic:
    """Return the sum over bins of judge less people, in points, each bin with the sign that the other cases' folds give it.

    The expected calibration error is what the right signs give, and no others give more. So this is below it but for chance,
    about 0 for a perfect judge, and where all signs are plain the error itself.
    """
    columns = _gaps(judge, people, case)
    fold = np.arange(len(columns)) % FOLDS
    signed = np.zeros(len(columns))
    for held in range(FOLDS):
        signs = np.sign(columns[fold != held, :-1].sum(axis=0))
        signed[fold == held] = columns[fold == held, :-1] @ signs
    return mean(signed, columns[:, -1], len(judge))


def _gaps(judge: np.ndarray, people: np.ndarray, case: np.ndarray) -> np.ndarray:
    """Return each case's sums of judge less people in every bin, and in the last column its responses: [cases, bins + 1]."""
    place = _places(judge)
    columns = np.zeros((int(case.max()) + 1, int(place.max()) + 2))
    np.add.at(columns, (case, place), judge - people)
    columns[:, -1] = np.bincount(case, minlength=len(columns))
    return columns


def reliability_bins(judge: np.ndarray, people: np.ndarray) -> list[dict[str, float | int]]:
    """Return the means of judge and people in bins, as even as ties allow, of the judge's scores [responses]."""
    place = _places(judge)
    return [
        {
            "judge": float(judge[place == number].mean()),
            "people": float(people[place == number].mean()),
            "n": int((place == number).sum()),
        }
        for number in np.unique(place).tolist()
    ]


def _places(values: np.ndarray) -> np.ndarray:
    """Return each value's bin."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))


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
