"""Read files of verdicts into tables, and check each verdict against its case and its rubric.

A verdict that does not fit is an error with file and line. What is left out is a note in the report.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import (
    Case,
    RecordError,
    Verdict,
    errors_at,
    named_file,
    placed_verdicts,
    verdicts_file,
)
from automedeval.rubrics import Rubric, read_rubric, without_scale
from automedeval.stats.agreement import CHOICES

Tables = tuple[list[VerdictTable], list[str]]  # and notes
# What verdicts give; choices count as scores.
SCORES, CRITERIA, WORDS = EVERYTHING = ("scores", "criteria", "words")
REFUSED = {
    SCORES: "a verdict by {} is not on the criteria of a case",
    CRITERIA: "a verdict on the criteria of a case; automedeval report reads these, on one file of cases",
    WORDS: "a verdict by {} has words and no scores; automedeval report reads these",
}


# What a checklist holds for each criterion, beside null: the type, and in words. Numbers are from 0 to 1.
ENTRIES: dict[str, tuple[Any, str]] = {
    "met": (bool, "true, false or null"),
    "met_probabilities": (int | float, "null, or a number from 0 to 1"),
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
    own = read_rubric(rubric) if rubric else None
    tables: dict[str, VerdictTable] = {}
    by_id = {case.id: case for case in cases.records}
    notes, more, rubrics = list[str](), list(cases.notes), dict[str, Rubric | None]()
    for named_path in paths:
        label, path = named_file(named_path)
        file = verdicts_file(path)
        by_author: dict[tuple[str, ...], list[Verdict]] = defaultdict(list)
        placed = placed_verdicts([file], by_id)
        for place, verdict in cases.known(placed, file, "verdict on", notes):
            if verdict.rubric not in rubrics:
                rubrics[verdict.rubric] = _rubric(verdict.rubric, own, more)
            case, by = by_id[verdict.case_id], rubrics[verdict.rubric]
            kind = _kind(verdict, by, case)
            with errors_at(place):
                if kind not in kinds:
                    raise RecordError(REFUSED[kind].format(verdict.rubric))
                _check(kind, case, verdict, by)
            # Half of the memory, and no figure reads it; the page shows what could not be read.
            by_author[verdict.author].append(replace(verdict, raw="") if verdict.valid else verdict)
        rubrics_of = Counter(judge for judge, _ in by_author)
        for (judge, by_rubric), verdicts in by_author.items():
            name = f"{label}: {judge}" if label and len(rubrics_of) > 1 else label or judge
            if rubrics_of[judge] > 1:
                name = f"{name} by {by_rubric}"
            if name in tables:
                two = f"two judges are called {name!r}"
                raise RecordError(f"{two}: name them with --verdicts NAME=FILE")
            if name in reserved:
                taken = f"a judge cannot be called {name!r} in a report"
                raise RecordError(f"{taken}: name it with --verdicts NAME=FILE")
            tables[name] = VerdictTable(cases, verdicts, rubrics[by_rubric], name, file)
    if own and not own.in_words and own.name not in rubrics:
        raise RecordError(f"--rubric {rubric}: no verdict was given by {own.name}")
    return list(tables.values()), more + notes


def _kind(verdict: Verdict, rubric: Rubric | None, case: Case) -> str:
    """Return what a verdict gives; an invalid one gives it by its rubric, or by the texts that it was shown."""
    if verdict.checklist is not None:
        return CRITERIA
    if rubric is not None:
        is_checklist = rubric.mode == "checklist"
        return CRITERIA if is_checklist else WORDS if rubric.in_words else SCORES
    saw_criteria = verdict.case_digest == case.checklist_digest != case.digest
    return CRITERIA if saw_criteria or verdict.rubric.startswith("checklist@") else SCORES


def _check(kind: str, case: Case, verdict: Verdict, rubric: Rubric | None) -> None:
    """Raise RecordError unless a verdict of a kind fits its case and its rubric."""
    if kind == SCORES:
        _check_scores(case, verdict, rubric)
        return
    if len(verdict.order) != 1:
        raise RecordError(
            f"'order' {list(verdict.order)} must name one response of case {case.id!r}"
        )
    if kind == CRITERIA and verdict.valid:
        _check_checklist(case, verdict)
    if kind == WORDS and rubric is not None:
        check_words(verdict.rubric, verdict.choices or {}, rubric, verdict.valid)


def _check_checklist(case: Case, verdict: Verdict) -> None:
    """Raise RecordError unless a verdict says of each criterion of its case whether it is met, with a probability or null."""
    checklist = verdict.checklist or {}
    for key, (kind, allowed) in ENTRIES.items():
        entries = checklist.get(key)
        if not isinstance(entries, list) or len(entries) != len(case.criteria):
            raise RecordError(f"{key!r} has not one entry for each criterion of case {case.id!r}")
        for entry in entries:
            if entry is not None and not (isinstance(entry, kind) and 0 <= entry <= 1):
                raise RecordError(f"{key!r} must hold {allowed}, not {entry!r:.40}")


def _rubric(name: str, own: Rubric | None, notes: list[str]) -> Rubric | None:
    """Return the rubric that verdicts were given by; None, with a note, where its file is not found."""
    if own is not None and own.name == name:
        return own
    with suppress(RecordError):
        packaged = read_rubric(name.partition("@")[0])
        if packaged.name == name:
            return packaged
    if not without_scale(name):
        notes.append(
            f"the rubric {name} was not found (--rubric its.yaml): its scale and polarities are "
            "not checked"
        )
    return None


def check_words(name: str, choices: Mapping[str, str], rubric: Rubric, needed: bool = True) -> None:
    """Raise RecordError unless choices by the rubric called `name` are words of this rubric, a degree among them."""
    if name != rubric.name:
        raise RecordError(
            f"by {name}, and others are by {rubric.name}: their degrees are not compared"
        )
    if needed and rubric.degree.name not in choices:
        raise RecordError(f"'choices' has no {rubric.degree.name!r}")
    words = {criterion.name: criterion.words for criterion in rubric.criteria}
    _check_named(choices, words, rubric.name)
    for criterion, word in choices.items():
        if word not in words[criterion]:
            allowed = ", ".join(words[criterion])
            raise RecordError(
                f"the {criterion} {word!r:.60} of {rubric.name} must be one of {allowed}"
            )


def _check_named(criteria: Iterable[str], known: Collection[str], rubric: str) -> None:
    """Raise RecordError unless a rubric has these criteria."""
    for criterion in criteria:
        if criterion not in known:
            names = ", ".join(sorted(known))
            raise RecordError(f"{rubric} has no criterion {criterion!r}; it has {names}")


def _check_scores(case: Case, verdict: Verdict, rubric: Rubric | None) -> None:
    """Raise RecordError unless a verdict has scores on the scale of its rubric, or choices between the two that it shows."""
    choices, pair = verdict.choices or {}, verdict.pair or ()
    if verdict.valid and not (verdict.scores or verdict.expected_scores or choices):
        raise RecordError("'valid' is true, and there are neither scores nor choices")
    if choices or verdict.pair is not None:
        models = {case.models[index] for index in verdict.order}
        if len(models) != 2 or set(pair) != models:
            raise RecordError(
                f"'pair' {verdict.pair} does not name the two models that 'order' shows"
            )
    if rubric is not None:
        _check_by_rubric(verdict, rubric)
    for criterion, choice in choices.items():
        if choice not in (*pair, *CHOICES[2:]):
            allowed = ", ".join(pair)
            raise RecordError(f"{criterion!r} must be one of {allowed}, tie, neither: {choice!r}")


def _check_by_rubric(verdict: Verdict, rubric: Rubric) -> None:
    """Raise RecordError for a criterion that a rubric lacks, or a score that is not on its scale."""
    criteria = {criterion.name for criterion in rubric.criteria}
    _check_named(verdict.choices or (), criteria, rubric.name)
    if verdict.criterion_scores is not None and set(verdict.criterion_scores) != criteria:
        has = ", ".join(sorted(criteria))
        raise RecordError(f"'criterion_scores' must have the criteria of {rubric.name}: {has}")
    if rubric.scale is None:
        return
    low, high = rubric.scale
    for score in chain.from_iterable(verdict.score_lists.values()):
        if score is not None and not low - 1e-6 <= score <= high + 1e-6:
            raise RecordError(f"{score} is off the scale of {rubric.name}, {low} to {high}")
