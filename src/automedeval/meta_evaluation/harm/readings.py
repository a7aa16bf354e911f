"""Read what judges and physicians say of harm, as tables: a verdict has a degree of one response, or none can be told."""

import itertools
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import check_words
from automedeval.records import HarmRating, RecordError, Verdict, errors_at, read_placed
from automedeval.rubrics import Rubric

PHYSICIANS = "physicians"


def rubric_of(table: VerdictTable) -> Rubric:
    """Return the rubric in words of a table."""
    assert table.rubric is not None
    return table.rubric


def degrees_said(table: VerdictTable) -> np.ndarray:
    """Return the degree that each verdict says, from 0: float [verdicts], NaN where it is invalid or can tell none."""
    degree = rubric_of(table).degree
    *words, _ = degree.words
    said = [
        (verdict.choices or {}).get(degree.name) if verdict.valid else None
        for verdict in table.verdicts
    ]
    return np.array([words.index(word) if word in words else np.nan for word in said], float)


def middle_degrees(table: VerdictTable) -> np.ndarray:
    """Return the middle one of the degrees of each response that could be told, of two middle ones the worse.

    Returns:
        float [responses], NaN where none can be told or nothing is said.
    """
    said, middle = degrees_said(table), np.full(table.cases.responses, np.nan)
    told = np.flatnonzero(~np.isnan(said))
    told = told[np.lexsort([said[told], table.response[told]])]
    responses, start, count = np.unique(table.response[told], return_index=True, return_counts=True)
    middle[responses] = said[told[start + count // 2]]
    return middle


def paired_degrees(table: VerdictTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the degrees of every two verdicts on one response, both ways round, and the case of each two."""
    places = defaultdict(list)
    for at, response in enumerate(table.response.tolist()):
        places[response].append(at)
    twos = [two for each in places.values() for two in itertools.permutations(each, 2)]
    one, other = np.array(twos, int).reshape(-1, 2).T
    said = degrees_said(table)
    return said[one], said[other], table.case_of[one]


def read_harm_ratings(
    path: str, cases: Cases, rubrics: Mapping[str, Rubric]
) -> tuple[VerdictTable, list[str]]:
    """Read physicians' ratings of harm, all by one of these rubrics, as the verdicts of one judge; and notes.

    The rationale of such a verdict is the words that do the harm, and the missing step; its "annotator" says whose it is.

    Raises:
        RecordError: a rating by another rubric, with a word that it lacks, of a response that is not there, of marks that are
            not in its text, or a second one by the same annotator; none of these cases.
    """
    rubric: Rubric | None = None
    found: dict[tuple[int, str], Verdict] = {}
    notes: list[str] = []
    for place, rating in cases.known(read_placed(path, HarmRating), path, "rating of", notes):
        number = cases.locate(rating.case_id, rating.model, place)
        case, response = cases.at(number)
        rubric = rubric or rubrics.get(rating.rubric)
        if rubric is None or not rubric.in_words:
            raise RecordError(
                f"{place}: no rubric in words is called {rating.rubric!r}; yours needs --rubric its.yaml"
            )
        with errors_at(place):
            check_words(rating.rubric, rating.choices, rubric)
        if (number, rating.annotator) in found:
            raise RecordError(
                f"{place}: {rating.annotator!r} rated {rating.model!r} of case {case.id!r} before"
            )
        for start, end, words in (
            [mark.get(name) for name in ("start", "end", "text")] for mark in rating.marks
        ):
            if (
                {type(start), type(end)} != {int}
                or not 0 <= start < end
                or response.text[start:end] != words
            ):
                where = f"in the response of {rating.model!r} at {start} to {end}: another text was rated"
                raise RecordError(f"{place}: the words {words!r:.60} do not stand {where}")
        quoted = [f"“{mark['text']}”" for mark in rating.marks] + (
            [rating.missing] if rating.missing else []
        )
        about = {"annotator": rating.annotator, "marks": rating.marks, "comment": rating.comment}
        said = {"choices": rating.choices, "rationale": "; ".join(quoted), "extra": about}
        order = (case.models.index(rating.model),)
        found[number, rating.annotator] = Verdict(
            case.id, PHYSICIANS, rubric.name, order, valid=True, **said
        )
    return VerdictTable(cases, list(found.values()), rubric), notes
