"""Hold what judges say of responses in one table of arrays: scores, choices, criteria that are met, and what is missing.

The rules, which every figure follows; they stand here alone:

- Ties. A judge's values within 1e-4 of a step are equal (`VerdictTable.relation_of`); where pairs are won and lost, expected
  scores within `Row.band` are, but not where a judge stands beside people. An empty response loses a tie with an answer. Of
  choices that are equally frequent the neutral one of their criterion counts.
- Empty responses meet no criterion of a case, whatever a verdict says.
- Unread. A valid verdict that shows a response and says nothing of it gives it no value. A response with an unread criterion
  has no score.
- Invalid and missing verdicts are wrong in every accuracy (paper: Accuracy triple = right triples / all triples of responses of
  a case, where one is right if its three pairs are), 0 in a concordance, and left out of correlations. Models and pairs that no
  verdict shows in cases with verdicts were left out on purpose; a case without any verdict is missing.
- Runs and orders. The value of a response is the mean over its valid verdicts, of all runs or of one; by criteria its score
  of the shares of the runs that call each criterion met.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People
from automedeval.records import Verdict
from automedeval.records.types import by_response, each_once
from automedeval.rubrics import COUNTED, Rubric
from automedeval.stats.agreement import (
    CHOICES,
    NO_CHANGE,
    Panel,
    in_steps,
    most_frequent,
    relation_of,
)
from automedeval.stats.bootstrap import Arrays, Bounds, is_known, mean_along, means_at, only
from automedeval.stats.checklist import checklist_score

BAND = 0.25  # points: expected scores on a scale that are no further apart are equal where pairs are won
Values = dict[int, float]  # index of a response in its case → value
# In the order of the case, or index of a response in it → score; None where there is none.
Scores = Sequence[float | None] | Values | None


def own_scores(
    verdict: Verdict, models: Sequence[str], rubric: Rubric | None, only_on: str | None = None
) -> Scores:
    """Return a verdict's whole scores; without these the shares of criteria won, or a likelihood judge's numbers.

    Args:
        models: the models of the case, in its order.
        rubric: the rubric of a pairwise judge; it has the criteria of which a choice means the worse response.
        only_on: of a pairwise judge the one criterion whose choices count.
    """
    given = (verdict.choices or {}).items()
    choices = {name: choice for name, choice in given if only_on in (None, name)}
    if not choices:
        return verdict.scores or verdict.expected_scores
    worse = set(choices) - rubric.better if rubric else set()
    total = dict.fromkeys(verdict.order, 0.0)
    for criterion, choice in choices.items():
        for index in verdict.order:
            share = 0.5 if choice in CHOICES[2:] else float(choice == models[index])
            total[index] += 1 - share if criterion in worse else share
    return {index: value / len(choices) for index, value in total.items()}


def own_values(verdict: Verdict, rubric: Rubric | None) -> Values:
    """Return what a verdict itself gave each response, see `own_scores`; nothing where it is invalid or could not read it."""
    return _values(verdict, own_scores(verdict, verdict.models, rubric))


def expected_values(verdict: Verdict) -> Values:
    """Return a valid verdict's expected scores, of the responses that it could read."""
    return _values(verdict, verdict.expected_scores)


def _values(verdict: Verdict, scores: Scores) -> Values:
    """Return the scores of the responses that a valid verdict shows."""
    if not scores or not verdict.valid:
        return {}
    return {index: float(score) for index in verdict.order if (score := scores[index]) is not None}


def with_score(verdict: Verdict, cases: Cases) -> Verdict:
    """Return a verdict on the criteria of a case with the unclipped score of those that it calls met; none if one is unread.

    A verdict of another kind stays as it is.
    """
    if verdict.checklist is None:
        return verdict
    if not verdict.valid:
        return replace(verdict, checklist=None)
    case = cases.case(verdict.case_id)
    points = [criterion.points for criterion in case.criteria]
    score = checklist_score(points, verdict.checklist["met"]).score
    return replace(verdict, scores=by_response([score], verdict.order, len(case.responses)))


