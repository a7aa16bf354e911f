"""Put a judge's verdicts on the scale that people rate on, learnt from a few rated cases.

The expected score of a response is a rising function of the judge's score, or of its mean log-likelihood, by isotonic
regression. It has no whole score: rounded means would be the same for nearly every response.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy import ndarray

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People, PlacedRatings, gather_ratings
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    Response,
    Verdict,
    digest,
    errors_at,
    placed_verdicts,
)
from automedeval.records.tables.ratings import placed_ratings
from automedeval.rubrics import Rubric
from automedeval.stats.agreement import SAME
from automedeval.stats.bootstrap import estimate, how_many, is_known, plain
from automedeval.stats.calibration_error import calibration_error
from automedeval.stats.folds import each_fold

FEWEST = 10  # rated cases; fewer are not enough to learn from
BEFORE = "(Scores in this text are those before the calibration.)"
DIGITS = 6  # of what is learnt, and of the values that it is applied to


Knots = tuple[tuple[float, float], ...]


def points_of(knots: Knots, x: Any) -> ndarray:
    """Return the points at the judge's scores."""
    centres, heights = zip(*knots)
    return np.interp(x, centres, heights)


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
        count = how_many(is_known(people.ratings[:, numbers]))
        return Sample(scores[use], response, people.scores[numbers], case, count)

    @property
    def weight(self) -> ndarray:
        """The weight of each entry: all on a response together weigh one."""
        return 1 / np.bincount(self.response)[self.response]

    def rising(self, which: Any) -> Knots:
        """Return the knots of the line through the centres of the steps of isotonic regression on some of the entries."""
        weight, people = self.weight[which], self.people[self.response][which]
        levels, level = np.unique(self.score[which], return_inverse=True)
        weights = np.bincount(level, weights=weight).round(9)
        # Means within 1e-9 are equal, in whatever order ratings and runs were summed.
        means = (np.bincount(level, weights=weight * people) / weights).round(9)
        fitted = scipy.optimize.isotonic_regression(means, weights=weights)
        block = np.repeat(np.arange(len(fitted.blocks) - 1), np.diff(fitted.blocks))
        heights = fitted.x[fitted.blocks[:-1]]
        centres = np.bincount(block, weights * levels) / np.bincount(block, weights)
        return tuple(zip(centres.round(DIGITS).tolist(), heights.round(DIGITS).tolist()))

    def errors(self, cases: int) -> JsonObject:
        """Return the calibration error before the fit and after it, of each case by a line through the other cases."""
        after = np.empty(len(self.people))
        for in_fold in each_fold(self.case):
            points = points_of(self.rising(~in_fold[self.response]), self.score)
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
    settings: str | None  # the settings fingerprint of the judge
    facts: JsonObject  # what the fit measured on the rated cases, for calibration.json

    @staticmethod
    def fit(verdicts: Sequence[Verdict], ratings: PlacedRatings, rubric: Rubric) -> "Calibration":
        """Learn from one judge's verdicts on rated cases.

        Args:
            verdicts: by one rubric and with the same settings. Invalid verdicts and responses without a rating are passed over;
                all verdicts on a response together weigh one.
            ratings: on the rubric's scale; ratings of other responses are passed over.

        Raises:
            RecordError: the rubric has no scale, a rating is off it or given twice, a verdict names no models, there are too
                few rated cases, or people's ratings do not rise with the verdicts.
        """
        table, people = beside_people(verdicts, ratings, rubric)
        sample = Sample.of(table, people)
        cases = len(np.unique(sample.case))
        if cases < FEWEST:
            raise _too_few(cases)
        knots = sample.rising(slice(None))
        if np.ptp(points_of(knots, sample.score)) < SAME:
            raise RecordError(
                "people's ratings do not rise with what the judge gives: there is nothing to learn"
            )
        errors = sample.errors(cases)
        if table.rubric_name != rubric.name:
            errors["before"] = {
                "value": None,
                "reason": f"judged by {table.rubric_name}, not on this scale",
            }
        facts = {
            "cases": cases,
            "responses": len(sample.people),
            "ratings": sample.ratings,
            "calibration_error": errors,
        }
        source = "expected_scores" if table.has_expected else "scores"
        return Calibration(rubric, source, knots, verdicts[0].settings, facts)

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over the judge's settings and what was learnt."""
        return digest([self.settings, self.rubric.fingerprint, self.source, {"knots": self.knots}])

    def apply(self, verdict: Verdict, name: str) -> Verdict:
        """Return the verdict on the rubric's scale, under the judge's new name; an invalid verdict stays invalid.

        RecordError if a valid one has no scores of the kind that this was learnt from.
        """
        fresh = replace(  # the scores are on the judge's scale
            verdict, judge=name, rubric=self.rubric.name, settings=self.fingerprint,
            scores=None, expected_scores=None, criterion_scores=None,
        )  # fmt: skip
        if not verdict.valid:
            return fresh
        scores = getattr(verdict, self.source)
        if scores is None:
            raise RecordError(
                f"the verdict has no {self.source.replace('_', ' ')}: "
                "nothing else can be calibrated"
            )
        expected: list[float | None] = [None] * len(scores)
        for index in verdict.order:
            if verdict.models[index] in verdict.empty:  # whatever was learnt of answers
                expected[index] = float(_scale(self.rubric)[0])
            elif scores[index] is not None:
                expected[index] = round(float(points_of(self.knots, scores[index])), DIGITS)
        rationale = verdict.rationale and f"{verdict.rationale}\n\n{BEFORE}"
        return replace(fresh, expected_scores=tuple(expected), rationale=rationale)

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
        RecordError: a fault of `judge_verdicts` or `Calibration.fit`, or every case is rated.
    """
    placed = judge_verdicts(verdicts, judge)
    cases = [_case_of(verdict) for _, verdict in placed]
    ratings_read, *_ = placed_ratings(ratings, cases, rubric.better)
    learnt_from = {rating.case_id for _, rating in ratings_read}
    rated = [verdict for _, verdict in placed if verdict.case_id in learnt_from]
    files = f"{', '.join(verdicts)}, {ratings}"
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
        RecordError: several judges and no name, no judge of that name, verdicts by several rubrics or with several settings or
            on the criteria of cases, or a fault of `placed_verdicts`.
    """
    placed = []
    for place, verdict in placed_verdicts(places):
        if judge not in (None, verdict.judge):
            continue
        placed.append((place, verdict))
        first = placed[0][1]
        if verdict.judge != first.judge:
            names = f"{first.judge}, {verdict.judge}"
            raise RecordError(f"{place}: verdicts of {names}: choose one with --judge")
        if (verdict.rubric, verdict.settings) != (first.rubric, first.settings):
            others = f"the verdicts before it by {first.rubric}"
            raise RecordError(
                f"{place}: by {verdict.rubric}, and {others}, or with other settings: calibrate them separately"
            )
        if verdict.checklist is not None:
            raise RecordError(
                f"{place}: a verdict on the criteria of a case, and only scores are calibrated"
            )
    if not placed:
        whom = "" if judge is None else f" of the judge {judge!r}"
        raise RecordError(f"{', '.join(places)}: no verdict{whom}")
    return placed


