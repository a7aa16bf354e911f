"""Put a judge's verdicts on the scale that people rate on, learnt from a few rated cases.

The expected score of a response is a rising function of the judge's score, or of its mean log-likelihood, by isotonic
regression. It has no whole score: rounded means would be the same for nearly every response.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy import ndarray

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People, gather_ratings
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import (
    Case,
    JsonObject,
    Rating,
    RecordError,
    Response,
    Verdict,
    digest,
    errors_at,
    placed_verdicts,
)
from automedeval.records.tables.ratings import placed_ratings
from automedeval.rubrics import Rubric, without_scale
from automedeval.stats.agreement import SAME
from automedeval.stats.bootstrap import estimate, is_known, plain
from automedeval.stats.calibration_error import FOLDS, calibration_error
from automedeval.stats.folds import each_fold

FEWEST = 10  # rated cases; fewer are not enough to learn from
DIGITS = 6  # of what is learnt, and of the values that it is applied to


Knots = tuple[tuple[float, float], ...]


def rising(x: ndarray, y: ndarray, weight: ndarray) -> Knots:
    """Return the knots of the line through the centres of the steps of isotonic regression of y on x."""
    levels, level = np.unique(x, return_inverse=True)
    weights = np.bincount(level, weights=weight).round(9)
    # Means within 1e-9 are equal, in whatever order ratings and runs were summed.
    means = (np.bincount(level, weights=weight * y) / weights).round(9)
    fitted = scipy.optimize.isotonic_regression(means, weights=weights)
    block = np.repeat(np.arange(len(fitted.blocks) - 1), np.diff(fitted.blocks))
    heights = fitted.x[fitted.blocks[:-1]]
    centres = np.bincount(block, weights=weights * levels) / np.bincount(block, weights=weights)
    return tuple(zip(centres.round(DIGITS).tolist(), heights.round(DIGITS).tolist()))


def points_of(knots: Knots, x: Any) -> ndarray:
    """Return the points at the judge's scores."""
    centres, heights = zip(*knots)
    return np.interp(x, centres, heights)


def scores_of(verdict: Verdict, source: str) -> Sequence[float | None]:
    """Return a valid verdict's scores from this field; RecordError if it has none there."""
    scores = getattr(verdict, source)
    if scores is None:
        what = f"the verdict has no {source.replace('_', ' ')}"
        raise RecordError(f"case {verdict.case_id!r}: {what}: nothing else can be calibrated")
    return scores


class Sample(NamedTuple):
    """What a judge and people say of the rated responses; each verdict on one is an entry."""

    score: ndarray  # float [entries], the judge's
    response: ndarray  # int [entries], the number of the response here
    people: ndarray  # float [responses]
    case: ndarray  # int [responses], the number of the case here, by its id
    ratings: int

    @staticmethod
    def of(table: VerdictTable, people: People) -> "Sample":
        """Return what a table of verdicts and people both say something of."""
        scores = table.expected if table.has_expected else table.score
        rated = is_known(people.scores) & ~table.cases.empty
        use = is_known(scores) & rated[table.response]
        numbers, response = np.unique(table.response[use], return_inverse=True)
        ids = [table.cases.at(number)[0].id for number in numbers.tolist()]
        case = np.unique(np.array(ids, object), return_inverse=True)[1]
        ratings = is_known(list(people.by_criterion.values()))
        count = int(ratings[:, numbers].sum())
        return Sample(scores[use], response, people.scores[numbers], case, count)

    @property
    def weight(self) -> ndarray:
        """The weight of each entry: all on a response together weigh one."""
        return 1 / np.bincount(self.response)[self.response]

    def rising(self, which: Any) -> Knots:
        """Return the rising line through some of the entries."""
        people = self.people[self.response]
        return rising(self.score[which], people[which], self.weight[which])

    def errors(self, cases: int) -> JsonObject:
        """Return the calibration error before the fit and after it, of each case by a line through the other cases."""
        after = np.empty(len(self.people))
        for in_fold in each_fold(self.case, FOLDS):
            line = self.rising(~in_fold[self.response])
            points = points_of(line, self.score)
            after[in_fold] = np.bincount(self.response, points * self.weight)[in_fold]
        before = np.bincount(self.response, self.score * self.weight)
        errors = {
            "before": calibration_error(before, self.people, self.case, cases),
            "after": calibration_error(after, self.people, self.case, cases),
        }
        return plain(estimate(errors, cases))


