"""Average a judge's figures over its runs, and follow the judges of introspection rounds.

A run is one `--runs` of automedeval judge, or one training of the judge: NAME, NAME-run2, … . Every run is scored by itself,
and the figures are averaged (paper, Table 2). A training's figure is the mean over its own runs.

The judge of round 0 comes from the last curriculum stage (paper Tables 3 and 5). The forecast is of triple accuracy, the
paper's Accuracy triple, which its Appendix F models.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from statistics import stdev

from automedeval.meta_evaluation.verdicts.table import Row, Rows
from automedeval.records import JsonObject, RecordError
from automedeval.stats.bootstrap import Bounds, Estimate, average, difference
from automedeval.stats.growth_curve import LEAST_ROUNDS, forecast

ROUND_MEASURES = ("triple_accuracy", "pairwise_accuracy")


def trainings_of(rows: Rows) -> dict[str, list[Row]]:
    """Return the name of the line of each judge's first training → the lines of all of them (NAME, NAME-run2, …), in order."""
    names = {row.judge.name for row in rows}
    numbered = defaultdict[tuple[str, str | None], list[tuple[int, Row]]](list)
    for row in rows:
        name = row.judge.name
        number = -1
        match = re.fullmatch(r"(.+)-run(\d+)", name)
        if match and match[1] in names:
            name = match[1]
            number = int(match[2])
        numbered[name, row.criterion].append((number, row))
    trainings = {}
    for of_judge in numbered.values():
        lines = [row for _, row in sorted(of_judge, key=itemgetter(0))]
        trainings[lines[0].name] = lines
    return {row.name: trainings[row.name] for row in rows if row.name in trainings}


def over_runs(figures: Mapping[str, Mapping[int, Estimate]], bounds: Bounds = None) -> JsonObject:
    """Average a figure over the runs of a judge.

    Args:
        figures: name of a training → run → the figure, all from the same resamples.
        bounds: the lowest and highest value of a unit if the figure is a mean over units.

    Returns:
        "mean" with its interval over cases, "sd", the standard deviation (n - 1) between runs, None where there is one run, and
        "values", the runs' figures. Mean and sd are undefined if one of the runs has no figure.
    """
    if len(figures) > 1:
        trainings = {name: average([*runs.values()], bounds) for name, runs in figures.items()}
    else:
        (runs,) = figures.values()
        trainings = {f"run {number}": figure for number, figure in runs.items()}
    mean = average([*trainings.values()], bounds)
    values = [figure.value for figure in trainings.values()]
    record: JsonObject = {"mean": mean, "sd": None, "values": values}
    if len(values) == 1:
        return record
    for name, figure in trainings.items():
        if figure.value is None:
            return record | {"mean": replace(mean, reason=f"{name}: {figure.reason}")}
    return record | {"sd": stdev([value for value in values if value is not None])}


def check_names(option: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    """Raise RecordError for a name in an option that no judge has, or that is given twice."""
    for number, name in enumerate(names):
        if name not in allowed:
            known = ", ".join(allowed)
            raise RecordError(f"{option}: no judge is called {name!r}; there are {known}")
        if name in names[:number]:
            raise RecordError(f"{option}: {name!r} is given twice")


def main_row(rows: Rows, wanted: str | None) -> Row:
    """Return the line of this name, or the first of the judge of this name; None: the first of all.

    A judge is also called JUDGE by RUBRIC.
    """
    if wanted is None:
        return rows[0]
    named = [row for row in rows if wanted in (row.name, row.judge.name, row.judge.whole_name)]
    if not named:
        check_names("--main_judge", [wanted], [row.name for row in rows])
    return named[0]


def follow_rounds(rows: Sequence[JsonObject], names: Sequence[str]) -> JsonObject:
    """Return the accuracies of rounds 0, 1, 2, …, the means over the runs of their judges, and a forecast for further rounds.

    Args:
        rows: of `paper_table`.

    Returns:
        "table", a line per round with both accuracies, their change against the round before, the number of runs, and the
        standard deviation between them; "forecast", of the triple accuracies.
    """
    by_name = {row["judge"]: row for row in rows}
    table: list[JsonObject] = []
    for number, name in enumerate(names):
        judge = by_name[name]
        line = {"round": number, "judge": name, "runs": judge["runs"], "sd": {}, "change": {}}
        for measure in ROUND_MEASURES:
            figure = judge["cells"][measure]
            line[measure] = figure["mean"]
            line["sd"][measure] = figure["sd"]
            if table:
                line["change"][measure] = difference(line[measure], table[-1][measure])
        table.append(line)
    figures = [line["triple_accuracy"] for line in table]
    foreseen = forecast([figure.value for figure in figures])
    gaps = [figure.reason for figure in figures if figure.value is None]
    if gaps and len(figures) >= LEAST_ROUNDS:
        foreseen["reason"] += f": {gaps[0]}"
    return {"table": table, "forecast": foreseen}
