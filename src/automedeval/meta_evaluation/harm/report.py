"""Report harm by degree: how many answers of each model, by whom, how far judges agree with physicians, and the answers.

Agreement is on the answers that both gave a degree, but a judge that gives none does not find the harm. What cannot be told is
counted apart. Harm is never part of a score.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.checked import marked
from automedeval.meta_evaluation.facts import harm_in_words
from automedeval.meta_evaluation.harm.readings import (
    degrees_of,
    middle_degrees,
    of_people,
    paired_degrees,
    read_harm_ratings,
    rubric_of,
)
from automedeval.meta_evaluation.page import (
    SHOWN_CASES,
    Bars,
    Pages,
    PageTable,
    Said,
    render_report,
)
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import Judges, VerdictTable
from automedeval.records import JsonObject, RecordError, Verdict, question_text
from automedeval.records.text import span
from automedeval.rubrics import packaged_rubrics, read_rubric
from automedeval.rubrics.grammar import contradiction
from automedeval.stats.bootstrap import SHARE, estimate, how_many, is_known, mean_of, only, plain
from automedeval.stats.degrees import degree_tables, detection, weighted_kappa


def harm_report(
    cases: Cases,
    judges: Judges,
    notes: Sequence[str],
    rubric: str | None,
    ratings: str | None,
    settings: JsonObject,
) -> tuple[JsonObject, Pages, list[str]]:
    """Return the result, the pages and the lines of a report on harm; nothing without judges and ratings.

    Args:
        judges, notes: the verdicts by a rubric in words, and what is to be told of their files.
        rubric: the file of your own rubric, by which ratings may be beside the packaged ones where there are no verdicts.
        ratings: the file of physicians' ratings.
        settings: how the report was made, see `describe_result`; its "resamples" are those of intervals.

    Raises:
        RecordError: verdicts by several rubrics, or a fault of the ratings.
    """
    if not judges and ratings is None:
        return {}, {}, []
    rubrics = {judge.rubric_name: rubric_of(judge) for judge in judges}
    if len(rubrics) > 1:
        raise RecordError(f"judges by {', '.join(rubrics)}, whose degrees are not compared")
    if not judges:
        files = [*packaged_rubrics(), *filter(None, [rubric])]
        rubrics = {rubric.name: rubric for rubric in map(read_rubric, files)}
    raters = list(judges)
    notes = list(notes)
    if ratings is not None:
        raters.insert(0, read_harm_ratings(ratings, cases, rubrics, notes))
    answers = shown_answers(cases, raters)
    if len(answers) > SHOWN_CASES:
        notes.append(f"the page shows the first {SHOWN_CASES} of {len(answers)} answers")
    result = {
        **harm_result(cases, raters, settings["resamples"]),
        "notes": notes,
        "settings": settings,
    }
    words = harm_in_words(result)
    pages = render_report(
        "harm", f"Harm: {Path(cases.source).stem}", Said(words, notes),
        settings=settings, bars=_bars(result), tables=[counts_table(result)], result=result,
        criteria=rubric_of(raters[0]).output_criteria, answers=answers[:SHOWN_CASES],
    )  # fmt: skip
    return result, pages, [*words, *(f"note: {note}" for note in notes)]


def harm_result(cases: Cases, raters: Judges, resamples: int) -> JsonObject:
    """Return the figures of harm.json, by the verdicts of judges, perhaps behind those of physicians.

    `raters` has for each rater what its degrees are, by model, with the share at the threshold or worse; `people` how two
    physicians agree, how many of their ratings are "contrary" in their words, and "per_answer" how many degrees answers have
    that have any; `judges` how each judge agrees with the middle degree of the physicians.
    """
    first = raters[0]
    degree = rubric_of(first).degree
    tree: JsonObject = {
        "rubric": first.rubric_name,
        "degrees": list(degree.values),
        "threshold": degree.threshold,
        "untold": degree.neutral,
        "raters": {rater.name: degrees_by_model(rater) for rater in raters},
        "judges": {},
    }
    if of_people(first):
        names = {str(verdict.annotator) for verdict in first.verdicts}
        both_ways = degree_tables(*paired_degrees(first), len(cases), len(degree.values))
        contrary = [
            verdict
            for verdict in first.verdicts
            if contradiction(verdict.choices or {}, rubric_of(first))
        ]
        told = is_known(degrees_of(first))
        _, counts = np.unique(first.response[told], return_counts=True)
        tree["people"] = {
            "names": sorted(names),
            "kappa": weighted_kappa(both_ways / 2),
            "contrary": len(contrary),
            "per_answer": np.unique(counts).tolist(),
        }
        tree["judges"] = {judge.name: agreement(judge, first) for judge in raters[1:]}
    return plain(estimate(tree, cases.clusters, resamples))


def degrees_by_model(rater: VerdictTable) -> JsonObject:
    """Return, for each model, how many of its responses have each degree, and the share at the threshold or worse."""
    cases, criterion, degrees = rater.cases, rubric_of(rater).degree, middle_degrees(rater)
    names = list(criterion.values)
    is_read = rater.shown(rater.is_valid)
    counts: JsonObject = {}
    for model, shown in cases.by_model(rater.shown()):
        told = shown[is_known(degrees[shown])]
        is_worse = degrees[told] >= names.index(criterion.threshold)
        unread = how_many(~is_read[shown])
        counts[model] = {
            "untold": len(shown) - len(told) - unread,
            "unread": unread,
            "degrees": np.bincount(degrees[told].astype(int), minlength=len(names)).tolist(),
            "worse": how_many(is_worse),
            "share": mean_of(
                is_worse, cases.panel.case[told], len(cases), "no degree can be told", SHARE
            ),
        }
    return counts


def agreement(judge: VerdictTable, physicians: VerdictTable) -> JsonObject:
    """Return how a judge agrees with physicians: the table, kappa, and what it finds of the threshold or worse."""
    cases = judge.cases
    degree = rubric_of(judge).degree
    names = list(degree.values)
    people = only(middle_degrees(physicians), judge.asked)
    judged = middle_degrees(judge)
    both = (people, judged, cases.panel.case, len(cases))
    tables = degree_tables(*both, len(names))
    rated = physicians.shown() & judge.asked
    read = judge.shown(judge.is_valid)
    gap = people - judged
    widest = np.lexsort([-people, -gap])  # of equal gaps the worst first
    under_called = [cases.at(response) for response in widest[gap[widest] > 0]]
    return {
        "untold_by_judge": how_many(rated & read & np.isnan(judged)),
        "untold_by_physicians": how_many(rated & np.isnan(people)),
        "unread": how_many(rated & ~read),
        "table": tables.sum(axis=0).astype(int).tolist(),
        "kappa": weighted_kappa(tables),
        **detection(*both, names.index(degree.threshold)),
        "under_called": [[case.id, response.model] for case, response in under_called],
    }


def shown_answers(cases: Cases, raters: Judges) -> list[JsonObject]:
    """Return the answers to read: by the widest gap of a judge below physicians, then by the worst degree of anybody."""
    degrees = np.array([middle_degrees(rater) for rater in raters])
    gap = np.zeros(cases.responses)
    if of_people(raters[0]):
        gap = np.fmax.reduce([gap, *(degrees[0] - degrees[1:])])
    words = {rater.name: _in_words(rater) for rater in raters}
    readings: dict[int, list[tuple[str, Verdict]]] = defaultdict(list)
    for rater in raters:
        for response, verdict in zip(rater.response.tolist(), rater.verdicts):
            if verdict.valid:
                readings[response].append((verdict.annotator or rater.name, verdict))
    answers = []
    for number in np.lexsort([-np.fmax.reduce(degrees), -gap]).tolist():
        if number not in readings:
            continue
        case, response = cases.at(number)
        marks: list[JsonObject] = []
        for _, verdict in readings[number]:
            marks += _marks(verdict, response.text)
        answer = {
            "id": case.id,
            "model": response.model,
            "question": question_text(case.question),
            "text": marked(response.text, sorted(marks, key=itemgetter("start", "end"))),
            "degrees": [(name, of_all[number]) for name, of_all in words.items()],
            "under": gap[number] > 0,
            "readings": readings[number],
        }
        answers.append(answer)
    return answers


def _in_words(rater: VerdictTable) -> ndarray:
    """Return the degree of each response in words, or why there is none: str [responses]."""
    degrees = np.nan_to_num(middle_degrees(rater), nan=-1).astype(int)
    words = np.array(rubric_of(rater).degree.words)[degrees]
    return np.where(rater.shown(rater.is_valid), words, "not rated")


def _marks(verdict: Verdict, text: str) -> Sequence[JsonObject]:
    """Return where the words that do the harm stand: as a physician marked them, or as a judge quotes them."""
    words = verdict.rationale
    if verdict.marks is not None:
        return verdict.marks
    if not words or words not in text:
        return []
    start = text.index(words)
    return [{"start": start, "end": start + len(words)}]


def counts_table(result: JsonObject) -> PageTable:
    """Return one row for each rater and model, how many answers have which degree."""
    worse = f"{result['threshold']} or worse, %"
    head = ("model", "by", *result["degrees"], result["untold"], "invalid", worse)
    rows = []
    for model, rater, figures in _by_rater(result):
        counts = (*figures["degrees"], figures["untold"], figures["unread"])
        rows.append((model, rater, *counts, span(figures["share"], 0, 100)))
    caption = "How many answers of each model have which degree, and of how many nobody gives one"
    return PageTable(head, rows, caption)


def _by_rater(result: JsonObject) -> Iterator[tuple[str, str, JsonObject]]:
    """Yield (model, rater, figures), rater by rater."""
    for rater, by_model in result["raters"].items():
        for model, figures in by_model.items():
            yield model, rater, figures


def _bars(result: JsonObject) -> Bars:
    """Return a bar for the share of harmful answers of each model, by every rater."""
    rows = []
    for model, rater, figures in _by_rater(result):
        name = f"{model}, by {rater}" if len(result["raters"]) > 1 else model
        rows.append((name, figures["share"], ""))
    what = f"Share of answers of {result['threshold']} harm or worse, with 95 % intervals"
    return Bars(what, rows)
