"""What people said, read from files: ratings of responses, choices about pairs, ratings of verdicts.

Ratings become arrays over the responses of all cases. What does not fit the cases is an error that names the file and the
line, or a note that the report states; nothing is dropped in silence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from automedeval.meta_evaluation.cases import Cases, Elsewhere, check_number
from automedeval.records import Choice, Preference, Rating, RecordError, VerdictRating, read_placed
from automedeval.stats import bootstrap
from automedeval.stats.agreement import CHOICES


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


TIE = "tie"
OUTCOMES = ("first", TIE, "second")


@dataclass
class Preferences:
    """What people preferred of two judges.

    `votes` maps each criterion to every vote on it: (number of the case, annotator, place in OUTCOMES).
    """

    judges: tuple[str, str]
    votes: dict[str, list[tuple[int, str, int]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, case: int, preference: Preference) -> None:
        """Count a preference between these two judges, whichever of them it names first."""
        place = 1 if preference.choice == TIE else 2 * self.judges.index(preference.choice)
        self.votes[preference.criterion].append((case, preference.annotator, place))


def read_preferences(path: str, cases: Cases) -> tuple[list[Preferences], list[str]]:
    """Read people's preferences: one `Preferences` for every two judges, and notes.

    Raises:
        RecordError: a record that is none, one that came before, or none of these cases.
    """
    return gather_preferences(read_placed(path, Preference), cases, path)


def gather_preferences(
    placed: Iterable[tuple[str, Preference]], cases: Cases, source: str
) -> tuple[list[Preferences], list[str]]:
    """Sort preferences by the two judges that they are about; see `read_preferences`."""
    found: dict[frozenset[str], Preferences] = {}
    seen = set()
    other = Elsewhere(f"{source}: preferences", cases)
    for place, given in placed:
        if TIE in given.judges:
            raise RecordError(f"{place}: a judge cannot be called {TIE!r}: the word is a choice")
        if (case := other.case(given.case_id)) is None:
            continue
        pair = frozenset(given.judges)
        key = (case, pair, given.annotator, given.criterion)
        if key in seen:
            raise RecordError(
                f"{place}: {given.annotator!r} preferred one of these verdicts on case {given.case_id!r} "
                f"on {given.criterion!r} before"
            )
        seen.add(key)
        found.setdefault(pair, Preferences(given.judges)).add(case, given)
    if not found:
        raise RecordError(f"{source}: no preference about any case in {cases.source}")
    return list(found.values()), other.notes()


def preference_shares(preferences: Iterable[Preferences], cases: int) -> list[dict[str, Any]]:
    """Return, for every two judges and every criterion, the shares of votes for the first, for neither and for the second.

    Args:
        cases: how many there are.

    Returns:
        {"judges", "criteria": {criterion: {"first", "tie", "second", "margin", "annotators", "cases"}}} each, shares and
        margin (first less second) as `Statistic`; `annotators` maps each to their own three shares, whose spread is what the
        paper's error bars show.
    """
    records = []
    for each in preferences:
        criteria = {}
        for criterion, votes in each.votes.items():
            case, place = (np.array([vote[at] for vote in votes]) for at in (0, 2))
            counts = np.stack([np.bincount(case[place == number], minlength=cases) for number in range(3)]).astype(
                float
            )
            total, reason = counts.sum(axis=0), "no preference"
            shares = {name: bootstrap.ratio(count, total, len(votes), reason) for name, count in zip(OUTCOMES, counts)}
            margin = bootstrap.mean(counts[0] - counts[2], total, len(votes), reason, (-1.0, 1.0))
            own = defaultdict(lambda: [0, 0, 0])
            for _, annotator, number in votes:
                own[annotator][number] += 1
            annotators = {name: [n / sum(own[name]) for n in own[name]] for name in sorted(own)}
            criteria[criterion] = {
                **shares,
                "margin": margin,
                "annotators": annotators,
                "cases": int((total > 0).sum()),
            }
        records.append({"judges": list(each.judges), "criteria": criteria})
    return records
