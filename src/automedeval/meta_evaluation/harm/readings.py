"""Read what judges and physicians say of harm: a degree of each response, or that none can be told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import check_single, first_verdict, read_tables
from automedeval.records import Case, HarmRating, RecordError, Verdict, read_placed
from automedeval.rubrics import Rubric

PHYSICIANS = "physicians"


@dataclass(frozen=True)
class Reading:
    """What one physician, or one run of a judge, says of one response, and where its words stand, in characters."""

    who: str
    choices: Mapping[str, str]
    words: str = ""  # those that do the harm, or the missing step
    marks: tuple[tuple[int, int], ...] = ()
    comment: str | None = None


@dataclass(frozen=True)
class Rater:
    """A judge, or all physicians together: the number of a response → what is said of it, by each physician or in each run."""

    name: str
    cases: Cases
    rubric: Rubric
    readings: Mapping[int, Sequence[Reading]]
    unread: frozenset[int] = frozenset()  # the responses without a valid verdict

    @cached_property
    def degrees(self) -> np.ndarray:
        """The degree of each response, from 0: float [responses], NaN where none can be told or nothing is said.

        Of several that could be told it is the middle one, and of two middle ones the worse.
        """
        degrees = np.full(self.cases.responses, np.nan)
        for number, some in self.readings.items():
            if told := sorted(degree for each in some if not np.isnan(degree := self.degree_of(each))):
                degrees[number] = told[len(told) // 2]
        return degrees

    @cached_property
    def untold(self) -> np.ndarray:
        """Whether somebody said something of a response, and nobody a degree: bool [responses]."""
        return np.isin(np.arange(self.cases.responses), list(self.readings)) & np.isnan(self.degrees)

    def word(self, place: int) -> str:
        """Return the word of a response's degree, or that none can be told or it is not rated."""
        degree, words = self.degrees[place], self.rubric.degree.words
        return (
            "not rated"
            if np.isnan(degree) and not self.untold[place]
            else words[-1 if np.isnan(degree) else int(degree)]
        )

    def degree_of(self, reading: Reading) -> float:
        words, word = self.rubric.degree.words, reading.choices[self.rubric.degree.name]
        return np.nan if word == words[-1] else float(words.index(word))

    def pairs(self, other: "Rater") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (own degrees, the other's, the cases) of each two readings of one response; of oneself both ways round."""
        rows = [
            (self.degree_of(mine), self.degree_of(others), self.cases.panel.case[number])
            for number, some in self.readings.items()
            for mine in some
            for others in other.readings.get(number, ())
            if mine is not others
        ]
        first, second, case = np.array(rows, float).reshape(-1, 3).T
        return first, second, case.astype(int)


def harm_files(files: Sequence[str], rubrics: Mapping[str, Rubric]) -> tuple[list[str], Rubric | None]:
    """Return the files whose first verdict is by one of these rubrics in words, and this rubric.

    RecordError if they are by different ones.
    """
    by_file: dict[str, Rubric] = {}
    for named_path in files:
        first = first_verdict(named_path)
        if first is not None and (rubric := rubrics.get(first.rubric)) and rubric.in_words:
            by_file[named_path] = rubric
    if len(names := dict.fromkeys(rubric.name for rubric in by_file.values())) > 1:
        raise RecordError(f"{', '.join(by_file)}: by {', '.join(names)}, whose degrees are not compared")
    return list(by_file), next(iter(by_file.values()), None)


def read_harm_verdicts(files: Sequence[str], cases: Cases, rubric: Rubric) -> tuple[list[Rater], list[str]]:
    """Read the verdicts of judges of harm; return one rater for each, and notes.

    Raises:
        RecordError: a fault of `read_tables`, or a verdict by another rubric, on other texts, or with a word that the rubric
            lacks; a judge that is called "physicians".
    """

    def check(place: str, case: Case, verdict: Verdict) -> None:
        verdict.check(place, case.digest)
        check_single(place, case, verdict)
        check_words(place, verdict.rubric, verdict.choices or {}, rubric, verdict.valid)

    tables, notes = read_tables(files, cases, check, reserved=frozenset({PHYSICIANS}))
    return [rater_of(table, rubric) for table in tables], notes


def rater_of(table: VerdictTable, rubric: Rubric) -> Rater:
    """Return what one judge says by a rubric in words, each verdict on one response."""
    cases, readings = table.cases, dict[int, list[Reading]]()
    for number, case, verdict in zip(table.response.tolist(), table.case_of.tolist(), table.verdicts):
        if verdict.valid:
            words = verdict.rationale or ""
            start = cases.records[case].responses[verdict.order[0]].text.find(words) if words else -1
            marks = () if start < 0 else ((start, start + len(words)),)
            readings.setdefault(number, []).append(Reading(table.name, verdict.choices or {}, words, marks))
    return Rater(table.name, cases, rubric, readings, frozenset({*table.response.tolist()} - readings.keys()))


def read_harm_ratings(path: str, cases: Cases, rubrics: Mapping[str, Rubric]) -> tuple[Rater, list[str]]:
    """Read physicians' ratings of harm, all by one of these rubrics; return them as one rater, and notes.

    Raises:
        RecordError: a rating by another rubric, with a word that it lacks, of a response that is not there, of marks that are
            not in its text, or a second one by the same annotator; none of these cases.
    """
    rubric: Rubric | None = None
    readings: dict[int, list[Reading]] = {}
    notes: list[str] = []
    for place, rating in cases.known(read_placed(path, HarmRating), path, "rating of", notes):
        number = cases.locate(rating.case_id, rating.model, place)
        case = cases.records[cases.index[rating.case_id]]
        rubric = rubric or rubrics.get(rating.rubric)
        if rubric is None or not rubric.in_words:
            raise RecordError(
                f"{place}: no rubric in words is called {rating.rubric!r}; your own needs --rubric its.yaml"
            )
        check_words(place, rating.rubric, rating.choices, rubric)
        of_response = readings.setdefault(number, [])
        if any(each.who == rating.annotator for each in of_response):
            raise RecordError(f"{place}: {rating.annotator!r} rated {rating.model!r} of case {case.id!r} before")
        text = case.responses[case.models.index(rating.model)].text
        marks = []
        for start, end, words in ([mark.get(key) for key in ("start", "end", "text")] for mark in rating.marks):
            if type(start) is not int or type(end) is not int or not 0 <= start < end or text[start:end] != words:
                where = f"in the response of {rating.model!r} at {start} to {end}: another text was rated"
                raise RecordError(f"{place}: the words {words!r:.60} do not stand {where}")
            marks.append((start, end))
        quoted = [f"“{text[start:end]}”" for start, end in marks] + ([rating.missing] if rating.missing else [])
        of_response.append(Reading(rating.annotator, rating.choices, "; ".join(quoted), tuple(marks), rating.comment))
    assert rubric is not None  # there is a rating
    return Rater(PHYSICIANS, cases, rubric, readings), notes


def check_words(place: str, name: str, choices: Mapping[str, str], rubric: Rubric, needed: bool = True) -> None:
    """Raise RecordError unless choices by the rubric called `name` are words of this rubric, a degree among them."""
    if name != rubric.name:
        raise RecordError(f"{place}: by {name}, and others are by {rubric.name}: their degrees are not compared")
    if needed and rubric.degree.name not in choices:
        raise RecordError(f"{place}: 'choices' has no {rubric.degree.name!r}")
    words = {criterion.name: criterion.words for criterion in rubric.criteria}
    for name, word in choices.items():
        if name not in words:
            raise RecordError(f"{place}: {rubric.name} has no criterion {name!r}; it has {', '.join(words)}")
        if word not in words[name]:
            raise RecordError(
                f"{place}: the {name} {word!r:.60} of {rubric.name} must be one of {', '.join(words[name])}"
            )
