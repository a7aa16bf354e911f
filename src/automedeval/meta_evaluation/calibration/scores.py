"""Put a judge's verdicts on the scale that people rate on, learnt from a few rated cases.

A response gets a point on people's scale and a whole score. The whole score comes from cut points, so that the scores have the
shares that they have among people's ratings (equipercentile linking, Kolen & Brennan, chapter 2): points are means, and if they
were rounded, nearly every response would have the same score.

`RisingLine`: the point is a rising function of the judge's score, by isotonic regression.

`LikelihoodLine`: the features of a response are how far its log-likelihood lies above the mean of its case, and that
mean. The point is a linear function of both, by least squares; the weight within a case is 0 or more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People, gather_ratings
from automedeval.meta_evaluation.calibration.certificate import certify_order, mark
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import Case, Rating, RecordError, Response, Verdict, digest, read_placed, verdicts_file
from automedeval.records.ratings import placed_ratings
from automedeval.rubrics import Rubric, without_scale
from automedeval.stats.agreement import SAME, Panel, concordance
from automedeval.stats.bootstrap import estimate, plain, value_of
from automedeval.stats.calibration_error import FOLDS, calibration_error
from automedeval.stats.folds import deal, each_fold

FEWEST = 10  # rated cases; fewer are not enough to learn from
DIGITS = 6  # of what is learnt, and of the values that it is applied to


@dataclass(frozen=True)
class RisingLine:
    """A rising line from a judge's scores to people's."""

    # (judge's score, people's score), ascending in both; straight lines between them, level beyond them.
    knots: tuple[tuple[float, float], ...]

    @staticmethod
    def features(verdict: Verdict, source: str) -> dict[int, tuple[float, ...]]:
        """Return index of a response → (score,), of those that are neither empty nor unread."""
        values = getattr(verdict, source)
        if without_scale(verdict.rubric):
            raise RecordError(f"case {verdict.case_id!r}: numbers by {verdict.rubric} are not scores")
        if values is None:
            what = source.replace("_", " ")
            raise RecordError(f"case {verdict.case_id!r}: the verdict has no {what}: nothing else can be calibrated")
        return {place: (values[place],) for place in _answered(verdict) if values[place] is not None}

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> "RisingLine":
        """Return the line through the centres of the steps of isotonic regression of y on x."""
        y = np.round(y, 9)  # people's scores within 1e-9 are equal, in whatever order their ratings were summed
        levels, level = np.unique(x[:, 0], return_inverse=True)
        weights = np.bincount(level, weights=weight)
        fitted = scipy.optimize.isotonic_regression(np.bincount(level, weights=weight * y) / weights, weights=weights)
        block = np.repeat(np.arange(len(fitted.blocks) - 1), np.diff(fitted.blocks))
        heights = fitted.x[fitted.blocks[:-1]]
        centres = np.bincount(block, weights=weights * levels) / np.bincount(block, weights=weights)
        return cls(tuple(zip(centres.round(DIGITS).tolist(), heights.round(DIGITS).tolist())))

    def points(self, x: np.ndarray) -> np.ndarray:
        centres, heights = zip(*self.knots)
        return np.interp(x[:, 0], centres, heights)

    def to_cut(self, x: np.ndarray) -> np.ndarray:
        """Return what is compared with the cuts: the scores, because points beyond the knots are equal."""
        return x[:, 0]


@dataclass(frozen=True)
class LikelihoodLine:
    """A linear function from the features of a likelihood judge's verdicts to people's scores."""

    # Of the value within the case and of its mean, in points per nat per token; the intercept.
    weights: tuple[float, ...]

    @staticmethod
    def features(verdict: Verdict, source: str) -> dict[int, tuple[float, ...]]:
        """Return index of a response → (value less the case's mean, mean), of those that are neither empty nor unread."""
        if verdict.scores is not None or verdict.expected_scores is None:
            raise RecordError(f"case {verdict.case_id!r}: only verdicts without a scale are calibrated here")
        values = {place: verdict.values[place] for place in _answered(verdict)}
        mean = float(np.mean(list(values.values()))) if values else 0.0
        return {place: (value - mean, mean) for place, value in values.items()}

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> "LikelihoodLine":
        """Return the least-squares line; the weight within cases is 0 or more, so that no order turns."""
        design = np.column_stack([x, np.ones(len(x))])
        weights = scipy.optimize.lsq_linear(design, y, ([0, -np.inf, -np.inf], np.inf), method="bvls").x
        return cls(tuple(weights.round(DIGITS).tolist()))

    def points(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weights[:2] + self.weights[2]

    to_cut = points


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A function from a judge's verdicts to scores on people's scale."""

    rubric: Rubric  # of people's scale
    source: str  # "expected_scores", or "scores" of a judge whose verdicts do not all have expected scores
    line: RisingLine | LikelihoodLine  # the learnt function from features of a response to a point
    levels: tuple[int, ...]  # the whole scores that people gave, ascending; no other is given
    cuts: tuple[float, ...]  # between one level and the next, in the judge's scores or in points
    settings: str | None  # the settings fingerprint of the judge; verdicts with other settings are refused
    facts: Mapping[str, Any]  # what the fit measured on the rated cases, for calibration.json

    @staticmethod
    def fit(verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric) -> "Calibration":
        """Learn from one judge's verdicts on rated cases.

        Args:
            verdicts: either all with or all without a scale; of verdicts without a scale one per case. Invalid verdicts and
                responses without a rating are passed over; all verdicts on a response together weigh one.
            ratings: on the rubric's scale; ratings of other responses are passed over.

        Raises:
            RecordError: the rubric has no scale, a rating is off it or given twice, a verdict names no models, the verdicts are
                of several judges, there are too few rated cases, or people's ratings do not depend on the verdicts.
        """
        kind = LikelihoodLine if without_scale(verdicts[0].rubric) else RisingLine
        table, rated = beside_people(verdicts, ratings, rubric)
        valid = sorted(table.valid, key=lambda each: (each.case_id, each.order, each.run))
        source = "expected_scores" if all(each.expected_scores is not None for each in valid) else "scores"
        starts = [int(table.cases.start[table.cases.index[verdict.case_id]]) for verdict in valid]
        features = ((start, kind.features(verdict, source)) for start, verdict in zip(starts, valid))
        entries = [(start + place, row) for start, rows in features for place, row in rows.items()]
        entries = [(response, row) for response, row in entries if not np.isnan(rated.scores[response])]
        # Responses are numbered in the order of their first entries, and cases in that of their ids.
        responses = {response: number for number, response in enumerate(dict.fromkeys(key for key, _ in entries))}
        shown = np.array(list(responses), int)
        ids = [table.cases.records[number].id for number in table.cases.panel.case[shown].tolist()]
        names, case = np.unique(np.array(ids, object), return_inverse=True)
        people = rated.scores[shown]
        if len(names) < FEWEST:
            raise RecordError(f"{len(names)} rated cases with a valid verdict; a calibration needs {FEWEST} at least")
        if len(set(people.tolist())) == 1:
            raise RecordError(f"every response is rated {people[0]:g}: there is nothing to learn")
        of = np.array([responses[key] for key, _ in entries])
        x, weight = np.array([row for _, row in entries], float), 1 / np.bincount(of)[of]
        line = kind.fit(x, people[of], weight)
        if np.ptp(line.points(x)) < SAME:
            raise RecordError("people's ratings do not rise with what the judge gives: there is nothing to learn")
        single = np.concatenate([scores[shown].ravel() for scores in rated.by_criterion.values()])
        single = single[~np.isnan(single)]
        levels, counts = np.unique(np.floor(single + 0.5).astype(int), return_counts=True)
        shares = np.cumsum(counts)[:-1] / len(single)
        cuts = np.quantile(line.to_cut(x), shares, weights=weight, method="inverted_cdf")
        after = np.empty(len(people))
        for held in each_fold(deal(case, FOLDS)):
            in_fold = held[of]
            points = kind.fit(x[~in_fold], people[of][~in_fold], weight[~in_fold]).points(x)
            after[held] = np.bincount(of, points.clip(*_scale(rubric)) * weight)[held]
        values = np.bincount(of, x[:, 0] * weight)
        facts: dict[str, Any] = {"cases": len(names), "responses": len(case), "ratings": len(single)}
        panel, facts["concordance"] = Panel(case, np.arange(len(names)), len(names)), {}
        for name, scores in (("judge", values), ("cross_fitted", after)):
            figure = concordance(panel, panel.relations(people), panel.relations(scores))
            value = value_of(figure, len(names))
            facts["concordance"][name] = round(value, 4) if np.isfinite(value) else None  # None: people order no pair
        rubrics = sorted({verdict.rubric for verdict in valid})
        before = values if rubrics == [rubric.name] else f"judged by {', '.join(rubrics)}, not on this scale"
        return Calibration(
            rubric=rubric, source=source, line=line, levels=tuple(levels.tolist()),
            cuts=tuple(cuts.round(DIGITS).tolist()), settings=verdicts[0].settings,
            facts=facts | calibration_facts(before, after, people, case),
        )  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over the judge's settings and what was learnt."""
        return digest([self.settings, self.rubric.fingerprint, self.source, asdict(self.line), self.levels, self.cuts])

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
        models, scale = models_of(verdict), _scale(self.rubric)
        scores: list[int | None] = [None] * len(verdict.scores or verdict.expected_scores or ())
        expected: list[float | None] = [None] * len(scores)
        for place, row in self.line.features(verdict, self.source).items():
            x = np.array([row])
            # Rounded as the cuts are: one of them is the very value of some response.
            level = np.searchsorted(self.cuts, self.line.to_cut(x).round(DIGITS))
            scores[place] = self.levels[level.item()]
            expected[place] = self.line.points(x).clip(*scale).round(DIGITS).item()
        for place in verdict.order:
            if models[place] in verdict.empty:  # whatever was learnt of answers
                scores[place], expected[place] = scale[0], float(scale[0])
        return replace(fresh, scores=tuple(scores), expected_scores=tuple(expected))

    def to_dict(self) -> dict[str, Any]:
        learnt = asdict(self.line) | {"levels": list(self.levels), "cuts": list(self.cuts)}
        about = {"rubric": self.rubric.name, "judge_settings": self.settings, "from": self.source}
        return about | learnt | dict(self.facts)


def calibrate(
    verdicts: str, ratings: str, rubric: Rubric, fit: str | None, judge: str | None, risk: float | None
) -> tuple[Calibration, list[Verdict]]:
    """Learn from the verdicts of one judge on rated cases, and put its other verdicts on the scale.

    Args:
        verdicts: the file or folder of the verdicts to put on the scale; without `fit` also of those on rated cases.
        ratings: the file of the ratings.
        fit: the file or folder of the verdicts on rated cases.
        judge: the judge's name, where a file has several.
        risk: the largest share of wrong pairs among the verdicts that do not abstain; the facts then hold a "certificate", and
            the verdicts say which they are (`certify_order`, `mark`).

    Raises:
        RecordError: a fault of `judge_verdicts`, `Calibration.fit` or `certify_order`, or a verdict on a case that was learnt
            from.
    """
    placed = list(judge_verdicts(verdicts, judge))
    rated = [verdict for _, verdict in (placed if fit is None else judge_verdicts(fit, judge))]
    ratings_read = [rating for _, rating in placed_ratings(ratings, map(_case_of, rated))[0]]
    if fit is None:
        learnt_from = {rating.case_id for rating in ratings_read}
        rated = [verdict for verdict in rated if verdict.case_id in learnt_from]
        placed = [(place, verdict) for place, verdict in placed if verdict.case_id not in learnt_from]
        if not rated:
            raise RecordError(f"{verdicts}, {ratings}: no case is rated: nothing to learn from")
        if not placed:
            raise RecordError(f"{verdicts}, {ratings}: every case is rated: none is left to calibrate")
    else:
        learnt_from = {verdict.case_id for verdict in rated}
    if again := next((each for each in placed if each[1].case_id in learnt_from), None):
        raise RecordError(f"{again[0]}: case {again[1].case_id!r} is one of the cases to learn from")
    try:
        calibration = Calibration.fit(rated, ratings_read, rubric)
    except RecordError as error:
        raise RecordError(f"{fit or verdicts}, {ratings}: {error}") from None
    moved = calibrated(calibration.apply, placed)
    if risk is None:
        return calibration, moved
    table, people = beside_people(rated, ratings_read, rubric)
    others = verdict_table([verdict for _, verdict in placed])
    certificate, confidence = certify_order(table, people.scores, others, calibration.source, risk)
    calibration = replace(calibration, facts={**calibration.facts, "certificate": certificate})
    return calibration, [mark(verdict, certificate, confidence) for verdict in moved]


def calibrated(apply: Callable[[Verdict, str], Verdict], placed: Iterable[tuple[str, Verdict]]) -> list[Verdict]:
    """Return what `apply` makes of ("file:line", verdict)s for "JUDGE, calibrated"; RecordErrors begin with the place."""
    verdicts = []
    for place, verdict in placed:
        try:
            verdicts.append(apply(verdict, f"{verdict.judge}, calibrated"))
        except RecordError as error:
            raise RecordError(f"{place}: {error}") from None
    return verdicts


def judge_verdicts(place: str, judge: str | None) -> Iterator[tuple[str, Verdict]]:
    """Yield ("file:line", verdict) of one judge.

    Raises:
        RecordError: several judges and no name, no judge of that name, scores together with log-likelihoods, or a verdict that
            stands twice; of a judge that gives log-likelihoods, a case that stands twice.
    """
    path = verdicts_file(place)
    seen, names, kinds = set(), set(), set()
    for where, verdict in read_placed(path, Verdict):
        if judge is None or verdict.judge == judge:
            names.add(verdict.judge)
            if len(names) > 1:
                raise RecordError(f"{path}: verdicts of {', '.join(sorted(names))}: choose one with --judge")
            unscaled = without_scale(verdict.rubric)
            kinds.add(unscaled)
            if len(kinds) > 1:
                raise RecordError(f"{where}: scores together with numbers without a scale: calibrate them separately")
            key = verdict.case_id if unscaled else verdict.key
            if key in seen:
                raise RecordError(f"{where}: case {verdict.case_id!r} has a verdict already")
            seen.add(key)
            yield where, verdict
    if not names:
        raise RecordError(f"{path}: no verdict of {'any judge' if judge is None else f'the judge {judge!r}'}")


def _scale(rubric: Rubric) -> tuple[int, int]:
    if rubric.scale is None:
        raise RecordError(f"the rubric {rubric.name} gives choices, not scores")
    return rubric.scale


def beside_people(
    verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric
) -> tuple[VerdictTable, People]:
    """Return verdicts as a table, and people's ratings of the responses that they are on, which must be on the scale."""
    low, high = _scale(rubric)
    table = verdict_table(verdicts)
    models = {case.id: case.models for case in table.cases.records}
    usable = [rating for rating in ratings if rating.model in models.get(rating.case_id, ())]
    for rating in usable:
        if not low <= rating.score <= high:
            what = f"case {rating.case_id!r}: the rating {rating.score:g}"
            raise RecordError(f"{what} is off {rubric.name}'s scale {low} to {high}")
    if len({verdict.settings for verdict in verdicts}) > 1:
        raise RecordError("the verdicts to calibrate with are of several judges, or of one with several settings")
    if not usable:
        raise RecordError(f"0 rated cases with a valid verdict; a calibration needs {FEWEST} at least")
    return table, gather_ratings((("the ratings", rating) for rating in usable), table.cases, "the ratings")


def verdict_table(verdicts: Sequence[Verdict]) -> VerdictTable:
    """Return verdicts as a table, with what they say of their cases."""
    return VerdictTable(Cases(list({each.case_id: _case_of(each) for each in verdicts}.values()), "verdicts"), verdicts)


def models_of(verdict: Verdict) -> list[str]:
    """Return the models of a verdict's case, in the order of its responses; RecordError if it does not record them."""
    models = verdict.extra.get("models")
    if not isinstance(models, list) or len(models) <= max(verdict.order, default=-1):
        raise RecordError(f"case {verdict.case_id!r}: the verdict does not name the models whose responses it is on")
    return models


def _case_of(verdict: Verdict) -> Case:
    """Return what a verdict says of its case: the models, and the question of a table."""
    responses = tuple(Response(model, "") for model in models_of(verdict))
    return Case(verdict.case_id, verdict.extra.get("question") or "", responses)


def _answered(verdict: Verdict) -> list[int]:
    """Return the responses of which a verdict says something, and that are not empty, as indices in the case, ascending."""
    models = models_of(verdict)
    return [place for place in verdict.values if models[place] not in verdict.empty]


def calibration_facts(
    before: np.ndarray | str, after: np.ndarray, people: np.ndarray, case: np.ndarray
) -> dict[str, Any]:
    """Return expected calibration errors with intervals over cases.

    Args:
        before, after: scores [responses] without and with calibration, `after` cross-fitted; a text in the place of `before`
            is the reason why there are no scores on the scale.
        people: people's scores [responses].
        case: int [responses], from 0 without a gap.
    """
    sides = {"after": after} if isinstance(before, str) else {"before": before, "after": after}
    cases = int(case.max()) + 1
    errors = {name: calibration_error(values, people, case, cases) for name, values in sides.items()}
    unknown = {"before": {"value": None, "reason": before}} if isinstance(before, str) else {}
    return {"calibration_error": unknown | plain(estimate(errors, cases))}
