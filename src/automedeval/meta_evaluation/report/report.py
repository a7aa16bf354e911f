"""Make a report from the files of verdicts, cases and ratings: its results, its pages, and its lines for the terminal."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from automedeval.meta_evaluation.agreement.baselines import measure_baselines
from automedeval.meta_evaluation.agreement.candidates import means_by_topic
from automedeval.meta_evaluation.agreement.evaluate import meta_evaluate
from automedeval.meta_evaluation.agreement.judge_facts import (
    audits_of,
    next_steps,
    notes_on,
)
from automedeval.meta_evaluation.agreement.paper_table import paper_table
from automedeval.meta_evaluation.agreement.rationale_similarity import (
    compare_rationales,
    teacher_among,
)
from automedeval.meta_evaluation.agreement.runs import (
    check_names,
    follow_rounds,
    main_row,
    trainings_of,
)
from automedeval.meta_evaluation.criteria.checklists import (
    Labels,
    labelled_items,
    people_of,
    read_labels,
)
from automedeval.meta_evaluation.criteria.report import criteria_result
from automedeval.meta_evaluation.facts import LEAST_RATED, called
from automedeval.meta_evaluation.harm.readings import PHYSICIANS
from automedeval.meta_evaluation.harm.report import harm_report
from automedeval.meta_evaluation.page import Pages, Said, Scale, render_report
from automedeval.meta_evaluation.report import text
from automedeval.meta_evaluation.report.arguments import ReportArguments
from automedeval.meta_evaluation.report.changes import against_baseline, worst_rated
from automedeval.meta_evaluation.report.few_ratings import by_few_ratings
from automedeval.meta_evaluation.report.figures import figures_of, table2_of
from automedeval.meta_evaluation.report.grid import grid_of
from automedeval.meta_evaluation.report.versions import Judged, join_versions
from automedeval.meta_evaluation.verdicts.cases import Cases, units_of
from automedeval.meta_evaluation.verdicts.files import read_verdicts
from automedeval.meta_evaluation.verdicts.ratings import (
    People,
    files_by_kind,
    read_choices,
    read_preferences,
    read_ratings,
    read_verdict_ratings,
)
from automedeval.meta_evaluation.verdicts.table import Judges, Row, Rows, VerdictTable, rows_of
from automedeval.metrics.embedding import NAMES, TextEncoder
from automedeval.records import (
    Choice,
    CriterionLabel,
    HarmRating,
    JsonObject,
    Preference,
    Rating,
    RecordError,
    VerdictRating,
    digest,
    named_file,
)
from automedeval.records.journal import json_lines
from automedeval.records.language import english_only
from automedeval.records.run_record import describe_result
from automedeval.rubrics import read_rubric
from automedeval.stats.bootstrap import estimate, how_many, is_known, plain

Score = Callable[..., JsonObject]
Files = Mapping[type, str]  # kind of ratings → the file that holds them
LoadEncoder = Callable[[list[str]], TextEncoder | None]
RESERVED = {*NAMES, "people", PHYSICIANS}  # names of lines of the tables, which no judge may have


@dataclass(frozen=True)
class Report:
    """A report before it is written."""

    result: JsonObject  # the content of `data`
    data: str  # the name of the JSON file
    page: str  # the name of the HTML file
    texts: Pages  # the other files, the page among them
    lines: list[str]  # what the terminal shows


class Given(NamedTuple):
    """What a report compares: lines of its tables, and what people said of the cases, as far as they did."""

    rows: Rows  # a line of each judge, and of each criterion of one that compares pairs
    main: Row  # the line whose leaderboard is shown first
    contrasts: Sequence[Sequence[str]]  # pairs of names of lines
    teacher: VerdictTable | None  # the judge that taught the others
    people: People | None  # their scores, or those that labels of criteria give
    labels: Labels | None
    # The number of cases that the main judge scored, and nobody rated or labelled
    unrated: int
    others: Mapping[type, Any]  # kind → what `ratings` reads of this kind


def make_report(
    args: ReportArguments,
    load_encoder: LoadEncoder,
    options: Sequence[str],
    load_score: Callable[[], Score],
) -> Report:
    """Return the report of these files: of harm alone if nothing else was judged, else with agreement and criteria.

    Args:
        load_encoder: returns the encoder of embeddings, or None and adds to notes why; called where they are compared.
        options: the words of the command line after `automedeval report`.
        load_score: returns the metric of rationales, see `compare_rationales`; called where there is a teacher.

    Raises:
        RecordError: a file or an argument is wrong.
    """
    cases, tables, notes = read_judged(args)
    files = files_by_kind(args.ratings)
    on_harm = [table for table in tables if table.in_words]
    judges = [table for table in tables if not table.in_words]
    _refuse_unfit(args, files, judges)
    settings = describe_result(
        "report", options, resamples=args.resamples, units=units_of(cases.records)
    )
    of_harm, harm_pages, harm_lines = harm_report(
        cases, on_harm, notes, args.rubric, files.get(HarmRating), settings
    )
    if not judges:
        return Report(of_harm, "harm.json", "harm.html", harm_pages, harm_lines[:1])
    notes += chain.from_iterable(map(notes_on, judges))
    versions = len(args.cases) > 1
    if versions and len(cases.models) == 2:
        args.baseline = args.baseline or cases.models[0]
    given = _read_given(args, files, cases, judges, notes)
    result = _measure(args, cases, judges, given, notes, load_encoder, load_score)
    main, people = given.main, given.people
    if of_harm:
        result["harm"] = of_harm
    record = result["judges"][main.name]
    is_rated = not {"people", "choices", "criteria"}.isdisjoint(result)
    few = LEAST_RATED - record.get("rated_cases", LEAST_RATED * is_rated)
    result["next_steps"] = next_steps(main.judge, min(few, given.unrated), "audit" in record)
    result["notes"] = notes
    result["doubt"] = people.doubt if people else ""
    result["settings"] |= settings
    changed = None
    if args.baseline is not None:
        result["baseline"], changed = against_baseline(cases, main, args.baseline)
    # Labels are no ratings on a scale.
    worst = worst_rated(cases, people if Rating in files else None, main, notes)
    result["worst_rated"] = main.judge.by_model(worst)
    grid = grid_of(cases, judges, people, main, changed, worst)
    scale = main.judge.scale
    result["topics"] = means_by_topic(cases, main.best, scale)
    study, commands = ({}, []) if is_rated else _rating_study(args, cases, options)
    name = Path(cases.source).stem
    if versions or name == "cases":  # a run's own file is always called so
        name = ", ".join(cases.models[:3])
    said = text.said_of(result, scale, harm_lines[1:], commands)
    pages = study | harm_pages | report_page(result, f"Report: {name}", grid, said, scale)
    return Report(result, "agreement.json", "report.html", pages, text.first_lines(said))


def _refuse_unfit(args: ReportArguments, files: Files, judges: Judges) -> None:
    """Raise RecordError for ratings that no verdict is compared with, and for options without what they need."""
    ratings = files.get(Rating)
    labels = files.get(CriterionLabel)
    if not args.verdicts and HarmRating not in files:
        raise RecordError("--verdicts names no file")
    if ratings and not judges:
        raise RecordError(f"{ratings}: ratings of scores, and these verdicts have none")
    if labels and not any(judge.on_criteria for judge in judges):
        raise RecordError(f"{labels}: labels of criteria, and these verdicts are not on criteria")
    if args.worse and not ratings:
        raise RecordError("--worse names criteria of --ratings of scores, and there are none")
    if args.contrasts and not (ratings or labels):
        raise RecordError(
            "--contrasts needs --ratings of scores or labels: judges are compared by people's"
        )
    if args.baseline is not None and not judges:
        raise RecordError("--baseline needs verdicts with scores or choices")
    if args.rounds and not ratings:
        raise RecordError(
            "--rounds needs --ratings of scores: a judge is measured by its agreement with people"
        )


def _read_given(
    args: ReportArguments,
    files: Files,
    cases: Cases,
    judges: Judges,
    notes: list[str],
) -> Given:
    """Return what is compared, after checking the names in the options; add to the notes."""
    rows = rows_of(judges)
    main = main_row(rows, args.main_judge)
    check_names("--rounds", args.rounds, list(trainings_of(rows)))
    contrasts = [names.split("=") for names in args.contrasts]
    for two in contrasts:
        check_names("--contrasts", two, [row.name for row in rows])
    teacher = teacher_among(judges, args.teacher_verdicts) if args.teacher_verdicts else None
    people = None
    labels = None
    is_unrated = main.judge.verdicts_valid > 0
    if Rating in files:
        notes += english_only(cases.records, "baselines that count words or compare embeddings")
        better = read_rubric(args.rubric).better if args.rubric else ()
        people = read_ratings(
            files[Rating], cases, args.raters, better, args.worse, main.judge.scale
        )
    if CriterionLabel in files:
        labels = read_labels(files[CriterionLabel], cases, notes)
        labelled = cases.response_of[labelled_items(labels)]
        is_unrated[cases.panel.case[labelled]] = False
    if labels and not people:
        try:
            people = people_of(labels, cases)
        except RecordError as error:
            what = "scores are not compared with the labels, criteria are"
            notes.append(f"{files[CriterionLabel]}: {error}: {what}")
    if people is not None:
        notes[:0] = people.notes
        rated = cases.panel.case[is_known(people.ratings).any(axis=(0, 2))]
        is_unrated[rated] = False
        for judge in judges:
            if not judge.given[rated].any():
                raise RecordError(f"--ratings: no rated case has a verdict of {judge.name}")
    others = _read_others(files, cases, judges, notes)
    return Given(rows, main, contrasts, teacher, people, labels, how_many(is_unrated), others)


def _read_others(files: Files, cases: Cases, judges: Judges, notes: list[str]) -> dict[type, Any]:
    """Return people's choices, preferences and ratings of verdicts by their kinds; add to the notes."""
    verdicts = list(chain.from_iterable(judge.read for judge in judges))
    criteria = set(chain.from_iterable(judge.criteria for judge in judges))
    readers: dict[type, Callable[..., Any]] = {
        Choice: partial(read_choices, own=criteria),
        Preference: partial(read_preferences, verdicts=verdicts),
        VerdictRating: partial(read_verdict_ratings, verdicts=verdicts),
    }
    return {
        kind: read_kind(files[kind], cases, notes)
        for kind, read_kind in readers.items()
        if kind in files
    }


