"""Measure the progress of a study: tasks done, agreement so far, and the widest disagreements.

Everything is computed from the answers that count now, each time it is asked for; nothing is kept.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from automedeval.annotation.assignment import Answer
from automedeval.annotation.database import DONE
from automedeval.annotation.store import Store
from automedeval.annotation.study import RESPONSES, VERDICT, Study
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.stats import bootstrap, interrater

RESAMPLES = 500  # of the live intervals: the page comes at once, and the report has its 2,000
WIDEST = 20


def physicians(study: Study, store: Store, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return how far every annotator is, in the order of the study.

    Returns:
        {"annotator", "progress": their `Progress`, "seconds": the median time of a finished task, "last": when they last
        stored, skipped or took back something, in seconds since 1970}; the times are None where there is none.
    """
    last = store.last_stored()
    spent: dict[str, dict[int, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        spent[answer.annotator][answer.assignment].append(answer)
    rows = []
    for each in study.annotators:
        tasks = [task for task in spent[each.name].values() if task[0].state == DONE]
        parts = [[answer.seconds for answer in task if answer.seconds is not None] for task in tasks]
        seconds = [sum(timed) for timed, task in zip(parts, tasks) if len(timed) == len(task)]
        row = {"annotator": each, "progress": store.progress(each.name), "last": last.get(each.name)}
        rows.append(row | {"seconds": median(seconds) if seconds else None})
    return rows


def live_agreement(study: Study, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return ICC and Krippendorff's alpha per criterion, as far as answers go.

    Returns:
        {"responses" or "verdicts of JUDGE": {criterion: {measure: Estimate}}}, with what has an answer. Annotators count as
        crossed where each rated all that was rated, otherwise as anonymous, just as `report` takes the exported ratings.
    """
    tree: dict[str, Any] = {}
    asked = {
        answer.item.case_id: study.case_of(answer.item) for answer in answers if answer.item.kind in ("rate", "verify")
    }
    rated = Cases(list(asked.values()), study.place)  # an interval is over these
    for about, tables in _tables(study, answers, rated).items():
        case = rated.panel.case if about is None else np.arange(len(rated))
        complete = all(not np.isnan(table[~np.isnan(table).all(axis=1)]).any() for table in tables.values())
        tree["responses" if about is None else f"verdicts of {about}"] = {
            criterion: interrater.icc(table, case, len(rated), complete)
            | {"alpha (ordinal)": interrater.krippendorff_alpha(table, case, len(rated), "ordinal")}
            if table.shape[1] > 1
            else {}
            for criterion, table in tables.items()
        }
    return bootstrap.estimate(tree, len(rated), RESAMPLES) if tree else {}


def _scores(study: Study, answers: Sequence[Answer]) -> Iterator[tuple[Answer, str | None, int, str, float]]:
    """Yield every score there is: (answer, judge or None, response or 0, criterion, score)."""
    for answer in answers:
        if answer.part == RESPONSES:
            for slot, scores in answer.content["scores"].items():
                response = answer.order[int(slot) - 1]
                # The export leaves out a reference that was shown as one more response, too.
                for criterion, score in () if study.is_reference(answer.item, response) else scores.items():
                    yield answer, None, response, criterion, float(score)
        elif answer.part.startswith(VERDICT):
            for criterion, score in answer.content["scores"].items():
                yield answer, answer.part.removeprefix(VERDICT), 0, criterion, float(score)


def _tables(study: Study, answers: Sequence[Answer], cases: Cases) -> dict[str | None, dict[str, np.ndarray]]:
    """Return (None or judge) → criterion → float [responses or cases, annotators], NaN where there is no score."""
    scores: dict[tuple[str | None, str], list[tuple[int, str, float]]] = defaultdict(list)
    for answer, judge, response, criterion, score in _scores(study, answers):
        case = cases.index[answer.item.case_id]
        row = int(cases.start[case]) + response if judge is None else case
        scores[judge, criterion].append((row, answer.annotator, score))
    tables: dict[str | None, dict[str, np.ndarray]] = defaultdict(dict)
    for (judge, criterion), triples in scores.items():
        rows, annotators, values = zip(*triples)
        names, columns = np.unique(annotators, return_inverse=True)
        table = np.full((cases.responses if judge is None else len(cases), len(names)), np.nan)
        table[list(rows), columns] = values
        tables[judge][criterion] = table
    return tables


def divisions(study: Study, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return the `WIDEST` items on which annotators are furthest apart, widest first.

    Returns:
        {"number": of the item in the study, "case_id", "width": the largest range of the scores of one thing, "about": that
        response's model or verdict, "criterion", "annotators": how many scored it, "mean_width": the mean range of all things}.
    """
    numbers = {item.key: number for number, item in enumerate(study.items)}
    scores_of: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer, judge, response, criterion, score in _scores(study, answers):
        about = study.case_of(answer.item).models[response] if judge is None else f"verdict of {judge}"
        scores_of[answer.item.key][about, criterion].append(score)
    rows: list[dict[str, Any]] = []
    for key in scores_of.keys() & numbers.keys():
        widths = {thing: max(scores) - min(scores) for thing, scores in scores_of[key].items() if len(scores) > 1}
        if widths and max(widths.values()) > 0:
            about, criterion = widest = max(widths, key=widths.__getitem__)
            row = {"number": numbers[key], "case_id": study.items[numbers[key]].case_id, "width": widths[widest]}
            row |= {"mean_width": sum(widths.values()) / len(widths), "about": about, "criterion": criterion}
            rows.append(row | {"annotators": len(scores_of[key][widest])})
    return sorted(rows, key=lambda row: (-row["width"], -row["mean_width"], row["number"]))[:WIDEST]
