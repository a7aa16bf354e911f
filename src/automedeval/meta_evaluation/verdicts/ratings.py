"""Read people's ratings of responses, their choices between responses, and their ratings of and preferences between verdicts.

A record that does not fit the cases is an error with file and line. What is left out is a note in the report.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import zip_longest
from operator import attrgetter

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.records import (
    Choice,
    CriterionLabel,
    HarmRating,
    Preference,
    Rating,
    RecordError,
    Verdict,
    VerdictRating,
    check_number,
    errors_at,
    read_placed,
    without_repeats,
)
from automedeval.records.readers import PlacedRecord
from automedeval.records.tables.columns import plain
from automedeval.records.tables.ratings import YES_NO, is_better_by_name, placed_ratings
from automedeval.records.tables.rows import read_rows
from automedeval.records.text import several
from automedeval.rubrics import Criterion, packaged_rubrics, read_rubric
from automedeval.stats.agreement import CHOICES, Panel, relation_of
from automedeval.stats.bootstrap import Arrays, Bounds, divide, how_many, is_known, mean_along, only

# The keys of a record that is no rating of scores.
KINDS = {
    CriterionLabel: {"case_id", "criterion", "label"},
    HarmRating: {"case_id", "rubric", "choices"},
    Choice: {"case_id", "pair"},
    Preference: {"case_id", "choice"},
    VerdictRating: {"case_id", "judge", "score"},
}

MISTAKES = 0.1  # share of ratings above a scale up to which the others are on it
PlacedRatings = Iterable[tuple[str, Rating]]  # ("file:line", rating)
# The number of a response → (annotator, comment) of its ratings.
Comments = dict[int, list[tuple[str, str]]]
# What raters are taken as where nobody says it → why, and what is done.
TAKEN_AS = {
    "crossed": "all of them rated all that was rated",
    "partly crossed": "not all of them rated everything; intraclass correlations are one-way, and answers are compared by "
    "those who rated both (--raters crossed if they are persons, anonymous if names are only positions)",
}
UNSURE = (
    "no judge has this criterion, and its name does not say whether people chose the better "
    "answer: rename it, such as overall (harmfulness if they chose the worse one)"
)
RENAME = "the one with the lower score (rename the criterion if people chose the better one)"


def files_by_kind(files: Sequence[str]) -> dict[type, str]:
    """Return the kind of ratings → the file that holds them, as the first record says; of each kind there may be one."""
    by_kind: dict[type, str] = {}
    for file in files:
        first = next((row for _, row in read_rows(file)), {})
        kind = next((kind for kind, keys in KINDS.items() if keys <= first.keys()), Rating)
        if kind in by_kind:
            raise RecordError(
                f"--ratings: {by_kind[kind]} and {file} hold ratings of one kind: put them into "
                "one file"
            )
        by_kind[kind] = file
    return by_kind


@dataclass
class People:
    """Ratings of responses.

    A strict rater who rated one of two responses alone says nothing of the two. So people compare two responses by `gaps`, the
    mean over criteria of the mean over those raters who rated both; without a blank that is the gap between their `scores`.
    Where an annotator's name is said to be a position only, nobody is known to have rated both, and the scores are compared.
    """

    panel: Panel  # of the cases
    annotators: list[str]  # sorted
    criteria: list[str]  # sorted
    ratings: ndarray  # float [criteria, responses, annotators], NaN for none
    # "crossed": persons who rated all; "partly crossed": not all rated all; "anonymous": a name is a position only.
    raters: str = "crossed"
    comments: Comments = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    doubt: str = ""  # what makes their means doubtful, a sentence
    # Why one annotator stands beside no other.
    alone: str = "no answer has two raters: the agreement between people is not known"

    @cached_property
    def compared(self) -> ndarray:
        """The ratings on criteria that all rated responses of their case have: float [criteria, responses, annotators]."""
        there = np.any(is_known(self.ratings), axis=2)
        return only(self.ratings, _shared(there, self.panel.case)[:, :, None])

    def gaps(self, first: ndarray, second: ndarray) -> ndarray:
        """Return how much higher people rate responses than others, by numbers: float [pairs], NaN where nobody rated both.

        It is over the criteria on which every rated response of the case has a rating.
        """
        if self.raters == "anonymous":
            return self.scores[first] - self.scores[second]
        return mean_along(mean_along(self.compared[:, first] - self.compared[:, second], 2), 0)

    @cached_property
    def relations(self) -> ndarray:
        """The relations of all pairs by `gaps`: float [pairs]."""
        return relation_of(self.gaps(*self.panel.pairs))

    def by_annotator(self, alike: bool = False) -> ndarray:
        """Return each annotator's mean over the criteria that he rated on each response of the case.

        If `alike`, it is over those that no annotator of the case lacks, so that annotators can be compared.

        Returns:
            float [responses, annotators].
        """
        shared = _shared(is_known(self.compared), self.panel.case)
        if alike:
            shared = np.all(shared, axis=2, keepdims=True)
        return mean_along(only(self.compared, shared), 0)

    @cached_property
    def scores(self) -> ndarray:
        """People's score of each response, the mean over criteria of the mean over annotators: float [responses]."""
        return mean_along(mean_along(self.compared, 2), 0)

    def leave_one_out(self) -> tuple[Panel, list[ndarray], list[ndarray]] | None:
        """Return each rater beside the mean of the others, which is the ceiling for a judge; None if no response has two.

        Both are means over the same criteria. Of two responses these are the ones on which the
        rater and another one rated both; of one response those on which he and another rated each
        response of the case that he and another rated. Where a name is a position only, the
        relations are those of the scores, as in `gaps`.

        Returns:
            The panel once for each rater; the relations by the others and by the rater, float [pairs]; and their scores, float
            [responses].
        """
        sides = _beside_others(self.compared, self.panel.case)
        if not is_known(sides).any():
            return None
        raters = self.panel.stacked(len(self.annotators))
        scores = list(map(self._levelled, sides))
        if self.raters == "anonymous":
            return raters, list(map(raters.relations, scores)), scores
        first, second = self.panel.pairs
        gaps = _beside_others(self.compared[:, first] - self.compared[:, second])
        return raters, [relation_of(gap).T.ravel() for gap in gaps], scores

    def _levelled(self, side: ndarray) -> ndarray:
        """Shift values [responses, raters] to the mean that all give the rater's responses: float [raters × responses].

        A strict rater is not one who disagrees; and one of hard cases alone is not a strict one.
        """
        level = mean_along(only(self.scores[:, None], is_known(side)), 0)
        return (side - mean_along(side, 0) + level).T.ravel()