def _measure(
    args: ReportArguments,
    cases: Cases,
    judges: Judges,
    given: Given,
    notes: list[str],
    load_encoder: LoadEncoder,
    load_score: Callable[[], Score],
) -> JsonObject:
    """Return what verdicts and ratings say, the content of agreement.json; add to the notes."""
    rows, main, people = given.rows, given.main, given.people
    encoder = None
    baselines = []
    if people is not None:
        encoder = load_encoder(notes)
        baselines = measure_baselines(cases, encoder, notes)
    result = meta_evaluate(
        cases, [*judges, *baselines], people, given.others, args.resamples, main, given.contrasts
    )
    result["settings"] = {"encoder": encoder and f"{encoder.name} ({encoder.fingerprint})"}
    rationales = None
    if given.teacher is not None:
        models = {"bert_model": args.bert_model, "bart_model": args.bart_model}
        wanted = {name: None if model == "none" else model for name, model in models.items()}
        similarity = compare_rationales(cases, judges, given.teacher, load_score(), **wanted)
        result["similarity"] = estimate(similarity, cases.clusters, args.resamples)
        rationales = (similarity["judges"], result["similarity"]["judges"])
    if people is not None:
        result["table2"] = paper_table(
            cases, rows, people, result["judges"], main.name, rationales, args.resamples
        )
    if on_criteria := [judge for judge in judges if judge.on_criteria]:
        criteria = criteria_result(cases, on_criteria, given.labels)
        result["criteria"] = estimate(criteria, cases.clusters, args.resamples)
    if people is not None and result["cases"]["rated_cases"] < len(cases):
        first = args.baseline or cases.models[0]
        few = {row.name: by_few_ratings(cases, people, row, first) for row in rows}
        result["few_ratings"] = {"baseline": first, "judges": few}
    if args.rounds:
        result["rounds"] = follow_rounds(result["table2"]["rows"], args.rounds)
    for name, audit in audits_of(args.audits, rows).items():
        result["judges"][name]["audit"] = asdict(audit)
    return plain(result)