@dataclass(eq=False)
class VerdictTable:
    """One judge's verdicts by one rubric as flat arrays, one entry per verdict and response.

    A verdict has an entry for every response that it shows, in the order of the case; an invalid one has entries without value.
    """

    cases: Cases
    verdicts: Sequence[Verdict]  # all of the judge, in the order of the file
    rubric: Rubric | None = None  # None where it has no file or the file was not found
    name: str = ""  # in a report; by default `judge`, its name in the verdicts
    files: tuple[Path, ...] = ()  # of the verdicts; the record of the run is beside the last
    kind: str = "judge"  # or "baseline" of what `counted` made
    changed: str = ""  # what it did otherwise for one of two versions, in words

    def __post_init__(self) -> None:
        self.judge, self.rubric_name = self.verdicts[0].author
        self.name = self.name or self.judge
        self.whole_name = f"{self.judge} by {self.rubric_name}"
        self.read = self.verdicts  # as people were shown them
        self.verdicts = [with_score(verdict, self.cases) for verdict in self.verdicts]
        cases = [self.cases.index[verdict.case_id] for verdict in self.verdicts]
        self.case_of = np.array(cases, int)  # int [verdicts], the number of the case

    # --- what is known of the judge

    @cached_property
    def valid(self) -> list[Verdict]:
        """The valid verdicts."""
        return [verdict for verdict in self.verdicts if verdict.valid]

    @cached_property
    def settings(self) -> str | None:
        """The fingerprint of the judge's settings, None where it is not known."""
        for verdict in reversed(self.verdicts):
            if verdict.settings is not None:
                return verdict.settings
        return None

    @cached_property
    def checkpoint(self) -> str | None:
        """The fingerprint of the judge's weights, None where it is not known."""
        checkpoints = {verdict.checkpoint for verdict in self.verdicts}
        return checkpoints.pop() if len(checkpoints) == 1 else None

    @property
    def in_words(self) -> bool:
        """Whether the verdicts are by a rubric in words."""
        return self.rubric is not None and self.rubric.in_words

    @cached_property
    def on_criteria(self) -> bool:
        """Whether the verdicts are on the criteria of cases."""
        by_checklist = self.rubric_name.startswith("checklist@")
        return by_checklist or any(verdict.checklist for verdict in self.verdicts)

    @cached_property
    def of_pairs(self) -> bool:
        """Whether the judge compares pairs, also where no verdict is valid."""
        return any(verdict.pair is not None for verdict in self.verdicts)

    @cached_property
    def has_own(self) -> bool:
        """Whether there are whole scores or choices."""
        return any(verdict.scores is not None or verdict.choices for verdict in self.valid)

    @cached_property
    def with_expected(self) -> int:
        """The number of valid verdicts with expected scores."""
        return sum(verdict.expected_scores is not None for verdict in self.valid)

    @property
    def has_expected(self) -> bool:
        """Whether every valid verdict has expected scores."""
        return 0 < self.with_expected == len(self.valid)

    @cached_property
    def criteria(self) -> list[str]:
        """The criteria of which there are choices."""
        return each_once(verdict.choices or () for verdict in self.valid)

    @cached_property
    def scale(self) -> Bounds:
        """The rubric's scale, of criteria from the lowest score that is possible to 1; None where it is not known."""
        if not self.on_criteria:
            return self.rubric.scale if self.rubric else None
        lowest = self.cases.checklist_scores((self.cases.points < 0).astype(float)).score
        return None if np.isnan(lowest).all() else (float(np.nanmin(lowest)), 1.0)

    # --- verdicts and entries

    @cached_property
    def run(self) -> ndarray:
        """The run of each verdict: int [verdicts]."""
        return np.array([verdict.run for verdict in self.verdicts], int)

    @cached_property
    def runs(self) -> list[int]:
        """The runs, ascending."""
        return np.unique(self.run).tolist()

    @cached_property
    def is_valid(self) -> ndarray:
        """Whether each verdict is valid: bool [verdicts]."""
        return np.array([verdict.valid for verdict in self.verdicts])

    @cached_property
    def given(self) -> ndarray:
        """The number of verdicts on each case: int [cases]."""
        return np.bincount(self.case_of, minlength=len(self.cases))

    @cached_property
    def verdicts_valid(self) -> ndarray:
        """The number of valid verdicts on each case: float [cases]."""
        return np.bincount(self.case_of, self.is_valid, len(self.cases))

    @cached_property
    def _entries(self) -> ndarray:
        """The verdict, the index in the case, and the slot of each entry: int [3, entries]."""

        def entries() -> Iterator[tuple]:
            for number, verdict in enumerate(self.verdicts):
                yield from sorted((number, index, slot) for slot, index in enumerate(verdict.order))

        return np.fromiter(entries(), np.dtype((int, 3))).T

    @cached_property
    def panel(self) -> Panel:
        """The verdicts as groups; its pairs are called pairs of verdicts here, those of `cases.panel` are pairs of cases."""
        return Panel(self._entries[0], self.case_of, len(self.cases))

    @cached_property
    def response(self) -> ndarray:
        """The number of the response of each entry: int [entries]."""
        return self.cases.start[self.panel.case] + self._entries[1]

    @property
    def slot(self) -> ndarray:
        """The place of each entry in the order shown, from 0: int [entries]."""
        return self._entries[2]

    def column(self, scores_of: Callable[[Verdict], Scores]) -> ndarray:
        """Return the scores that each valid verdict has: float [entries], else NaN."""
        column = []
        for verdict in self.verdicts:
            scores = scores_of(verdict) if verdict.valid else None
            column += [scores[index] if scores else None for index in sorted(verdict.order)]
        return np.array(column, float)

    # --- values of entries, and their means over verdicts

    @cached_property
    def score(self) -> ndarray:
        """The whole scores: float [entries]."""
        return self.column(attrgetter("scores"))

    @cached_property
    def expected(self) -> ndarray:
        """The expected scores, else the whole ones: float [entries]."""
        return self.column(lambda verdict: verdict.expected_scores or verdict.scores)

    def own_on(self, criterion: str | None) -> ndarray:
        """Return the values that the judge itself gave, by all choices or those on one criterion: float [entries]."""

        def own_of(verdict: Verdict) -> Scores:
            case = self.cases.case(verdict.case_id)
            return own_scores(verdict, case.models, self.rubric, criterion)

        return self.column(own_of)

    @cached_property
    def own(self) -> ndarray:
        """The values that the judge itself gave (see `own_scores`): float [entries]."""
        return self.own_on(None)

    @property
    def best(self) -> ndarray:
        """The expected scores, else the whole ones, else the judge's own values: float [entries]."""
        return self.expected if self.with_expected else self.own

    @cached_property
    def scores(self) -> ndarray:
        """The mean score, by criteria the score of the shares of the runs: float [responses], NaN where there is none."""
        if not self.on_criteria:
            return self.per_response(self.score)
        return only(self.cases.checklist_scores(self.met).score, self.shown())

    @cached_property
    def step(self) -> float:
        """A point, or all criteria of a judge of pairs; without a scale the standard deviation of its values."""
        values = self.best[is_known(self.best)]
        if self.has_own or self.scale or not len(values):
            return 1.0
        spread = float(np.std(values))
        return spread if spread > NO_CHANGE * np.abs(values).max() else 1.0

    def relation_of(self, gaps: ArrayLike, band: float = 0.0) -> ndarray:
        """Return the relations by gaps between values of this judge; within a band, or `NO_CHANGE` of a step, they are ties."""
        if band:
            gaps = np.asarray(gaps).round(2)  # as they are shown
        return relation_of(in_steps(gaps, self.step), band / self.step)

    def relations(self, values: ndarray, band: float = 0.0) -> ndarray:
        """Return the relations of all pairs by values [responses]: float [pairs]; an empty response loses a tie."""
        first, second = self.cases.panel.pairs
        relations = self.relation_of(values[first] - values[second], band)
        by_empty = self.cases.empty[second] * 1.0 - self.cases.empty[first]
        return np.where(relations == 0, by_empty, relations)

    def per_response(self, values: ndarray, run: int | None = None) -> ndarray:
        """Return the mean of values [entries] over verdicts, of all runs or of one: float [responses], NaN without any."""
        if run is not None:
            values = only(values, self.run[self.panel.group] == run)
        return means_at(values, self.response, self.cases.responses)

    def whole_scores(self, run: int | None = None) -> ndarray:
        """Return the mean scores of all runs or of one; where the judge gives none, the expected ones: float [responses]."""
        if np.isnan(self.scores).all():
            return self.per_response(self.expected, run)
        return self.scores if run is None else self.per_response(self.score, run)

    @cached_property
    def criterion_scores(self) -> Arrays:
        """The mean score on each criterion that the judge scores by itself: float [responses]; empty where it scores none."""

        def mean(name: str) -> ndarray:
            scores = self.column(lambda verdict: (verdict.criterion_scores or {}).get(name))
            return self.per_response(scores)

        names = each_once(verdict.criterion_scores or () for verdict in self.valid)
        return {name: mean(name) for name in names}

    # --- pairs of verdicts

    @cached_property
    def pairs(self) -> ndarray:
        """The number of each pair of verdicts among the pairs of cases: int [pairs of verdicts]."""
        count = self.cases.responses
        of_cases = self.cases.panel.pairs
        first, second = (self.response[side] for side in self.panel.pairs)
        return np.searchsorted(of_cases[0] * count + of_cases[1], first * count + second)

    # --- choices of a pairwise judge

    def choice(self, criterion: str, run: int | None = None) -> ndarray:
        """Return the most frequent choice about each pair in all runs, or in one; the neutral one where two are.

        The choices are int [pairs], indices of CHOICES, "first" being first in the case, -1 where there is none.
        """
        votes = np.zeros((len(self.cases.panel.pairs[0]), len(CHOICES)), int)
        for verdict in self.valid:
            choice = (verdict.choices or {}).get(criterion)
            if choice is not None and run in (None, verdict.run):
                votes[self.cases.vote(verdict.case_id, verdict.pair or (), choice)] += 1
        neutral = self.rubric.criterion(criterion).neutral if self.rubric else "tie"
        return most_frequent(votes, CHOICES.index(neutral))

    @cached_property
    def choices(self) -> Arrays:
        """The choices on every criterion: int [pairs] (see `choice`)."""
        return {criterion: self.choice(criterion) for criterion in self.criteria}

    def choice_relations(self, criterion: str, run: int | None) -> ndarray:
        """Return the relations by the choices of all runs, or of one: float [pairs], 1 where the first response is better."""
        is_worse = self.rubric is not None and criterion not in self.rubric.better
        way = -1.0 if is_worse else 1.0
        # By CHOICES, and last where there is none.
        return np.array([way, -way, 0.0, 0.0, np.nan])[self.choice(criterion, run)]

    # --- criteria of a case

    def per_item(self, key: str) -> ndarray:
        """Return the mean over the runs that read each criterion of each response: float [items], NaN where no run did.

        Args:
            key: "met", of which the mean is the share of the runs that say so, or "met_probabilities".
        """
        cases = self.cases
        indices = list[int]()
        values = list[float | None]()
        for response, verdict in zip(self.response.tolist(), self.verdicts):
            if verdict.checklist:
                values += verdict.checklist[key]
                indices += range(cases.first_item[response], cases.first_item[response + 1])
        means = means_at(np.array(values, float), np.array(indices, int), len(cases.items))
        return np.where(cases.empty[cases.response_of], 0.0, means)

    @cached_property
    def met(self) -> ndarray:
        """In what share of the runs each criterion of each response is met: float [items] (see `per_item`)."""
        return self.per_item("met")

    @cached_property
    def unread_criteria(self) -> ndarray:
        """The number of criteria of each response that no run read: float [responses]."""
        return np.bincount(self.cases.response_of, np.isnan(self.met), self.cases.responses)

    # --- what was asked

    def _asked(self, kind: ndarray, case: ndarray, shown: ndarray) -> ndarray:
        """Return whether the judge was asked about what is of such a kind, int, of such a case and shown in some verdict."""
        return ~np.isin(kind, np.setdiff1d(kind[(self.given > 0)[case]], kind[shown]))

    def shown(self, which: ndarray | None = None) -> ndarray:
        """Return whether any verdict, or any of these (bool [verdicts]), shows each response: bool [responses]."""
        response = self.response if which is None else self.response[which[self.panel.group]]
        return np.isin(np.arange(self.cases.responses), response)

    @cached_property
    def asked(self) -> ndarray:
        """Whether the judge was asked about each response: bool [responses]; False is not counted as an error.

        A model that no verdict shows was left out on purpose.
        """
        return self._asked(self.cases.model_of, self.cases.panel.case, self.response)

    @cached_property
    def asked_pairs(self) -> ndarray:
        """Whether the judge was asked about each pair: bool [pairs].

        Pairs of models that no verdict of a pairwise judge compares were left out on purpose (`--baseline`).
        """
        cases = self.cases
        first, second = cases.panel.pairs
        asked = self.asked[first] & self.asked[second]
        if not self.of_pairs:  # scores of different verdicts on a case can be compared
            return asked
        return asked & self._asked(cases.kind_of_pair, cases.panel.case_of_pair, self.pairs)

    @cached_property
    def missing(self) -> ndarray:
        """In how many runs what the judge was asked about is in no verdict: int [responses], of a pairwise judge [pairs]."""
        run, places, asked = self.run[self.panel.group], self.response, self.asked
        if self.of_pairs:
            run, places, asked = run[self.panel.pairs[0]], self.pairs, self.asked_pairs
        count = len(asked)
        there = np.unique(run * count + places) % count
        return asked * len(self.runs) - np.bincount(there, minlength=count)

    @cached_property
    def verdicts_due(self) -> ndarray:
        """The number of verdicts that each case should have: those given, and those asked for and not given: float [cases].

        A case that lacks some should have as many as those of its size that lack none have on average. Each pair that is in no
        verdict counts at least as one, and as many responses as the largest verdict shows, in one run.
        """
        panel = self.cases.panel
        if self.of_pairs:
            gaps = panel.per_case(self.missing)
        else:
            gaps = np.bincount(panel.case, self.missing, panel.cases) / self.panel.sizes.max()
            np.maximum.at(gaps, panel.case, self.missing)
        full = only(self.given, gaps == 0)
        of_size = means_at(full, panel.sizes, panel.sizes.max() + 1)[panel.sizes]
        return np.where(gaps > 0, np.ceil(np.fmax(self.given + gaps, of_size)), self.given)

    def valid_by_response(self, is_said: ndarray) -> tuple[ndarray, ndarray]:
        """Return the verdicts that say something of each response, bool [entries], and those due on it: two float [responses].

        In every run a response that is in no verdict counts as one verdict; of a pairwise judge every such pair counts.
        """
        count = self.cases.responses
        valid = np.bincount(self.response, is_said, count)
        due = np.bincount(self.response, minlength=count)
        for response in self.cases.panel.pairs if self.of_pairs else (np.arange(count),):
            due = due + np.bincount(response, self.missing, count)
        return valid, due

    @property
    def silent(self) -> ndarray:
        """Whether each response is empty, and a verdict shows it or it has criteria: bool [responses]."""
        return self.cases.empty & (self.on_criteria | self.shown())

    @cached_property
    def unread(self) -> ndarray:
        """Whether valid verdicts show each response and none says anything of it: bool [responses]."""
        says_nothing = np.isnan(self.per_response(self.best))
        if self.on_criteria:  # without positive points a response that was read has no score
            says_nothing = self.unread_criteria > 0
        return self.shown(self.is_valid) & says_nothing

    def by_model(self, which: ndarray) -> dict[str, int]:
        """Return model → number of its responses that the judge was asked about and that are among these, bool [responses]."""
        by_model = self.cases.by_model(which & self.asked)
        return {model: len(responses) for model, responses in by_model}


