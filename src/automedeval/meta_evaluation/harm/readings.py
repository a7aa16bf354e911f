"""Read what judges and physicians say of harm, as tables: a verdict has a degree of one response, or none can be told."""

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.files import check_words
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import HarmRating, JsonObject, RecordError, Verdict, errors_at, read_placed
from automedeval.rubrics import Rubric, Rubrics
from automedeval.stats.agreement import Panel
from automedeval.stats.bootstrap import is_known

PHYSICIANS = "physicians"


def rubric_of(table: VerdictTable) -> Rubric:
    """Return the rubric in words of a table."""
    assert table.rubric is not None
    return table.rubric


def of_people(table: VerdictTable) -> bool:
    """Return whether a table is that of physicians' ratings."""
    return table.verdicts[0].annotator is not None


def degrees_of(table: VerdictTable) -> ndarray:
    """Return the degree that each verdict says, from 0: float [verdicts], NaN where it is invalid or can tell none."""
    criterion = rubric_of(table).degree
    names = list(criterion.values)
    degrees = np.full(len(table.verdicts), np.nan)
    for number, verdict in enumerate(table.verdicts):
        word = (verdict.choices or {}).get(criterion.name)
        if verdict.valid and word in names:
            degrees[number] = names.index(word)
    return degrees


def middle_degrees(table: VerdictTable) -> ndarray:
    """Return the middle one of the degrees of each response that could be told, of two middle ones the worse.

    Returns:
        float [responses], NaN where none can be told or nothing is said.
    """
    degrees = degrees_of(table)
    middle = np.full(table.cases.responses, np.nan)
    told = is_known(degrees)
    response = table.response[told]
    degrees = degrees[told]
    in_order = np.lexsort([degrees, response])
    responses, first, count = np.unique(response[in_order], return_index=True, return_counts=True)
    middle[responses] = degrees[in_order][first + count // 2]
    return middle


def paired_degrees(table: VerdictTable) -> tuple[ndarray, ndarray, ndarray]:
    """Return the degrees of every two verdicts on one response, both ways round, and the case of each two."""
    in_order = np.argsort(table.response, kind="stable")
    panel = Panel(table.response[in_order], table.cases.panel.case, len(table.cases))
    degrees = degrees_of(table)[in_order]
    one, other = (degrees[side] for side in panel.pairs)
    return np.append(one, other), np.append(other, one), np.tile(panel.case_of_pair, 2)


def read_harm_ratings(path: str, cases: Cases, rubrics: Rubrics, notes: list[str]) -> VerdictTable:
    """Read physicians' ratings of harm, all by one of these rubrics, as the verdicts of one judge.

    Add to the notes. The rationale of such a verdict is the words that do the harm, and the missing
    step; its `annotator` says whose it is.

    Raises:
        RecordError: a rating by another rubric, with a word that it lacks, of a response that is not there, of marks that are
            not in its text, or a second one by the same annotator; none of these cases.
    """
    rubric = None
    verdicts: dict[tuple[int, str], Verdict] = {}
    for place, rating in cases.known(read_placed(path, HarmRating), path, "rating of", notes):
        number = cases.locate(rating.case_id, rating.model, place)
        case, response = cases.at(number)
        rubric = rubric or rubrics.get(rating.rubric)
        if rubric is None or not rubric.in_words:
            raise RecordError(
                f"{place}: no rubric in words is called {rating.rubric!r}; yours needs --rubric "
                "its.yaml"
            )
        with errors_at(place):
            if rating.rubric != rubric.name:
                raise RecordError(
                    f"by {rating.rubric}, and others are by {rubric.name}: their degrees are not compared"
                )
            check_words(rating.choices, rubric)
            if (number, rating.annotator) in verdicts:
                raise RecordError(
                    f"{rating.annotator!r} rated {rating.model!r} of case {case.id!r} before"
                )
            for mark in rating.marks:
                _check_mark(mark, rating.model, response.text)
        words = [f"“{mark['text']}”" for mark in rating.marks]
        if rating.missing:
            words.append(rating.missing)
        verdicts[number, rating.annotator] = Verdict(
            case.id,
            PHYSICIANS,
            rubric.name,
            (case.models.index(rating.model),),
            valid=True,
            choices=rating.choices,
            rationale="; ".join(words),
            annotator=rating.annotator,
            marks=rating.marks,
            extra={"comment": rating.comment},
        )
    return VerdictTable(cases, list(verdicts.values()), rubric)


def _check_mark(mark: JsonObject, model: str, text: str) -> None:
    """Raise RecordError unless the words of a mark stand in a response where it says."""
    start, end, words = map(mark.get, ("start", "end", "text"))
    is_place = type(start) is int and type(end) is int and start >= 0
    if not is_place or text[start:end] != words:
        raise RecordError(
            f"the words {words!r:.60} do not stand in the response of {model!r} at {start} to "
            f"{end}: another text was rated"
        )