@dataclass(frozen=True)
class Calibration:
    """A function from a judge's verdicts to scores on people's scale."""

    rubric: Rubric  # of people's scale
    source: str  # "expected_scores", or "scores" of a judge whose verdicts do not all have expected scores
    # (judge's score, people's score), ascending in both; straight lines between them, level beyond them.
    knots: Knots
    # The settings fingerprint of the judge; verdicts with other settings are refused.
    settings: str | None
    judged_by: Sequence[str]  # the rubrics of the judge's verdicts; those by others are refused
    facts: JsonObject  # what the fit measured on the rated cases, for calibration.json

    @staticmethod
    def fit(
        verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric
    ) -> "Calibration":
        """Learn from one judge's verdicts on rated cases.

        Args:
            verdicts: either all with or all without a scale. Invalid verdicts and responses without a rating are passed over;
                all verdicts on a response together weigh one.
            ratings: on the rubric's scale; ratings of other responses are passed over.

        Raises:
            RecordError: the rubric has no scale, a rating is off it or given twice, a verdict names no models, the verdicts are
                of several judges, there are too few rated cases, or people's ratings do not depend on the verdicts.
        """
        table, rated = beside_people(verdicts, ratings, rubric)
        source = "expected_scores" if table.has_expected else "scores"
        for verdict in table.valid:
            scores_of(verdict, source)  # refuses a verdict without these
        sample = Sample.of(table, rated)
        cases = len(np.unique(sample.case))
        if cases < FEWEST:
            raise _too_few(cases)
        if len(np.unique(sample.people)) == 1:
            raise RecordError(
                f"every response is rated {sample.people[0]:g}: there is nothing to learn"
            )
        knots = sample.rising(slice(None))
        if np.ptp(points_of(knots, sample.score)) < SAME:
            raise RecordError(
                "people's ratings do not rise with what the judge gives: there is nothing to learn"
            )
        errors = sample.errors(cases)
        rubrics = sorted({verdict.rubric for verdict in table.valid})
        if rubrics != [rubric.name]:
            off = f"judged by {', '.join(rubrics)}, not on this scale"
            errors["before"] = {"value": None, "reason": off}
        facts: JsonObject = {"cases": cases, "responses": len(sample.people)}
        facts |= {"ratings": sample.ratings, "calibration_error": errors}
        return Calibration(rubric, source, knots, verdicts[0].settings, rubrics, facts)

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over the judge's settings and what was learnt."""
        return digest([self.settings, self.rubric.fingerprint, self.source, {"knots": self.knots}])

    def apply(self, verdict: Verdict, name: str) -> Verdict:
        """Return the verdict on the rubric's scale, under the judge's new name; an invalid verdict stays invalid.

        Raises:
            RecordError: the verdict is of another judge, or of other settings, than the verdicts that this was learnt from.
        """
        where = f"case {verdict.case_id!r}: judged"
        if verdict.settings != self.settings:
            raise RecordError(f"{where} with other settings than the verdicts to calibrate with")
        if verdict.valid and verdict.rubric not in self.judged_by:
            by = ", ".join(self.judged_by)
            raise RecordError(
                f"{where} by {verdict.rubric}, and the verdicts to calibrate with by {by}"
            )
        fresh = replace(  # the scores are on the judge's scale
            verdict, judge=name, rubric=self.rubric.name, settings=self.fingerprint,
            scores=None, expected_scores=None, criterion_scores=None,
        )  # fmt: skip
        if not verdict.valid:
            return fresh
        models, scores = models_of(verdict), scores_of(verdict, self.source)
        expected: list[float | None] = [None] * len(scores)
        for index in verdict.order:
            if models[index] in verdict.empty:  # whatever was learnt of answers
                expected[index] = float(_scale(self.rubric)[0])
            elif scores[index] is not None:
                points = points_of(self.knots, scores[index])
                expected[index] = round(float(points), DIGITS)
        return replace(fresh, expected_scores=tuple(expected))

    def to_dict(self) -> JsonObject:
        return {
            "rubric": self.rubric.name,
            "judge_settings": self.settings,
            "from": self.source,
            "knots": self.knots,
            **self.facts,
        }