def counted(cases: Cases, name: str, values: ndarray) -> VerdictTable:
    """Return the scores of a rule without a model, a baseline, as one verdict per case.

    Args:
        values: float [responses], NaN where the rule has no score: it counts as not asked there.
    """
    verdicts = []
    for case, scores in zip(cases.records, np.split(values, cases.start[1:-1])):
        order = tuple(np.flatnonzero(is_known(scores)).tolist())
        verdicts.append(
            Verdict(
                case.id, name, COUNTED, order, valid=True, expected_scores=tuple(scores.tolist())
            )
        )
    judge = VerdictTable(cases, verdicts, kind="baseline")
    judge.asked = is_known(values)
    return judge


@dataclass(eq=False)
class Row:
    """One line of the table: a judge, one criterion of a pairwise judge, or a baseline.

    Of a pairwise judge the line without a criterion is by all of them: the response wins that wins on more criteria.
    Its values are means over the judge's runs, or those of one `run`. What kind of values there are is that of all runs.
    """

    judge: VerdictTable
    criterion: str | None = None
    run: int | None = None

    @property
    def name(self) -> str:
        return self.judge.name if self.criterion is None else f"{self.judge.name}: {self.criterion}"

    def runs(self) -> "list[Row]":
        """Return a line for every run by itself; this line alone where the judge has one run."""
        numbers = self.judge.runs
        return [replace(self, run=number) for number in numbers] if len(numbers) > 1 else [self]

    @property
    def criteria(self) -> list[str]:
        """The criteria whose choices count in this line; none where the judge gives scores."""
        return self.judge.criteria if self.criterion is None else [self.criterion]

    @cached_property
    def whole(self) -> ndarray:
        """The mean whole scores, else the expected ones: float [responses]; NaN where there are none, and on one criterion."""
        return only(self.judge.whole_scores(self.run), self.criterion is None)

    @cached_property
    def expected(self) -> ndarray | None:
        """The mean expected scores, else whole ones, float [responses]; None without expected ones, and on one criterion."""
        judge = self.judge
        if self.criterion is not None or not judge.with_expected:
            return None
        return judge.per_response(judge.expected, self.run)

    @property
    def best(self) -> ndarray | None:
        """The expected scores, else the whole scores, float [responses]; None where there are neither."""
        if self.expected is not None:
            return self.expected
        return None if np.isnan(self.whole).all() else self.whole

    @cached_property
    def ranking_values(self) -> ndarray:
        """The best scores; of a judge of pairs the pairs won less those lost: float [responses], NaN where not known."""
        if self.best is not None:
            return self.best
        panel = self.judge.cases.panel
        won = np.nan_to_num(self.relations)
        first, second = panel.pairs
        count = self.judge.cases.responses
        values = np.bincount(first, won, count) - np.bincount(second, won, count)
        return only(values, (panel.per_case(is_known(self.relations)) > 0)[panel.case])

    @cached_property
    def gaps(self) -> ndarray:
        """How sure the judge is of each case: the mean gap between two of its values, float [cases]; NaN without two."""
        panel = self.judge.cases.panel
        values = self.ranking_values
        first, second = panel.pairs
        gaps = means_at(np.abs(values[first] - values[second]), panel.case_of_pair, panel.cases)
        return np.round(gaps, 9)  # equal ones are equal, in whatever order scores were summed

    @cached_property
    def relations(self) -> ndarray:
        """The relations by the judge's choices, else by its scores, else by its expected scores: float [pairs]."""
        if self.criteria:
            relations = [self.judge.choice_relations(name, self.run) for name in self.criteria]
            return np.sign(mean_along(np.array(relations), 0))
        return self.judge.relations(self.whole)

    @property
    def band(self) -> float:
        """How far apart expected scores on a scale are at most that are equal where pairs are won; 0 of other values."""
        return BAND if self.expected is not None and self.judge.scale else 0.0

    def _finest_relations(self, band: float) -> ndarray:
        """Return the relations by the expected scores, with ties within a band, if there are any: float [pairs]."""
        return (
            self.relations if self.expected is None else self.judge.relations(self.expected, band)
        )

    @cached_property
    def wins(self) -> ndarray:
        """The relations by which pairs are won and lost, by expected scores, if any, with ties within `band`: float [pairs]."""
        return self._finest_relations(self.band)

    @cached_property
    def best_relations(self) -> ndarray:
        """The relations by the expected scores where there are any, which seldom tie: float [pairs]."""
        return self._finest_relations(0.0)

    def people_relations(self, people: People) -> ndarray:
        """Return people's relations of the pairs that this judge was asked about, float [pairs]."""
        return only(people.relations, self.judge.asked_pairs)


Judges = Sequence[VerdictTable]
Rows = Sequence[Row]


def rows_of(judges: Judges) -> list[Row]:
    """Return the lines of the table: one of each judge, and after that of a pairwise judge one of each of its criteria.

    A pairwise judge with one criterion has the line of this criterion alone.
    """
    rows = []
    for judge in judges:
        of_criteria = [Row(judge, criterion) for criterion in judge.criteria]
        rows += of_criteria if len(of_criteria) == 1 else [Row(judge), *of_criteria]
    return rows
