"""Read files of verdicts into tables, and check each verdict against its case and its rubric.

A verdict that does not fit is an error with file and line. What is left out is a note in the report.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import (
    Case,
    OtherTexts,
    RecordError,
    Verdict,
    errors_at,
    named_file,
    placed_verdicts,
    verdicts_file,
)
from automedeval.records.run_record import run_arguments
from automedeval.rubrics import Rubric, read_rubric, without_scale
from automedeval.stats.agreement import CHOICES

Author = tuple[str, ...]  # a judge and its rubric
Tables = tuple[list[VerdictTable], list[str]]  # and notes


def read_verdicts(
    paths: Sequence[str],
    cases: Cases,
    rubric: str | None = None,
    scores_only: bool = True,
    reserved: Collection[str] = (),
    main: str | None = None,
) -> Tables:
    """Return a table for every judge and rubric of the files, of its verdicts on these cases, in their order; and notes.

    The notes are on the files and the cases; `notes_on` has those on a judge.

    Args:
        paths: files, or folders that hold a verdicts.jsonl; `NAME=PATH` gives the judge in it the name NAME.
        rubric: the user's own rubric's file.
        scores_only: whether every verdict must give scores or choices, and none criteria of a case or words.
        reserved: names that no judge may have.
        main: the judge, or JUDGE by RUBRIC, that the report is about: of the others, verdicts on texts that have changed are
            left out, with a note.

    Raises:
        RecordError: a verdict that does not fit its case or its rubric, is of another kind, or stands twice; a file without a
            verdict on these cases; two judges of one name; no verdict by the user's own rubric.
    """
    own = read_rubric(rubric) if rubric else None
    rubrics: dict[str, Rubric | None] = {}
    tables: dict[str, VerdictTable] = {}
    notes = list(cases.notes)
    for named_path in paths:
        label, path = named_file(named_path)
        file = verdicts_file(path)
        by_author = defaultdict[Author, list[Verdict]](list)
        outdated = 0
        for place, verdict in cases.known(placed_verdicts([file]), file, "verdict on", notes):
            if verdict.rubric not in rubrics:
                run = run_arguments(file.parent / f"run-{verdict.settings}.json")
                places = (rubric, verdict.rubric.partition("@")[0], run.get("rubric"))
                rubrics[verdict.rubric] = _rubric(verdict.rubric, places, notes)
            case = cases.case(verdict.case_id)
            with errors_at(place):
                try:
                    verdict = verdict.of_case(case)
                except OtherTexts:
                    if main in (None, label, verdict.judge, " by ".join(verdict.author)):
                        raise
                    outdated += 1
                    continue
                _check(case, verdict, rubrics[verdict.rubric], scores_only)
            by_author[verdict.author].append(verdict.for_figures())
        if outdated:
            notes.append(
                f"{file}: verdicts by others than {main}: {outdated} left out, whose texts changed"
            )
        for author, name in _names(label, by_author).items():
            if name in tables or name in reserved:
                raise RecordError(
                    f"a judge cannot be called {name!r} here, a name that another line of the "
                    "report has: name it with --verdicts NAME=FILE"
                )
            tables[name] = VerdictTable(cases, by_author[author], rubrics[author[1]], name, (file,))
    if own and not own.in_words and own.name not in rubrics:
        raise RecordError(f"--rubric {rubric}: no verdict was given by {own.name}")
    return list(tables.values()), notes


def _names(label: str, authors: Collection[Author]) -> dict[Author, str]:
    """Return what each judge and rubric of a file is called: by the label, if there is one, and by what tells it apart."""
    rubrics_of = Counter(judge for judge, _ in authors)
    names: dict[Author, str] = {}
    for judge, rubric in authors:
        name = label or judge
        if label and len(rubrics_of) > 1:
            name = f"{label}: {judge}"
        if rubrics_of[judge] > 1:
            name = f"{name} by {rubric}"
        names[judge, rubric] = name
    return names


def _rubric(name: str, places: Iterable[str | None], notes: list[str]) -> Rubric | None:
    """Return the rubric that verdicts were given by, from the first place that has it; None, with a note, where none has."""
    for place in filter(None, places):
        with suppress(RecordError):
            found = read_rubric(place)
            if found.name == name:
                return found
    if not without_scale(name):
        notes.append(
            f"the rubric {name} was not found where the run had its file (for automedeval report "
            "--rubric its.yaml): its scale and polarities are not checked"
        )
    return None


def _check(case: Case, verdict: Verdict, rubric: Rubric | None, scores_only: bool) -> None:
    """Raise RecordError unless a verdict fits its case and its rubric, and gives scores or choices if it must."""
    mode = rubric.mode if rubric else ""
    on_criteria = verdict.checklist is not None or mode == "checklist"
    in_words = rubric is not None and rubric.in_words
    if not on_criteria and not in_words:
        _check_scores(case, verdict, rubric)
        return
    if scores_only:
        what = "on the criteria of a case" if on_criteria else "in words"
        raise RecordError(
            f"a verdict by {verdict.rubric} is {what}, without scores; automedeval report reads "
            "these, on one file of cases"
        )
    if len(verdict.order) != 1:
        raise RecordError(
            f"'order' {list(verdict.order)} must name one response of case {case.id!r}"
        )
    if not verdict.valid:
        return
    if on_criteria:
        _check_checklist(case, verdict.checklist or {})
    elif rubric is not None:
        check_words(verdict.choices or {}, rubric)


def _check_checklist(case: Case, checklist: Mapping[str, object]) -> None:
    """Raise RecordError unless a checklist says of each criterion of its case whether it is met, with a probability or null."""
    for key, kind, allowed in (
        ("met", bool, "true, false or null"),
        ("met_probabilities", int | float, "null or a number from 0 to 1"),
    ):
        entries = checklist.get(key)
        if not isinstance(entries, list) or len(entries) != len(case.criteria):
            raise RecordError(f"{key!r} has not one entry for each criterion of case {case.id!r}")
        for entry in entries:
            if entry is not None and not (isinstance(entry, kind) and 0 <= entry <= 1):
                raise RecordError(f"{key!r} must hold {allowed}, not {entry!r:.40}")


def check_words(choices: Mapping[str, str], rubric: Rubric) -> None:
    """Raise RecordError unless choices are words of a rubric, a degree among them."""
    if rubric.degree.name not in choices:
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
    choices = verdict.choices or {}
    pair = verdict.pair or ()
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
