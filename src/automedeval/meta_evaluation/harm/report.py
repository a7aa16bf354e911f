"""Report harm by degree: how many answers of each model, by whom, how far judges agree with physicians, and the answers.

Agreement is on the answers that both gave a degree; what cannot be told is counted apart. Harm is never part of a score.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.checked import marked
from automedeval.meta_evaluation.facts import harm_in_words
from automedeval.meta_evaluation.harm.readings import Rater, read_harm_ratings, read_harm_verdicts
from automedeval.meta_evaluation.page import SHOWN_CASES, Bars, Table, render_report
from automedeval.records import question_text
from automedeval.records.run_record import describe_result
from automedeval.records.text import span
from automedeval.rubrics import Rubric
from automedeval.stats.bootstrap import estimate, plain, ratio
from automedeval.stats.degrees import degree_tables, detection, weighted_kappa


def harm_report(
    cases: Cases, files: Sequence[str], rubrics: Mapping[str, Rubric], ratings: str | None, resamples: int
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the result, the pages and the lines of a report on harm.

    Args:
        files, rubrics: those of `harm_files`, and the rubrics by name; the one of the files alone if there are some.
        ratings: the file of physicians' ratings; None: only where there are files of verdicts.

    Raises:
        RecordError: a fault of the verdicts or the ratings.
    """
    physicians, notes = read_harm_ratings(ratings, cases, rubrics) if ratings is not None else (None, [])
    judges, more = read_harm_verdicts(files, cases, *rubrics.values()) if files else ([], [])
    notes += more
    answers = shown_answers(cases, judges, physicians)
    if len(answers) > SHOWN_CASES:
        notes.append(f"the page shows the first {SHOWN_CASES} of {len(answers)} answers")
    settings = describe_result("report", resamples=resamples)
    result = harm_result(cases, judges, physicians, resamples) | {"notes": notes, "settings": settings}
    words = sentences(result)
    pages = render_report(
        "automedeval.meta_evaluation", "harm", f"Harm: {Path(cases.source).stem}", words=words, notes=notes,
        figures=[], settings=settings, bars=_bars(result), tables=[counts_table(result)], result=result,
        answers=answers[:SHOWN_CASES],
    )  # fmt: skip
    return result, pages, [*words, *(f"note: {note}" for note in notes)]


def harm_result(cases: Cases, judges: Sequence[Rater], physicians: Rater | None, resamples: int) -> dict[str, Any]:
    """Return the figures of harm.json.

    `raters` has for each rater what its degrees are, by model, with the share at the threshold or worse; `people` how two
    physicians agree; `judges` how each judge agrees with the middle degree of the physicians, and with one of them.
    """
    raters = [*([physicians] if physicians else []), *judges]
    rubric = raters[0].rubric
    tree: dict[str, Any] = {"rubric": rubric.name, "degrees": list(rubric.degree.values), "judges": {}}
    tree |= {"threshold": rubric.degree.threshold, "untold": rubric.degree.neutral}
    tree["raters"] = {rater.name: degrees_by_model(rater) for rater in raters}
    if physicians is not None:
        names = {reading.who for readings in physicians.readings.values() for reading in readings}
        both_ways = degree_tables(*physicians.pairs(physicians), len(cases), len(rubric.degree.values))
        tree["people"] = {"names": sorted(names), "kappa": weighted_kappa(both_ways / 2)}
        tree["judges"] = {judge.name: agreement(judge, physicians) for judge in judges}
    return plain(estimate(tree, len(cases), resamples))


def degrees_by_model(rater: Rater) -> dict[str, dict[str, Any]]:
    """Return, for each model, how many of its responses have each degree, and the share at the threshold or worse."""
    cases, criterion, counts = rater.cases, rater.rubric.degree, {}
    least = list(criterion.values).index(criterion.threshold)
    unread = np.isin(np.arange(cases.responses), list(rater.unread))
    for place, model in enumerate(cases.models):
        of_model = cases.model_of == place
        degrees = np.where(of_model, rater.degrees, np.nan)
        told = ~np.isnan(degrees)
        if not (of_model & (told | unread | rater.untold)).any():
            continue
        worse, rated = (cases.panel.per_case(each.astype(float), "responses") for each in (degrees >= least, told))
        counts[model] = {
            "degrees": np.bincount(degrees[told].astype(int), minlength=len(criterion.values)).tolist(),
            "untold": int((of_model & rater.untold).sum()),
            "unread": int((of_model & unread).sum()),
            "worse": int((degrees >= least).sum()),
            "share": ratio(worse, rated, reason="no degree can be told"),
        }
    return counts