def calibrate(
    verdicts: Sequence[str], ratings: str, rubric: Rubric, judge: str | None = None
) -> tuple[Calibration, list[Verdict]]:
    """Learn from the verdicts of one judge on rated cases, and put its other verdicts on the scale.

    Args:
        verdicts: the files or folders of its verdicts, on rated cases and on others.
        ratings: the file of the ratings.
        judge: the judge's name, where the files have several.

    Raises:
        RecordError: a fault of `judge_verdicts` or `Calibration.fit`, or no case is rated, or every one.
    """
    placed = judge_verdicts(verdicts, judge)
    for place, verdict in placed:
        if verdict.checklist is not None:
            raise RecordError(
                f"{place}: a verdict on the criteria of a case, and only scores are calibrated"
            )
    cases = [_case_of(verdict) for _, verdict in placed]
    ratings_read = [rating for _, rating in placed_ratings(ratings, cases, rubric.better)[0]]
    learnt_from = {rating.case_id for rating in ratings_read}
    rated = [verdict for _, verdict in placed if verdict.case_id in learnt_from]
    files = f"{', '.join(verdicts)}, {ratings}"
    if not rated:
        raise RecordError(f"{files}: no case is rated: nothing to learn from")
    if len(rated) == len(placed):
        raise RecordError(f"{files}: every case is rated: none is left to calibrate")
    with errors_at(files):
        calibration = Calibration.fit(rated, ratings_read, rubric)
    moved = []
    for place, verdict in placed:
        if verdict.case_id not in learnt_from:
            with errors_at(place):
                moved.append(calibration.apply(verdict, f"{verdict.judge}, calibrated"))
    return calibration, moved


def judge_verdicts(places: Sequence[str], judge: str | None) -> list[tuple[str, Verdict]]:
    """Return ("file:line", verdict) of one judge, of all files and folders.

    Raises:
        RecordError: several judges and no name, no judge of that name, scores together with log-likelihoods, or a fault of
            `placed_verdicts`.
    """
    placed = [
        (place, verdict)
        for place, verdict in placed_verdicts(places)
        if judge in (None, verdict.judge)
    ]
    if not placed:
        whom = "" if judge is None else f" of the judge {judge!r}"
        raise RecordError(f"{', '.join(places)}: no verdict{whom}")
    names, kinds = set(), set()
    for place, verdict in placed:
        names.add(verdict.judge)
        kinds.add(without_scale(verdict.rubric))
        if len(names) > 1:
            of_judges = ", ".join(sorted(names))
            raise RecordError(f"{place}: verdicts of {of_judges}: choose one with --judge")
        if len(kinds) > 1:
            mixed = "scores together with numbers without a scale: calibrate them separately"
            raise RecordError(f"{place}: {mixed}")
    return placed


def _scale(rubric: Rubric) -> tuple[int, int]:
    if rubric.scale is None:
        raise RecordError(f"the rubric {rubric.name} gives choices, not scores")
    return rubric.scale


def beside_people(
    verdicts: Sequence[Verdict], ratings: Iterable[Rating], rubric: Rubric
) -> tuple[VerdictTable, People]:
    """Return verdicts as a table, and people's ratings of the responses that they are on, which must be on the scale."""
    low, high = _scale(rubric)
    cases = {verdict.case_id: _case_of(verdict) for verdict in verdicts}
    table = VerdictTable(Cases(list(cases.values()), "verdicts"), verdicts)
    models = {case.id: case.models for case in table.cases.records}
    usable = [rating for rating in ratings if rating.model in models.get(rating.case_id, ())]
    for rating in usable:
        if not low <= rating.score <= high:
            raise RecordError(
                f"case {rating.case_id!r}: the rating {rating.score:g} is off {rubric.name}'s "
                f"scale {low} to {high}"
            )
    if len({verdict.settings for verdict in verdicts}) > 1:
        raise RecordError(
            "the verdicts to calibrate with are of several judges, or of one with several settings"
        )
    if not usable:
        raise _too_few(0)
    placed = (("the ratings", rating) for rating in usable)
    return table, gather_ratings(placed, table.cases, "the ratings")


def _too_few(cases: int) -> RecordError:
    return RecordError(
        f"{cases} rated cases with a valid verdict; a calibration needs {FEWEST} at least"
    )


def models_of(verdict: Verdict) -> tuple[str, ...]:
    """Return the models of a verdict's case, in the order of its responses; RecordError if it does not record them."""
    if len(verdict.models) <= max(verdict.order, default=-1):
        raise RecordError(
            f"case {verdict.case_id!r}: the verdict does not name the models whose responses it "
            "is on"
        )
    return verdict.models


def _case_of(verdict: Verdict) -> Case:
    """Return what a verdict says of its case: the models, which of their responses are empty, and the question of a table."""
    responses = tuple(
        Response(model, "" if model in verdict.empty else "an answer")
        for model in models_of(verdict)
    )
    return Case(verdict.case_id, verdict.question or "", responses)
