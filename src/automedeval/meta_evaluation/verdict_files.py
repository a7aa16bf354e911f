"""Read files of verdicts into tables, and check each verdict against its case and its rubric.

A verdict that does not fit is an error with file and line. What is left out is a note in the report.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import (
    Case,
    RecordError,
    Verdict,
    check_number,
    named_file,
    read_placed,
    verdicts_file,
)
from automedeval.rubrics import Rubric, RubricError, read_rubric, without_scale
from automedeval.stats.agreement import CHOICES

Tables = tuple[list[VerdictTable], list[str]]  # and notes
SCORES, CRITERIA, WORDS = (
    "scores",
    "criteria",
    "words",
)  # what verdicts give; choices count as scores
REFUSED = {
    SCORES: "a verdict by {} is not on the criteria of a case",
    CRITERIA: "a verdict on the criteria of a case; automedeval report and compare read these, on one file of cases",
    WORDS: "a verdict by {} has words and no scores; automedeval report reads these",
}


def read_verdicts(
    paths: Sequence[str],
    cases: Cases,
    rubric: str | None = None,
    kinds: Collection[str] = (SCORES,),
    reserved: Collection[str] = (),
) -> Tables:
    """Return a table for every judge and rubric of the files, of its verdicts on these cases, in their order; and notes.

    The notes are on the files and the cases; `notes_on` has those on a judge.

    Args:
        paths: files, or folders that hold a verdicts.jsonl; `NAME=PATH` gives the judge in it the name NAME.
        rubric: the user's own rubric's file.
        kinds: what the verdicts may give.
        reserved: names that no judge may have.

    Raises:
        RecordError: a verdict that does not fit its case or its rubric, is of another kind, or stands twice; a file without a
            verdict on these cases; two judges of one name; no verdict by the user's own rubric.
    """
    tables: dict[str, VerdictTable] = {}
    notes, more, rubrics = list[str](), list(cases.notes), dict[str, Rubric | None]()
    for named_path in paths:
        label, path = named_file(named_path)
        file = verdicts_file(path)
        found: dict[tuple[str, ...], dict[tuple, tuple[str, Verdict]]] = {}
        for place, verdict in cases.known(read_placed(file, Verdict), file, "verdict on", notes):
            of_author = found.setdefault(verdict.author, {})
            if verdict.key in of_author:
                same = f"the verdict of {verdict.judge} on case {verdict.case_id!r} in this order"
                raise RecordError(f"{place}: {same} is at {of_author[verdict.key][0]} already")
            if verdict.rubric not in rubrics:
                rubrics[verdict.rubric] = _rubric(verdict.rubric, rubric, more)
            case = cases.records[cases.index[verdict.case_id]]
            verdict = verdict.of_case(case, place)
            kind = _kind(verdict, by := rubrics[verdict.rubric], case)
            if kind not in kinds:
                raise RecordError(f"{place}: {REFUSED[kind].format(verdict.rubric)}")
            CHECKS[kind](place, case, verdict, by)
            # Half of the memory, and no figure reads it; the page shows what could not be read.
            of_author[verdict.key] = place, replace(verdict, raw="") if verdict.valid else verdict
        rubrics_of = Counter(judge for judge, _ in found)
        for (judge, by_rubric), placed in found.items():
            name = f"{label}: {judge}" if label and len(rubrics_of) > 1 else label or judge
            name = f"{name} by {by_rubric}" if rubrics_of[judge] > 1 else name
            if name in tables:
                raise RecordError(
                    f"two judges are called {name!r}: name them with --verdicts NAME=FILE"
                )
            if name in reserved:
                raise RecordError(
                    f"a judge cannot be called {name!r} in a report: name it with --verdicts NAME=FILE"
                )
            verdicts = [verdict for _, verdict in placed.values()]
            tables[name] = VerdictTable(cases, verdicts, rubrics[by_rubric], name, file)
    if rubric and not (own := read_rubric(rubric)).in_words and own.name not in rubrics:
        raise RecordError(f"--rubric {rubric}: no verdict was given by {own.name}")
    return list(tables.values()), more + notes


def _kind(verdict: Verdict, rubric: Rubric | None, case: Case) -> str:
    """Return what a verdict gives; an invalid one gives it by its rubric, or by the texts that it was shown."""
    if rubric is not None:
        is_checklist = rubric.mode == "checklist"
    else:
        seen = verdict.extra.get(verdict.digest_key)
        is_checklist = (
            verdict.rubric.startswith("checklist@") or seen == case.checklist_digest != case.digest
        )
    if is_checklist or verdict.checklist is not None:
        return CRITERIA
    return WORDS if rubric is not None and rubric.in_words else SCORES


def _check_single(place: str, case: Case, verdict: Verdict) -> None:
    """Raise RecordError unless a verdict shows one response of a case."""
    if len(verdict.order) != 1 or not 0 <= verdict.order[0] < len(case.responses):
        raise RecordError(
            f"{place}: 'order' {list(verdict.order)} must name one response of case {case.id!r}"
        )


def _check_checklist(place: str, case: Case, verdict: Verdict, _: Rubric | None) -> None:
    """Raise RecordError unless a verdict says of each criterion of its case whether it is met, with a probability or null."""
    if verdict.valid and verdict.checklist is None:
        raise RecordError(f"{place}: {REFUSED[SCORES].format(verdict.rubric)}")
    verdict.check(place, case.checklist_digest)
    _check_single(place, case, verdict)
    kinds = (("met", "true, false or null"), ("met_probabilities", "null, or a number from 0 to 1"))
    for key, allowed in kinds if verdict.valid else ():
        entries = (verdict.checklist or {}).get(key)
        if not isinstance(entries, list) or len(entries) != len(case.criteria):
            raise RecordError(
                f"{place}: {key!r} has not one entry for each criterion of case {case.id!r}"
            )
        for value in entries:
            is_allowed = (
                isinstance(value, bool)
                if key == "met"
                else isinstance(value, int | float) and 0 <= value <= 1
            )
            if value is not None and not is_allowed:
                raise RecordError(f"{place}: {key!r} must hold {allowed}, not {value!r:.40}")


def _rubric(name: str, given_path: str | None, notes: list[str]) -> Rubric | None:
    """Return the rubric that verdicts were given by; None, with a note, where its file is not found."""
    for candidate in (given_path, name.partition("@")[0]):
        try:
            rubric = read_rubric(candidate) if candidate else None
        except RubricError:
            if candidate == given_path:
                raise
            rubric = None
        if rubric is not None and rubric.name == name:
            return rubric
    if not without_scale(name):
        note = f"the rubric {name} was not found (--rubric its.yaml): its scale and polarities are not checked"
        notes += [note] if note not in notes else []
    return None


def check_words(
    place: str, name: str, choices: Mapping[str, str], rubric: Rubric, needed: bool = True
) -> None:
    """Raise RecordError unless choices by the rubric called `name` are words of this rubric, a degree among them."""
    if name != rubric.name:
        raise RecordError(
            f"{place}: by {name}, and others are by {rubric.name}: their degrees are not compared"
        )
    if needed and rubric.degree.name not in choices:
        raise RecordError(f"{place}: 'choices' has no {rubric.degree.name!r}")
    words = {criterion.name: criterion.words for criterion in rubric.criteria}
    for name, word in choices.items():
        if name not in words:
            raise RecordError(
                f"{place}: {rubric.name} has no criterion {name!r}; it has {', '.join(words)}"
            )
        if word not in words[name]:
            allowed = ", ".join(words[name])
            raise RecordError(
                f"{place}: the {name} {word!r:.60} of {rubric.name} must be one of {allowed}"
            )


def _check_words(place: str, case: Case, verdict: Verdict, rubric: Rubric | None) -> None:
    """Raise RecordError unless a verdict is on one present response of a case, and has words of its rubric."""
    assert rubric is not None
    verdict.check(place, case.digest)
    _check_single(place, case, verdict)
    check_words(place, verdict.rubric, verdict.choices or {}, rubric, verdict.valid)


def _score_lists(verdict: Verdict) -> dict[str, Any]:
    """Return the lists of scores that a verdict has, by what an error calls them."""
    lists: dict[str, Any] = {"scores": verdict.scores, "expected_scores": verdict.expected_scores}
    lists = {name: values for name, values in lists.items() if values is not None}
    return lists | {
        f"criterion_scores.{name}": values
        for name, values in (verdict.criterion_scores or {}).items()
    }


def _check_scores(place: str, case: Case, verdict: Verdict, rubric: Rubric | None) -> None:
    """Raise RecordError unless a verdict is on the present texts of a case, and fits its responses and the rubric."""
    verdict.check(place, case.digest)
    count = len(case.responses)
    if not all(0 <= index < count for index in verdict.order) or len(set(verdict.order)) != len(
        verdict.order
    ):
        raise RecordError(
            f"{place}: 'order' {list(verdict.order)} does not fit the {count} responses of {case.id!r}"
        )
    scale = rubric.scale if rubric else None
    for name, values in _score_lists(verdict).items():
        if not isinstance(values, list | tuple) or len(values) != count:
            size = len(values) if isinstance(values, list | tuple) else type(values).__name__
            raise RecordError(
                f"{place}: {size} {name!r} for the {count} responses of case {case.id!r}"
            )
        for index, value in enumerate(values):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(
                value, int | float
            ):  # `criterion_scores` can hold anything
                raise RecordError(f"{place}: {name!r} must hold numbers, not {value!r:.40}")
            check_number(value, name, place)
            if scale and not scale[0] - 1e-6 <= value <= scale[1] + 1e-6:
                raise RecordError(
                    f"{place}: {value} is off the scale of {verdict.rubric}, {scale[0]} to {scale[1]}"
                )
            if index not in verdict.order:
                raise RecordError(
                    f"{place}: {name!r} has a score for a response that 'order' does not show"
                )
    if (
        verdict.valid
        and verdict.scores is None
        and verdict.expected_scores is None
        and not verdict.choices
    ):
        raise RecordError(f"{place}: 'valid' is true, and there are neither scores nor choices")
    if verdict.choices or verdict.pair is not None:
        shown = {case.models[index] for index in verdict.order}
        if verdict.pair is None or len(set(verdict.pair)) != 2 or set(verdict.pair) != shown:
            raise RecordError(
                f"{place}: 'pair' {verdict.pair} does not name the two models that 'order' shows"
            )
    criteria = {criterion.name for criterion in rubric.criteria} if rubric else set()
    if (
        criteria
        and verdict.criterion_scores is not None
        and set(verdict.criterion_scores) != criteria
    ):
        has = ", ".join(sorted(criteria))
        raise RecordError(
            f"{place}: 'criterion_scores' must have the criteria of {verdict.rubric}: {has}"
        )
    models = verdict.pair or ()
    for criterion, choice in (verdict.choices or {}).items():
        if criteria and criterion not in criteria:
            has = ", ".join(sorted(criteria))
            raise RecordError(
                f"{place}: {verdict.rubric} has no criterion {criterion!r}; it has {has}"
            )
        if choice not in (*models, *CHOICES[2:]):
            allowed = ", ".join(models)
            raise RecordError(
                f"{place}: {criterion!r} must be one of {allowed}, tie, neither: {choice!r}"
            )


CHECKS: dict[str, Callable[[str, Case, Verdict, Rubric | None], None]] = {
    SCORES: _check_scores,
    CRITERIA: _check_checklist,
    WORDS: _check_words,
}