def _beside_others(ratings: ndarray, case: ndarray | None = None) -> list[ndarray]:
    """Return the mean of the others and the rater's own, over the criteria with both: each float [units, raters].

    Args:
        ratings: float [criteria, units, raters].
        case: the case of each unit, of responses; their criteria are then those that all such responses of the case have.
    """
    there = is_known(ratings)
    total, count = np.nansum(ratings, axis=2, keepdims=True), there.sum(axis=2, keepdims=True)
    others = divide(total - np.nan_to_num(ratings), count - there)
    both = there & is_known(others)
    if case is not None:
        both &= _shared(both, case)
    return [mean_along(only(values, both), 0) for values in (others, ratings)]


def _shared(there: ndarray, case: ndarray) -> ndarray:
    """Return whether all responses of the case with any criterion have this one, of each rater too.

    `there` is bool [criteria, responses] or [criteria, responses, raters], and so is the result.
    """
    _, start, number = np.unique(case, return_index=True, return_inverse=True)
    return np.logical_and.reduceat(there | ~there.any(axis=0), start, axis=1)[:, number]


def read_ratings(
    path: str,
    cases: Cases,
    raters: str | None = None,
    better: Collection[str] = (),
    worse: Collection[str] = (),
    scale: Bounds = None,
) -> People:
    """Read people's ratings of responses, and note which way each criterion counts; see `placed_ratings`, `gather_ratings`.

    The scores on a criterion in `worse` are turned round on their scale, see `scale_of`.
    """
    placed, notes, doubt = placed_ratings(path, cases.records, better, worse, scale)
    people = gather_ratings(placed, cases, path, raters)
    people.doubt = doubt
    ways = []
    if rest := [name for name in people.criteria if name not in worse]:
        ways.append(f"better on {', '.join(rest)}")
    for name, ratings in zip(people.criteria, people.ratings):
        if name in worse:
            low, high = scale_of(ratings, scale)
            ratings[:] = low + high - ratings
            ways.append(
                f"worse on {name}, whose scores are turned round between {low:g} and {high:g}"
            )
    people.notes += [*notes, f"ratings: a higher number is {'; '.join(ways)}"]
    return replace(people)  # without what was computed of the scores as they were given