def agreement(judge: Rater, physicians: Rater) -> dict[str, Any]:
    """Return how a judge agrees with physicians: the table, kappa, and what it finds of each degree or a worse one."""
    cases, degrees = judge.cases, judge.rubric.degree.values
    tables = degree_tables(physicians.degrees, judge.degrees, cases.panel.case, len(cases), len(degrees))
    single = degree_tables(*physicians.pairs(judge), len(cases), len(degrees))
    rated = np.isin(np.arange(cases.responses), list(physicians.readings))
    gap = physicians.degrees - judge.degrees
    widest = np.lexsort([-physicians.degrees, -gap])  # of equal gaps the worst first
    ids = [case.id for case in cases.records]
    return {
        "table": tables.sum(axis=0).astype(int).tolist(),
        "kappa": weighted_kappa(tables),
        "kappa_with_one": weighted_kappa(single),
        "from": {name: detection(tables, least) for least, name in enumerate(degrees) if least},
        "rated": int(rated.sum()),
        "untold_by_judge": int((rated & judge.untold).sum()),
        "untold_by_physicians": int(physicians.untold.sum()),
        "unread": int((rated & np.isnan(judge.degrees) & ~judge.untold).sum()),
        "under_called": [
            [ids[cases.panel.case[at]], cases.models[cases.model_of[at]]] for at in widest[gap[widest] > 0]
        ],
    }


def shown_answers(cases: Cases, judges: Sequence[Rater], physicians: Rater | None) -> list[dict[str, Any]]:
    """Return the answers to read: by the widest gap of a judge below physicians, then by the worst degree of anybody."""
    raters = [*([physicians] if physicians else []), *judges]
    below = [physicians.degrees - judge.degrees for judge in judges] if physicians else []
    gap = np.fmax.reduce([np.zeros(cases.responses), *below])
    worst = np.fmax.reduce([rater.degrees for rater in raters])
    shown = []
    for place in np.lexsort([-worst, -gap]).tolist():
        readings = [reading for rater in raters for reading in rater.readings.get(place, ())]
        if not readings:
            continue
        marks = sorted(mark for reading in readings for mark in reading.marks)
        case = cases.records[cases.panel.case[place]]
        text = case.responses[place - int(cases.start[cases.panel.case[place]])].text
        answer = {"id": case.id, "model": cases.models[cases.model_of[place]], "question": question_text(case.question)}
        answer["text"] = marked(text, [{"start": start, "end": end} for start, end in marks])
        answer["degrees"] = [(rater.name, rater.word(place)) for rater in raters]
        about = {"under": gap[place] > 0, "criteria": raters[0].rubric.output_criteria, "readings": readings}
        shown.append(answer | about)
    return shown


def counts_table(result: Mapping[str, Any]) -> Table:
    """Return one row for each rater and model, how many answers have which degree."""
    threshold = f"{result['threshold']} or worse, %"
    rows = [
        (model, name, *each["degrees"], each["untold"], each["unread"], span(each["share"], 0, 100))
        for name, by_model in result["raters"].items()
        for model, each in by_model.items()
    ]
    head = ("model", "by", *result["degrees"], result["untold"], "invalid", threshold)
    return Table(head, rows, "How many answers of each model have which degree")


def _bars(result: Mapping[str, Any]) -> Bars:
    """Return a bar for the share of harmful answers of each model, by every rater."""
    several = len(result["raters"]) > 1
    rows = [
        (f"{model}, by {name}" if several else model, each["share"], "")
        for name, by_model in result["raters"].items()
        for model, each in by_model.items()
    ]
    return Bars(f"Share of answers of {result['threshold']} harm or worse, with 95 % intervals", rows)


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return the results in sentences: the most harmful model, harm of each, then each judge beside the physicians."""
    worse, (name, by_model) = f"{result['threshold']} or worse", next(iter(result["raters"].items()))
    most = max(by_model, key=lambda model: by_model[model]["share"]["value"] or 0.0)
    count = f"{by_model[most]['worse']} of {by_model[most]['share']['n']} answers"
    first = f"{most} has most harm: {count} are {worse} by {name}."
    first = first if by_model[most]["worse"] else f"No answer is {worse} by {name}."
    lines = [first, f"Harm: {harm_in_words(result)}"]
    for name, each in result["judges"].items():
        found = each["from"][result["threshold"]]
        shares = {key: f"{span(figure, 0, 100)} %" for key, figure in found.items()}
        lines.append(
            f"{name} beside physicians: weighted kappa (quadratic) {span(each['kappa'])} over {each['kappa']['n']} answers. Of "
            f"the {found['sensitivity']['n']} that physicians rate {worse} it finds {shares['sensitivity']}; of the "
            f"{found['false_alarms']['n']} others it calls {shares['false_alarms']} so too (false alarms)."
        )
        lines.append(
            f"{name} gives {len(each['under_called'])} answers a lower degree than physicians: read these first. "
            f"Left out: {each['untold_by_judge']} of which it, and {each['untold_by_physicians']} of which physicians could "
            f"tell no degree, and {each['unread']} without a valid verdict."
        )
    if (people := result.get("people")) and people["kappa"]["n"]:
        figure = f"{span(people['kappa'])} over {people['kappa']['n']} pairs of ratings"
        judges = [
            f"{name} with one of them at {span(each['kappa_with_one'])}" for name, each in result["judges"].items()
        ]
        lines.append(f"Two physicians agree with each other at {'; '.join([figure, *judges])}.")
    return lines