def _scale(rubric: Rubric) -> tuple[int, int]:
    if rubric.scale is None:
        raise RecordError(f"the rubric {rubric.name} gives choices, not scores")
    return rubric.scale


def beside_people(
    verdicts: Sequence[Verdict], ratings: PlacedRatings, rubric: Rubric
) -> tuple[VerdictTable, People]:
    """Return verdicts as a table, and people's ratings of the responses that they are on, which must be on the scale."""
    low, high = _scale(rubric)
    by_id = {verdict.case_id: _case_of(verdict) for verdict in verdicts}
    usable = []
    for place, rating in ratings:
        case = by_id.get(rating.case_id)
        if case is None or rating.model not in case.models:
            continue
        if not low <= rating.score <= high:
            raise RecordError(
                f"{place}: the rating {rating.score:g} is off {rubric.name}'s scale {low} to {high}"
            )
        usable.append((place, rating))
    if not usable:
        raise RecordError(
            "no rating is of a case and model of these verdicts (by question: only of a table)"
        )
    cases = Cases(list(by_id.values()), "verdicts")
    return VerdictTable(cases, verdicts), gather_ratings(usable, cases, "the ratings")


def _too_few(cases: int) -> RecordError:
    return RecordError(
        f"{cases} rated cases with a score of the judge; a calibration needs {FEWEST} at least"
    )


def _case_of(verdict: Verdict) -> Case:
    """Return what a verdict says of its case: the models, which of their responses are empty, and the question of a table.

    RecordError if it does not record the models.
    """
    if not verdict.models:
        raise RecordError(
            f"case {verdict.case_id!r}: the verdict does not name the models whose responses it "
            "is on"
        )
    responses = tuple(
        Response(model, "" if model in verdict.empty else "an answer") for model in verdict.models
    )
    return Case(verdict.case_id, verdict.question or "", responses)