def scale_of(ratings: ndarray, scale: Bounds) -> tuple[float, float]:
    """Return the lowest and the highest score of the ratings on a criterion: those of the judge's scale, or those given.

    They are 0 and 1 if all ratings are `YES_NO` and the judge's scale does not end at 1. Else they are the given ones where no
    scale is known, a rating is below it, or more than `MISTAKES` of them are above it; fewer above it
    are mistakes of those who wrote them.
    """
    given = ratings[is_known(ratings)]
    low, high = scale or (np.inf, np.inf)
    if high != 1 and YES_NO.issuperset(given):
        return 0.0, 1.0
    if given.min() >= low and np.mean(given > high) <= MISTAKES:
        return low, high
    return given.min(), given.max()


def gather_ratings(
    placed: PlacedRatings, cases: Cases, source: str, raters: str | None = None
) -> People:
    """Lay out ratings as arrays; raters are "crossed", "anonymous", or None: as `TAKEN_AS` says."""
    notes: list[str] = []
    placed = cases.known(placed, source, "rating of", notes)
    rated = []
    comments: Comments = defaultdict(list)
    for place, rating in without_repeats(placed, attrgetter("model")):
        with errors_at(place):
            check_number(rating.score, "score")
        response = cases.locate(rating.case_id, rating.model, place)
        rated.append((response, rating))
        if rating.comment:
            comments[response].append((rating.annotator, rating.comment))
    criteria = sorted({rating.criterion for _, rating in rated})
    annotators = sorted({rating.annotator for _, rating in rated})
    ratings = np.full((len(criteria), cases.responses, len(annotators)), np.nan)
    for response, rating in rated:
        at = criteria.index(rating.criterion), response, annotators.index(rating.annotator)
        ratings[at] = rating.score
    is_rated = np.any(is_known(ratings), axis=2)
    if raters is None:
        raters = "partly crossed" if np.isnan(ratings[is_rated]).any() else "crossed"
        notes.append(f"raters are taken as {raters}: {TAKEN_AS[raters]}")
    people = People(cases.panel, annotators, criteria, ratings, raters, comments, notes)
    notes += _left_out(people, cases, is_rated)
    return people


def _left_out(people: People, cases: Cases, is_rated: ndarray) -> Iterator[str]:
    """Yield notes on ratings that are not compared; `is_rated` is bool [criteria, responses]."""

    def of_cases(which: ndarray) -> int:
        return len(np.unique(cases.panel.case[np.any(which, axis=0)]))

    is_compared = np.any(is_known(people.compared), axis=2)
    rated, compared = of_cases(is_rated), of_cases(is_compared)
    left_out = "and are left out of every agreement"
    without = rated - compared
    partly = of_cases(is_rated & ~is_compared) - without
    counts = {
        "answers that lack a criterion: there the mean is over those that all rated answers have": partly,
        f"no rating {left_out}": len(cases) - rated,
        f"no criterion that all rated answers have {left_out}": without,
    }
    for what, count in counts.items():
        if count:
            yield f"{count} of {len(cases)} cases have {what}"
    is_alone = np.isnan(people.relations) & is_known(cases.panel.relations(people.scores))
    if is_alone.any():
        pairs = several(how_many(is_alone), "pair")
        yield (
            f"{pairs} of rated answers that no one rater rated both: not compared (--raters "
            "anonymous compares their means)"
        )


@cache  # it reads all packaged rubrics
def known_criterion(name: str) -> Criterion | None:
    """Return the packaged criterion of pairs, or one whose name says that more is better."""
    for rubric in map(read_rubric, packaged_rubrics()):
        for criterion in rubric.criteria:
            if rubric.mode == "pairwise" and criterion.name == plain(name):
                return criterion
    return Criterion(name, "") if is_better_by_name(name) else None


