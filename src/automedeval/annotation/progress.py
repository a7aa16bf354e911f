"""Measure the progress of a study: tasks done, agreement so far, drift over time, and the widest disagreements.

Everything is computed from the answers that count now, each time it is asked for; nothing is kept.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from automedeval.annotation.assignment import Answer, Progress
from automedeval.annotation.database import DONE
from automedeval.annotation.store import Store
from automedeval.annotation.study import PREFERENCE, RESPONSES, VERDICT, Annotator, Study
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import gather_preferences, preference_shares
from automedeval.meta_evaluation.report.figures import illustrate_preferences
from automedeval.records import Preference
from automedeval.reports import charts
from automedeval.reports.charts import Figure
from automedeval.stats import bootstrap, interrater

RESAMPLES = 500  # of the live intervals: the page comes at once, and the report has its 2,000
BINS = 10  # points of a physician's line in the figure of drift
WIDEST = 20


@dataclass(frozen=True)
class Physician:
    """How far one physician is.

    Args:
        seconds: median time of a finished task.
        last: when they last stored, skipped or took back something, in seconds since 1970.
    """

    annotator: Annotator
    invited: bool
    progress: Progress
    seconds: float | None
    last: float | None


@dataclass(frozen=True)
class Division:
    """An item on which physicians disagree: the widest range of their scores, and of what.

    Args:
        number: of the item in the study.
        width: highest less lowest score of one thing on one criterion; `mean_width` the same over all things and criteria.
        about: the response's model, or the judge of the verdict; `criterion`, what it was scored on.
        annotators: how many scored it.
    """

    number: int
    case_id: str
    width: float
    mean_width: float
    about: str
    criterion: str
    annotators: int


def physicians(study: Study, store: Store, answers: Sequence[Answer]) -> list[Physician]:
    """Return every annotator's progress, in the order of the study."""
    invited, last = store.invited(), store.last_stored()
    spent: dict[str, dict[int, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        spent[answer.annotator][answer.assignment].append(answer)
    found = []
    for each in study.annotators:
        tasks = [task for task in spent[each.name].values() if task[0].state == DONE]
        parts = [[answer.seconds for answer in task if answer.seconds is not None] for task in tasks]
        seconds = [sum(timed) for timed, task in zip(parts, tasks) if len(timed) == len(task)]
        typical = median(seconds) if seconds else None
        found.append(Physician(each, each.name in invited, store.progress(each.name), typical, last.get(each.name)))
    return found


def live_agreement(study: Study, answers: Sequence[Answer], seed: int = 0) -> dict[str, Any]:
    """Return ICC and Krippendorff's alpha per criterion, as far as answers go.

    Returns:
        {"responses" or "verdicts of JUDGE": {criterion: {measure: Estimate}}}, with what has an answer. Annotators count as
        crossed where each rated all that was rated, otherwise as anonymous, just as `report` takes the exported ratings.
    """
    tree: dict[str, Any] = {}
    rated = _rated_cases(study, answers, "verify" if "verify" in study.plans else "rate")
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
    return bootstrap.estimate(tree, len(rated), RESAMPLES, seed) if tree else {}


def _rated_cases(study: Study, answers: Sequence[Answer], kind: str) -> Cases:
    """Return the cases that somebody answered about under one kind: an interval is over these."""
    found = {answer.item.case_id: study.case_of(answer.item) for answer in answers if answer.item.kind == kind}
    return Cases(list(found.values()), study.place)


def _scores(study: Study, answers: Sequence[Answer]) -> Iterator[tuple[Answer, str | None, int, str, float]]:
    """Yield every score there is: (answer, judge or None, response or 0, criterion, score)."""
    for answer in answers:
        if answer.part == RESPONSES:
            for slot, scores in answer.content["scores"].items():
                response = answer.order[int(slot) - 1]
                # The export leaves a reference that was shown as one more response out, too.
                for criterion, score in () if study.is_reference(answer.item, response) else scores.items():
                    yield answer, None, response, criterion, float(score)
        elif answer.part.startswith(VERDICT):
            for criterion, score in answer.content["scores"].items():
                yield answer, answer.part.removeprefix(VERDICT), 0, criterion, float(score)


def _tables(study: Study, answers: Sequence[Answer], cases: Cases) -> dict[str | None, dict[str, np.ndarray]]:
    """Return (None or judge) → criterion → float [responses or cases, annotators], NaN where there is no score."""
    columns: dict[str | None, dict[str, int]] = defaultdict(dict)
    given: dict[str | None, dict[str, list[tuple[int, int, float]]]] = defaultdict(lambda: defaultdict(list))
    for answer, judge, response, criterion, score in _scores(study, answers):
        case = cases.index[answer.item.case_id]
        row = int(cases.start[case]) + response if judge is None else case
        column = columns[judge].setdefault(answer.annotator, len(columns[judge]))
        given[judge][criterion].append((row, column, score))
    tables: dict[str | None, dict[str, np.ndarray]] = {}
    for judge, criteria in given.items():
        shape = cases.responses if judge is None else len(cases), len(columns[judge])
        tables[judge] = {}
        for criterion, scores in criteria.items():
            table = tables[judge][criterion] = np.full(shape, np.nan)
            rows, places, values = zip(*scores)
            table[list(rows), list(places)] = values
    return tables


def drift(
    study: Study, answers: Sequence[Answer], bins: int = BINS
) -> list[tuple[str, list[tuple[float, float, int]]]]:
    """Return how each annotator's scores of responses go on: (name, [(number of the task, mean score, tasks)]).

    An annotator's tasks stand in the order in which they were stored, and are put into bins of as even a size as can be. What
    moves a line may be the cases as well as the person: lines that move together are the cases'.
    """
    given: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer, judge, _, _, score in _scores(study, answers):
        if judge is None:
            given[answer.annotator][answer.assignment].append(score)
    lines = []
    for name, tasks in sorted(given.items()):
        values = np.array([sum(scores) / len(scores) for scores in tasks.values()])
        parts = np.array_split(np.arange(len(values)), min(bins, len(values)))
        lines.append((name, [(float(part.mean()) + 1, float(values[part].mean()), len(part)) for part in parts]))
    return lines


def divisions(study: Study, answers: Sequence[Answer], most: int = WIDEST) -> list[Division]:
    """Return the items on which annotators are furthest apart, widest first."""
    numbers = {item.key: number for number, item in enumerate(study.items)}
    given: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    cases: dict[str, str] = {}
    for answer, judge, response, criterion, score in _scores(study, answers):
        about = study.case_of(answer.item).models[response] if judge is None else f"verdict of {judge}"
        given[answer.item.key][about, criterion].append(score)
        cases[answer.item.key] = answer.item.case_id
    found = []
    for key, things in given.items():
        widths = {thing: max(scores) - min(scores) for thing, scores in things.items() if len(scores) > 1}
        if key in numbers and widths and max(widths.values()) > 0:
            about, criterion = max(widths, key=widths.__getitem__)
            annotators = len(things[about, criterion])
            mean = sum(widths.values()) / len(widths)
            width = widths[about, criterion]
            found.append(Division(numbers[key], cases[key], width, mean, about, criterion, annotators))
    return sorted(found, key=lambda each: (-each.width, -each.mean_width, each.number))[:most]


def live_preferences(study: Study, answers: Sequence[Answer], seed: int = 0) -> list[dict[str, Any]]:
    """Return the shares of preferences so far, as `preference_shares` lays them out, figures as records for JSON."""
    placed = []
    for answer in answers:
        if answer.part == PREFERENCE:
            one, other = judges = answer.item.judges
            for criterion, side in answer.content["choices"].items():
                choice = side if side == "tie" else judges[answer.order[int(side) - 1]]
                preference = Preference(answer.item.case_id, (one, other), answer.annotator, criterion, choice)
                placed.append((f"{study.place}: {answer.item.key}", preference))
    if not placed:
        return []
    cases = _rated_cases(study, answers, "prefer")
    found, _ = gather_preferences(placed, cases, study.place)
    return bootstrap.plain(bootstrap.estimate(preference_shares(found, len(cases)), len(cases), RESAMPLES, seed))


def kinds_answered(answers: Sequence[Answer]) -> Counter:
    """Return how many answers there are of each kind of part: ratings of responses, of verdicts, decisions, preferences."""
    return Counter(answer.part.partition(":")[0] for answer in answers)


def draw_figures(study: Study, answers: Sequence[Answer]) -> dict[str, Figure]:
    """Return the coordinator's figures by the names of their files."""
    found: dict[str, Figure] = {}
    if lines := drift(study, answers):
        found["drift"] = Figure(
            "Drift over time",
            "Mean score that each physician gave, over the sequence of their own tasks. Lines that move together follow the "
            "cases; a line that moves alone follows the person.",
            partial(charts.drift, lines),
            ["physician", "task", "mean score", "tasks"],
            [[name, f"{at:g}", f"{mean:.2f}", count] for name, points in lines for at, mean, count in points],
        )
    preferences = illustrate_preferences(live_preferences(study, answers))
    return found | {f"preference-{number}": figure for number, figure in enumerate(preferences, 1)}
