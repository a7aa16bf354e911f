"""Report harm by degree: how many answers of each model, by whom, how far judges agree with physicians, and the answers.

Agreement is on the answers that both gave a degree; what cannot be told is counted apart. Harm is never part of a score.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.checked import marked
from automedeval.meta_evaluation.facts import harm_in_words
from automedeval.meta_evaluation.harm.readings import (
    middle_degrees,
    paired_degrees,
    read_harm_ratings,
    rubric_of,
)
from automedeval.meta_evaluation.page import SHOWN_CASES, Bars, PageTable, render_report
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import JsonObject, RecordError, Verdict, question_text
from automedeval.records.run_record import describe_result
from automedeval.records.text import span
from automedeval.rubrics import Rubric
from automedeval.stats.bootstrap import estimate, mean_of, plain
from automedeval.stats.degrees import degree_tables, detection, weighted_kappa


def harm_report(
    cases: Cases,
    judges: Sequence[VerdictTable],
    notes: Sequence[str],
    rubrics: Mapping[str, Rubric],
    ratings: str | None,
    resamples: int,
) -> tuple[JsonObject, dict[str, str], list[str]]:
    """Return the result, the pages and the lines of a report on harm.

    Args:
        judges, notes: the verdicts by a rubric in words, and what is to be told of their files.
        rubrics: those that ratings may be by, by name, where there are no verdicts.
        ratings: the file of physicians' ratings; None: only where there are judges.

    Raises:
        RecordError: verdicts by several rubrics, or a fault of the ratings.
    """
    if len(names := list(dict.fromkeys(judge.rubric_name for judge in judges))) > 1:
        raise RecordError(
            f"{', '.join(each.name for each in judges)}: by {', '.join(names)}, whose degrees are not compared"
        )
    rubrics = {judge.rubric_name: rubric_of(judge) for judge in judges} or rubrics
    physicians, more = (
        read_harm_ratings(ratings, cases, rubrics) if ratings is not None else (None, [])
    )
    notes = [*more, *notes]
    answers = shown_answers(cases, judges, physicians)
    if len(answers) > SHOWN_CASES:
        notes.append(f"the page shows the first {SHOWN_CASES} of {len(answers)} answers")
    settings = describe_result("report", resamples=resamples)
    result = harm_result(cases, judges, physicians, resamples) | {
        "notes": notes,
        "settings": settings,
    }
    words = harm_in_words(result)
    pages = render_report(
        "harm", f"Harm: {Path(cases.source).stem}", words=words, notes=notes,
        settings=settings, bars=_bars(result), tables=[counts_table(result)], result=result,
        answers=answers[:SHOWN_CASES],
    )  # fmt: skip
    return result, pages, [*words, *(f"note: {note}" for note in notes)]


def harm_result(
    cases: Cases, judges: Sequence[VerdictTable], physicians: VerdictTable | None, resamples: int
) -> JsonObject:
    """Return the figures of harm.json.

    `raters` has for each rater what its degrees are, by model, with the share at the threshold or worse; `people` how two
    physicians agree; `judges` how each judge agrees with the middle degree of the physicians.
    """
    raters = [*([physicians] if physicians else []), *judges]
    degree = rubric_of(raters[0]).degree
    tree: JsonObject = {
        "rubric": raters[0].rubric_name,
        "degrees": list(degree.values),
        "judges": {},
    }
    tree |= {"threshold": degree.threshold, "untold": degree.neutral}
    tree["raters"] = {rater.name: degrees_by_model(rater) for rater in raters}
    if physicians is not None:
        names = {verdict.extra["annotator"] for verdict in physicians.verdicts}
        both_ways = degree_tables(*paired_degrees(physicians), len(cases), len(degree.values))
        tree["people"] = {"names": sorted(names), "kappa": weighted_kappa(both_ways / 2)}
        tree["judges"] = {judge.name: agreement(judge, physicians) for judge in judges}
    return plain(estimate(tree, cases.clusters, resamples))


def degrees_by_model(rater: VerdictTable) -> dict[str, JsonObject]:
    """Return, for each model, how many of its responses have each degree, and the share at the threshold or worse."""
    cases, criterion, degrees = rater.cases, rubric_of(rater).degree, middle_degrees(rater)
    counts: dict[str, JsonObject] = {}
    least, told = list(criterion.values).index(criterion.threshold), ~np.isnan(degrees)
    untold, unread = (
        rater.shown(rater.is_valid) & ~told,
        rater.shown() & ~rater.shown(rater.is_valid),
    )
    for place, model in enumerate(cases.models):
        of_model = cases.model_of == place
        if not (of_model & rater.shown()).any():
            continue
        rated, worse = of_model & told, np.where(of_model & told, degrees >= least, np.nan)
        of_degree = np.bincount(degrees[rated].astype(int), minlength=len(criterion.values))
        counts[model] = {
            name: int((of_model & each).sum())
            for name, each in (("untold", untold), ("unread", unread))
        }
        share = mean_of(worse, cases.panel.case, len(cases), "no degree can be told", (0.0, 1.0))
        counts[model] |= {
            "degrees": of_degree.tolist(),
            "worse": int(np.nansum(worse)),
            "share": share,
        }
    return counts


def agreement(judge: VerdictTable, physicians: VerdictTable) -> JsonObject:
    """Return how a judge agrees with physicians: the table, kappa, and what it finds of the threshold or worse."""
    cases, names = judge.cases, rubric_of(judge).degree.values
    people, judged = middle_degrees(physicians), middle_degrees(judge)
    tables = degree_tables(people, judged, cases.panel.case, len(cases), len(names))
    rated, read, gap = physicians.shown(), judge.shown(judge.is_valid), people - judged
    widest = np.lexsort([-people, -gap])  # of equal gaps the worst first
    under_called = [cases.at(at) for at in widest[gap[widest] > 0]]
    untold = {"judge": rated & read & np.isnan(judged), "physicians": rated & np.isnan(people)}
    counts = {f"untold_by_{name}": int(each.sum()) for name, each in untold.items()}
    counts |= {"rated": int(rated.sum()), "unread": int((rated & ~read).sum())}
    return counts | {
        "table": tables.sum(axis=0).astype(int).tolist(),
        "kappa": weighted_kappa(tables),
        **detection(tables, list(names).index(rubric_of(judge).degree.threshold)),
        "under_called": [[case.id, response.model] for case, response in under_called],
    }


def shown_answers(
    cases: Cases, judges: Sequence[VerdictTable], physicians: VerdictTable | None
) -> list[JsonObject]:
    """Return the answers to read: by the widest gap of a judge below physicians, then by the worst degree of anybody."""
    raters = [*([physicians] if physicians else []), *judges]
    degrees = [middle_degrees(rater) for rater in raters]
    gap = np.fmax.reduce(
        [np.zeros(cases.responses), *(degrees[0] - each for each in degrees[1:] if physicians)]
    )
    said: dict[int, list[tuple[str, Verdict]]] = defaultdict(list)
    for rater in raters:
        for place, verdict in zip(rater.response.tolist(), rater.verdicts):
            said[place] += (
                [(verdict.extra.get("annotator", rater.name), verdict)] if verdict.valid else []
            )
    words = rubric_of(raters[0]).degree.words
    shown, told = [], [rater.shown(rater.is_valid) for rater in raters]
    for place in np.lexsort([-np.fmax.reduce(degrees), -gap]).tolist():
        if not said[place]:
            continue
        case, response = cases.at(place)
        marks = [mark for _, verdict in said[place] for mark in _marks(verdict, response.text)]
        marks.sort(key=lambda mark: (mark["start"], mark["end"]))
        by = []
        for rater, degree, is_told in zip(raters, degrees, told):
            word = words[-1 if np.isnan(degree[place]) else int(degree[place])]
            by.append((rater.name, word if is_told[place] else "not rated"))
        shown.append(
            {
                "id": case.id,
                "model": response.model,
                "question": question_text(case.question),
                "text": marked(response.text, marks),
                "degrees": by,
                "under": gap[place] > 0,
                "criteria": rubric_of(raters[0]).output_criteria,
                "readings": said[place],
            }
        )
    return shown


def _marks(verdict: Verdict, text: str) -> Sequence[JsonObject]:
    """Return where the words that do the harm stand: as a physician marked them, or as a judge quotes them."""
    words = verdict.rationale or ""
    start = text.find(words) if words else -1
    return verdict.extra.get(
        "marks", [] if start < 0 else [{"start": start, "end": start + len(words)}]
    )


def counts_table(result: JsonObject) -> PageTable:
    """Return one row for each rater and model, how many answers have which degree."""
    threshold = f"{result['threshold']} or worse, %"
    rows = [
        (model, name, *each["degrees"], each["untold"], each["unread"], span(each["share"], 0, 100))
        for name, by_model in result["raters"].items()
        for model, each in by_model.items()
    ]
    head = ("model", "by", *result["degrees"], result["untold"], "invalid", threshold)
    return PageTable(head, rows, "How many answers of each model have which degree")


def _bars(result: JsonObject) -> Bars:
    """Return a bar for the share of harmful answers of each model, by every rater."""
    several = len(result["raters"]) > 1
    rows = [
        (f"{model}, by {name}" if several else model, each["share"], "")
        for name, by_model in result["raters"].items()
        for model, each in by_model.items()
    ]
    return Bars(
        f"Share of answers of {result['threshold']} harm or worse, with 95 % intervals", rows
    )