def read_choices(path: str, cases: Cases, notes: list[str], own: Collection[str]) -> Arrays:
    """Return people's choices between two responses: criterion → votes, int [pairs, CHOICES].

    Add to the notes. Choices are left out if their criterion is neither the judges' `own` nor a
    known one.
    """
    none = np.zeros((len(cases.panel.pairs[0]), len(CHOICES)), int)
    votes: Arrays = defaultdict(none.copy)
    on_cases = cases.known(read_placed(path, Choice), path, "choice about", notes)
    for place, choice in without_repeats(on_cases, lambda choice: frozenset(choice.pair)):
        vote = cases.vote(choice.case_id, choice.pair, choice.choice, place)
        votes[choice.criterion][vote] += 1
    for name in sorted(votes):
        criterion = known_criterion(name)
        if not criterion and name not in own:
            count = several(how_many(votes.pop(name)), "choice")
            notes.append(f"{path}: {count} on {name} left out: {UNSURE}")
        elif criterion and criterion.polarity == "worse":
            notes.append(f"choices on {name} are of the worse answer: {RENAME}")
    return votes


def read_verdict_ratings(
    path: str, cases: Cases, notes: list[str], verdicts: Iterable[Verdict]
) -> dict[str, list[VerdictRating]]:
    """Read physicians' ratings of verdicts, by judge; see `_of_these`."""
    ratings = defaultdict[str, list[VerdictRating]](list)
    placed = _of_these(verdicts, VerdictRating, "rating on", path, cases, notes)
    for place, rating in without_repeats(placed, lambda rating: rating.judge):
        with errors_at(place):
            check_number(rating.score, "score")
        ratings[rating.judge].append(rating)
    return ratings


OTHER_TEXTS = "left out: of other texts than the judges' verdicts given here"
UNCHECKED = "have no verdict_digest, or no verdict is given here: counted by case and judge alone"


def _of_these(
    verdicts: Iterable[Verdict], kind: type, what: str, path: str, cases: Cases, notes: list[str]
) -> list[PlacedRecord]:
    """Read records about verdicts but those of other texts.

    Note how many are `OTHER_TEXTS`, and `UNCHECKED`.

    Raises:
        RecordError: none is left.
    """
    digests = defaultdict[tuple[str, str], set[str]](set)
    for verdict in verdicts:
        digests[verdict.case_id, verdict.judge].add(verdict.digest)
    kept, counts = [], Counter[str]()
    for place, record in cases.known(read_placed(path, kind), path, what, notes):
        if kind is Preference:
            shown = dict(zip_longest(record.judges, record.verdict_digests or ()))
        else:
            shown = {record.judge: record.verdict_digest}
        gap = ""
        for judge, digest in shown.items():
            given = digests[record.case_id, judge]
            if digest not in given:
                gap = OTHER_TEXTS if digest and given else gap or UNCHECKED
        counts[gap] += 1
        if gap != OTHER_TEXTS:
            kept.append((place, record))
    if not kept:
        raise RecordError(f"{path}: none is about these verdicts")
    notes += [f"{path}: {count} {gap}" for gap, count in counts.items() if gap]
    return kept


TIE = "tie"
Vote = tuple[
    int, str, int
]  # number of the case, annotator; 1 for the first judge, 0 for a tie, -1 for the second
Preferences = dict[tuple[str, str], dict[str, list[Vote]]]  # the two judges → criterion → votes


def read_preferences(
    path: str, cases: Cases, notes: list[str], verdicts: Iterable[Verdict]
) -> Preferences:
    """Return people's preferences between the verdicts of every two judges; see `_of_these`."""
    preferences: Preferences = {}
    placed = _of_these(verdicts, Preference, "preference about", path, cases, notes)
    for place, preference in without_repeats(placed, lambda vote: frozenset(vote.judges)):
        if TIE in preference.judges:
            raise RecordError(f"{place}: a judge cannot be called {TIE!r}: the word is a choice")
        judges = preference.judges
        if judges[::-1] in preferences:
            judges = judges[::-1]
        relation = 0 if preference.choice == TIE else 1 - 2 * judges.index(preference.choice)
        votes = preferences.setdefault(judges, defaultdict(list))[preference.criterion]
        votes.append((cases.index[preference.case_id], preference.annotator, relation))
    return preferences