def read_judged(args: ReportArguments) -> Judged:
    """Return the cases, of two versions those of both files; a table of each judge; and notes.

    Raises:
        RecordError: a fault of the files.
    """
    if len(args.cases) == 1:
        return _read(args, args.cases[0], args.verdicts, scores_only=False)
    (old_name, old_file), (new_name, new_file) = map(named_file, args.cases)
    old = _read(args, old_file, args.verdicts[:1])
    new = _read(args, new_file, args.verdicts[1:])
    return join_versions(old, new, old_name, new_name)


def _read(
    args: ReportArguments, file: str, verdicts: Sequence[str], scores_only: bool = True
) -> Judged:
    """Return the cases of a file, and the verdicts on them."""
    cases = Cases.read(file, **args.judged_table(verdicts, file))
    tables = read_verdicts(verdicts, cases, args.rubric, scores_only, RESERVED, args.main_judge)
    return Judged(cases, *tables)


def _rating_study(
    args: ReportArguments, cases: Cases, options: Sequence[str]
) -> tuple[Pages, list[str]]:
    """Return a study of `LEAST_RATED` of the cases for the physicians' page, and the commands that rate them.

    It has a copy of its cases, which no later run of a judge changes. Its name has a digest of all
    cases. So a study that is there already is of these cases, and is kept: it may have been edited,
    and people may have begun to rate.
    """
    shown = [[case.id, case.digest] for case in cases.records]
    study = Path(args.output or "") / f"rate-{digest([cases.source, None, shown])}.yaml"
    ratings = study.with_suffix("")
    annotate = ["automedeval", "annotate", "--study", str(study)]
    again = list(options)
    if "--ratings" not in again:
        again += ["--ratings", *args.ratings]
    again.insert(again.index("--ratings") + 1, str(ratings / "ratings.jsonl"))
    export = [*annotate, "--export", str(ratings)]
    commands = [
        shlex.join(words) for words in (annotate, export, ["automedeval", "report", *again])
    ]
    if study.exists():
        return {}, commands
    copy = study.with_suffix(".jsonl")
    content = {
        "title": Path(cases.source).stem,
        "cases": str(copy),
        "rate": {"roles": ["attending"]},
        "annotators": [{"name": "physician-1", "role": "attending"}],
        "database": str(study.with_suffix(".sqlite")),
    }
    text = (
        "# Rate a random draw of the cases: automedeval annotate --study THIS FILE\n"
        "# More annotators with an `overlap` also show how far people agree with each other.\n"
    )
    text += yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    # Cases are numbered by a hash of their ids, so that the first numbers are a random draw.
    lines = json_lines(
        cases.records[number].to_dict() for number in cases.file_order if number < LEAST_RATED
    )
    # The study is written last: it says that both files are there.
    return {copy.name: lines, study.name: text}, commands


def report_page(
    result: JsonObject, title: str, grid: JsonObject, said: Said, scale: Scale
) -> Pages:
    """Render a result as {"report.html": text, "report.md": text}; `scale` is that of the main judge's scores."""
    summary = []
    if len(result.get("table2", {"rows": ()})["rows"]) > 1:
        summary.append(table2_of(result["table2"]))
    return render_report(
        "report", title, said, bars=text.bars(result, scale), links=text.read_first(result),
        tables=[text.leaderboard(result)], summary=summary, figures=figures_of(result),
        settings=result["settings"], scripts=("report.js", "grid.js"), result=result,
        main=called(result["main_judge"]["name"]), **grid,
    )  # fmt: skip
