"""What people said, read from files: ratings of responses, choices about pairs, ratings of verdicts.

Ratings become arrays over the responses of all cases. What does not fit the cases is an error that names the file and the
line, or a note that the report states; nothing is dropped in silence.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from automedeval.agreement import CHOICES
from automedeval.cases import Cases, Elsewhere, check_number
from automedeval.records import Choice, Rating, RecordError, VerdictRating, read_placed


@dataclass
class People:
    """Ratings of responses.

    `by_criterion` maps each criterion to float [responses, annotators], NaN where an annotator gave none. `crossed` says that
    annotators are persons who rated all that was rated; otherwise an annotator's name is only a position.
    """

    annotators: list[str]
    by_criterion: dict[str, np.ndarray]
    crossed: bool
    comments: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def by_annotator(self) -> np.ndarray:
        """Each annotator's mean over criteria: float [responses, annotators]."""
        return _mean(np.stack(list(self.by_criterion.values())), 0)

    @cached_property
    def scores(self) -> np.ndarray:
        """The mean over annotators of the mean over criteria: float [responses]."""
        return _mean(self.by_annotator, 1)


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    known = (~np.isnan(values)).sum(axis=axis)
    return np.where(known > 0, np.nansum(values, axis=axis) / np.maximum(known, 1), np.nan)


def read_ratings(path: str, cases: Cases, raters: str | None = None) -> People:
    """Read people's ratings of responses.

    Args:
        raters: "crossed", "anonymous", or None to take as crossed what is complete.

    Raises:
        RecordError: a rating of a model that the case has no response of, one that came before, or none of these cases.
    """
    given: dict[tuple[int, str, str], float] = {}
    comments: dict[int, list[tuple[str, str]]] = defaultdict(list)
    other = Elsewhere(f"{path}: ratings", cases)
    for place, rating in read_placed(path, Rating):
        if (case := other.case(rating.case_id)) is None:
            continue
        check_number(rating.score, "score", place)
        try:
            response = cases.locate(case, rating.model)
        except KeyError:
            raise RecordError(f"{place}: case {rating.case_id!r} has no response of {rating.model!r}") from None
        key = (response, rating.annotator, rating.criterion)
        if key in given:
            raise RecordError(
                f"{place}: {rating.annotator!r} rated {rating.model!r} of case {rating.case_id!r} "
                f"on {rating.criterion!r} before"
            )
        given[key] = rating.score
        if rating.comment:
            comments[response].append((rating.annotator, rating.comment))
    if not given:
        raise RecordError(f"{path}: no rating of any case in {cases.source}")
    annotators = sorted({annotator for _, annotator, _ in given})
    column = {name: number for number, name in enumerate(annotators)}
    by_criterion = {
        name: np.full((cases.responses, len(annotators)), np.nan) for name in sorted({name for *_, name in given})
    }
    for (response, annotator, criterion), score in given.items():
        by_criterion[criterion][response, column[annotator]] = score
    notes = other.notes()
    rated = {name: ~np.isnan(values).all(axis=1) for name, values in by_criterion.items()}
    complete = all(not np.isnan(values[rated[name]]).any() for name, values in by_criterion.items())
    if raters is None:
        notes.append(
            "raters are taken as crossed: all of them rated all that was rated"
            if complete
            else "raters are taken as anonymous: not all of them rated everything (--raters crossed says they are persons)"
        )
    people = People(annotators, by_criterion, complete if raters is None else raters == "crossed", comments, notes)
    unrated = len(cases) - len(np.unique(cases.panel.case[~np.isnan(people.scores)]))
    if unrated:
        notes.append(f"{unrated} of {len(cases)} cases have no rating and are left out of every agreement")
    return people


def read_choices(path: str, cases: Cases) -> tuple[dict[str, dict[int, Counter]], list[str]]:
    """Read people's choices about pairs: criterion → pair → votes by index of CHOICES; and notes."""
    votes: dict[str, dict[int, Counter]] = defaultdict(lambda: defaultdict(Counter))
    other = Elsewhere(f"{path}: choices", cases)
    seen = set()
    for place, choice in read_placed(path, Choice):
        case = other.case(choice.case_id)
        if case is None:
            continue
        try:
            located = [cases.locate(case, model) for model in choice.pair]
        except KeyError as error:
            raise RecordError(f"{place}: case {choice.case_id!r} has no response of {error.args[0]!r}") from None
        pair = cases.pair_index[min(located), max(located)]
        key = (pair, choice.annotator, choice.criterion)
        if key in seen:
            raise RecordError(f"{place}: {choice.annotator!r} chose about this pair on {choice.criterion!r} before")
        seen.add(key)
        code = CHOICES.index(choice.choice) if choice.choice in CHOICES[2:] else None
        if code is None:
            chosen = located[choice.pair.index(choice.choice)]
            code = 0 if chosen == min(located) else 1
        votes[choice.criterion][pair][code] += 1
    if not votes:
        raise RecordError(f"{path}: no choice about any case in {cases.source}")
    return votes, other.notes()


def read_verdict_ratings(path: str, cases: Cases) -> tuple[dict[str, dict[str, list[tuple[int, float]]]], list[str]]:
    """Read physicians' ratings of verdicts: judge → criterion → (case, score) of every rating; and notes."""
    seen = set()
    found: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    other = Elsewhere(f"{path}: ratings of verdicts", cases)
    for place, rating in read_placed(path, VerdictRating):
        if (case := other.case(rating.case_id)) is None:
            continue
        check_number(rating.score, "score", place)
        key = (case, rating.judge, rating.annotator, rating.criterion)
        if key in seen:
            raise RecordError(f"{place}: {rating.annotator!r} rated this verdict on {rating.criterion!r} before")
        seen.add(key)
        found[rating.judge][rating.criterion].append((case, rating.score))
    if not found:
        raise RecordError(f"{path}: no rating of a verdict on any case in {cases.source}")
    return found, other.notes()
