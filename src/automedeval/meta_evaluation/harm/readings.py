"""Read what judges and physicians say of harm: a degree of each response, or that none can be told."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases, UnknownCases
from automedeval.records import HarmRating, RecordError, Verdict, named_file, read_placed, verdicts_file
from automedeval.rubrics import Rubric
from automedeval.rubrics.rubric import rubrics_with

PHYSICIANS = "physicians"


@dataclass(frozen=True)
class Reading:
    """What one physician, or one run of a judge, says of one response.

    Args:
        who: the annotator, or the judge.
        choices: criterion → word of the rubric.
        words: the words that do the harm or the missing step, as they are written; "" if nothing is.
        marks: the places of the words in the response, (start, end) in characters.
        comment: a physician's.
    """

    who: str
    choices: Mapping[str, str]
    words: str = ""
    marks: tuple[tuple[int, int], ...] = ()
    comment: str | None = None


@dataclass(frozen=True)
class Rater:
    """A judge, or all physicians together.

    Args:
        name: the judge, or PHYSICIANS.
        readings: the number of a response → what is said of it, by each physician or in each run.
        invalid: the responses with an invalid verdict, by number → how many.
    """

    name: str
    cases: Cases
    rubric: Rubric
    readings: Mapping[int, Sequence[Reading]]
    invalid: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def people(self) -> list[str]:
        return sorted({reading.who for some in self.readings.values() for reading in some})

    @cached_property
    def degrees(self) -> np.ndarray:
        """The degree of each response, from 0: float [responses], NaN where none can be told or nothing is said.

        Of several it is the middle one, and of two middle ones the worse.
        """
        degrees = np.full(self.cases.responses, np.nan)
        for number, some in self.readings.items():
            if degrees_of_one := sorted(degree for each in some if not np.isnan(degree := self.degree_of(each))):
                degrees[number] = degrees_of_one[len(degrees_of_one) // 2]
        return degrees

    @cached_property
    def untold(self) -> np.ndarray:
        """Whether somebody said something of a response, and nobody a degree: bool [responses]."""
        said = np.isin(np.arange(self.cases.responses), list(self.readings))
        return said & np.isnan(self.degrees)

    def degree_of(self, reading: Reading) -> float:
        criterion = self.rubric.degree
        word = reading.choices[criterion.name]
        return np.nan if word == criterion.neutral else float(list(criterion.values).index(word))

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


def harm_files(files: Sequence[str], own: str | None) -> tuple[list[str], Rubric | None]:
    """Return the files whose first verdict is by a rubric in words, and this rubric.

    Args:
        own: the path of a user's own rubric.

    Raises:
        RecordError: they are by different rubrics.
    """
    in_words = {name: each for name, each in rubrics_with([own] if own else []).items() if each.in_words}
    chosen: list[str] = []
    rubrics: dict[str, Rubric] = {}
    for named_path in files:
        first = next(iter(read_placed(verdicts_file(named_file(named_path)[1]), Verdict)), None)
        if first is not None and first[1].rubric in in_words:
            chosen.append(named_path)
            rubrics[first[1].rubric] = in_words[first[1].rubric]
    if len(rubrics) > 1:
        raise RecordError(
            f"{', '.join(chosen)}: harm by {', '.join(rubrics)}: degrees of different rubrics are not compared"
        )
    return chosen, next(iter(rubrics.values()), None)


def read_harm_verdicts(files: Sequence[str], cases: Cases, rubric: Rubric) -> tuple[list[Rater], list[str]]:
    """Read the verdicts of judges of harm; return one rater for each, and notes. NAME=FILE names the judge.

    Raises:
        RecordError: a verdict by another rubric, on other texts, twice, with a word that the rubric lacks, or none at all.
    """
    verdicts: dict[str, dict[tuple, Verdict]] = {}
    notes = []
    for named_path in files:
        name, path = named_file(named_path)
        file = verdicts_file(path)
        other = UnknownCases(f"{file}: verdicts", cases)
        for place, verdict in other.leave_out(read_placed(file, Verdict)):
            case = cases.records[cases.index[verdict.case_id]]
            verdict.check(place, case.digest)
            if len(verdict.order) != 1 or not 0 <= verdict.order[0] < len(case.responses):
                raise RecordError(f"{place}: 'order' {list(verdict.order)} must name one response of case {case.id!r}")
            check_words(place, verdict.rubric, verdict.choices or {}, rubric, verdict.valid)
            of_judge = verdicts.setdefault(name or verdict.judge, {})
            if verdict.key in of_judge:
                raise RecordError(
                    f"{place}: {verdict.judge} judged this response of case {case.id!r} in this run before"
                )
            of_judge[verdict.key] = verdict
        notes += other.notes()
    if not verdicts:
        raise RecordError(f"{', '.join(files)}: no verdict on any case in {cases.source}")
    return [replace(rater_of([*each.values()], cases, rubric), name=name) for name, each in verdicts.items()], notes


def rater_of(verdicts: Sequence[Verdict], cases: Cases, rubric: Rubric) -> Rater:
    """Return what one judge says by checked verdicts, each on one response."""
    readings: dict[int, list[Reading]] = {}
    invalid: Counter[int] = Counter()
    for verdict in verdicts:
        place, (slot,) = cases.index[verdict.case_id], verdict.order
        number = int(cases.start[place]) + slot
        words = verdict.rationale or ""
        start = cases.records[place].responses[slot].text.find(words) if words else -1
        marks = () if start < 0 else ((start, start + len(words)),)
        if verdict.valid:
            readings.setdefault(number, []).append(Reading(verdict.judge, verdict.choices or {}, words, marks))
        invalid[number] += not verdict.valid
    return Rater(verdicts[0].judge, cases, rubric, readings, invalid)


def read_harm_ratings(path: str, cases: Cases, rubric: Rubric | None, own: str | None) -> tuple[Rater, list[str]]:
    """Read physicians' ratings of harm; return them as one rater, and notes.

    Args:
        rubric: the one that they must have used; None: that of the first rating, packaged or `own`.

    Raises:
        RecordError: a rating by another rubric, with a word that it lacks, of a response that is not there, of marks that are
            not in its text, or a second one by the same annotator; none of these cases.
    """
    rubrics = rubrics_with([own] if own else [])
    readings: dict[int, dict[str, Reading]] = {}
    other = UnknownCases(f"{path}: ratings", cases)
    for place, rating in other.leave_out(read_placed(path, HarmRating)):
        case = cases.records[cases.index[rating.case_id]]
        if rating.model not in case.models:
            raise RecordError(f"{place}: case {case.id!r} has no response of {rating.model!r}")
        rubric = rubric or rubrics.get(rating.rubric)
        if rubric is None or not rubric.in_words:
            raise RecordError(
                f"{place}: no rubric in words is called {rating.rubric!r}; your own needs --rubric its.yaml"
            )
        check_words(place, rating.rubric, rating.choices, rubric)
        number = cases.locate(cases.index[case.id], rating.model)
        of_response = readings.setdefault(number, {})
        if rating.annotator in of_response:
            raise RecordError(f"{place}: {rating.annotator!r} rated {rating.model!r} of case {case.id!r} before")
        marks = tuple(_places(place, rating, case.responses[case.models.index(rating.model)].text))
        words = [*(f"“{each['text']}”" for each in rating.marks), *([rating.missing] if rating.missing else [])]
        reading = Reading(rating.annotator, rating.choices, "; ".join(words), marks, rating.comment)
        of_response[rating.annotator] = reading
    if rubric is None or not readings:
        raise RecordError(f"{path}: no rating of any case in {cases.source}")
    every = {number: list(by_annotator.values()) for number, by_annotator in readings.items()}
    return Rater(PHYSICIANS, cases, rubric, every), other.notes()


def check_words(place: str, name: str, choices: Mapping[str, str], rubric: Rubric, needed: bool = True) -> None:
    """Raise RecordError unless choices by the rubric called `name` are words of this rubric, a degree among them."""
    if name != rubric.name:
        raise RecordError(f"{place}: by {name}, and others are by {rubric.name}: their degrees are not compared")
    if needed and rubric.degree.name not in choices:
        raise RecordError(f"{place}: 'choices' has no {rubric.degree.name!r}")
    for criterion, word in choices.items():
        if criterion not in rubric.output_criteria:
            has = ", ".join(rubric.output_criteria)
            raise RecordError(f"{place}: {rubric.name} has no criterion {criterion!r}; it has {has}")
        if word not in (words := rubric.criterion(criterion).words):
            raise RecordError(
                f"{place}: the {criterion} {word!r:.60} of {rubric.name} must be one of {', '.join(words)}"
            )


def _places(place: str, rating: HarmRating, text: str) -> Iterable[tuple[int, int]]:
    for mark in rating.marks:
        start, end = mark.get("start"), mark.get("end")
        if (
            type(start) is not int
            or type(end) is not int
            or not 0 <= start < end
            or text[start:end] != mark.get("text")
        ):
            raise RecordError(
                f"{place}: the words {mark.get('text')!r:.60} do not stand in the response of {rating.model!r} at "
                f"{start} to {end}: it was another text that was rated"
            )
        yield start, end
