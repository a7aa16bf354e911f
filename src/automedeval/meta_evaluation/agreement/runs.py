"""Average a judge's figures over its runs, and follow the judges of introspection rounds.

A run is one `--runs` of automedeval judge, or one training of the judge: NAME, NAME-run2, … . Every run is scored by itself,
and the figures are averaged (paper, Table 2). A training's figure is the mean over its own runs.

The judge of round 0 comes from the last curriculum stage (paper Tables 3 and 5). The forecast is of triple accuracy, the
paper's Accuracy triple, which its Appendix F models.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import stdev

from automedeval.meta_evaluation.verdicts.table import Row
from automedeval.records import JsonObject, RecordError
from automedeval.stats.bootstrap import Bounds, Estimate, average, difference
from automedeval.stats.growth_curve import LEAST_ROUNDS, forecast

ROUND_MEASURES = ("triple_accuracy", "pairwise_accuracy")


def repeated(names: Sequence[str]) -> dict[str, list[str]]:
    """Return name → the names of its trainings (NAME, NAME-run2, …), in order; names with one training are left out."""
    runs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        match = re.fullmatch(r"(.+)-run(\d+)", name)
        if match and match[1] in names:
            runs[match[1]].append((int(match[2]), name))
    return {name: [name, *(run for _, run in sorted(later))] for name, later in runs.items()}


def trainings_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the name of the line of each judge's first training → the lines of all of them, in the order of the judges."""
    lines = {(row.judge.name, row.criterion): row for row in rows}
    several = repeated(list(dict.fromkeys(judge for judge, _ in lines)))
    first = {run: name for name, runs in several.items() for run in runs}
    trainings: dict[str, list[Row]] = {}
    for (judge, criterion), row in lines.items():
        base = first.get(judge, judge)
        # Of a training other than the first, unless the first has no choice on this criterion.
        if base != judge and (base, criterion) in lines:
            continue
        keys = [(name, criterion) for name in several.get(judge, [judge])]
        trainings[row.name] = [lines[key] for key in keys if key in lines]
    return trainings


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
    sd: float | None = None
    values = [figure.value for figure in trainings.values()]
    defined = [value for value in values if value is not None]
    if len(defined) == len(values) > 1:
        sd = stdev(defined)
    elif len(values) > 1:
        name, figure = list(trainings.items())[values.index(None)]
        mean = Estimate(None, reason=f"{name}: {figure.reason}", cases=mean.cases)
    return {"mean": mean, "sd": sd, "values": values}


def check_names(option: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    """Raise RecordError for a name in an option that no judge has, or that is given twice."""
    for number, name in enumerate(names):
        if name not in allowed:
            known = ", ".join(allowed)
            raise RecordError(f"{option}: no judge is called {name!r}; there are {known}")
        if name in names[:number]:
            raise RecordError(f"{option}: {name!r} is given twice")


def main_row(rows: Sequence[Row], wanted: str | None) -> Row:
    """Return the line of this name, or the first of the judge of this name; None: the first of all."""
    named = [row for row in rows if wanted in (None, row.name, row.judge.name)]
    if wanted is not None and not named:
        check_names("--main_judge", [wanted], [row.name for row in rows])
    return named[0]


def follow_rounds(rows: Sequence[JsonObject], names: Sequence[str]) -> JsonObject:
    """Return the accuracies of rounds 0, 1, 2, …, the means over the runs of their judges, and a forecast for further rounds.

    Args:
        rows: of `paper_table`.

    Returns:
        "names"; "values", the triple accuracies; "table", a line per round with both accuracies, their change against the
        round before, the number of runs, and the standard deviation between them; "forecast".
    """
    by_name = {row["judge"]: row for row in rows}
    table: list[JsonObject] = []
    for number, name in enumerate(names):
        judge = by_name[name]
        line = {"round": number, "judge": name, "runs": judge["runs"], "sd": {}, "change": None}
        for measure in ROUND_MEASURES:
            figure = judge["cells"][measure]
            line[measure] = figure["mean"]
            line["sd"][measure] = figure["sd"]
        if table:
            line["change"] = {
                measure: difference(line[measure], table[-1][measure]) for measure in ROUND_MEASURES
            }
        table.append(line)
    values = [line["triple_accuracy"].value for line in table]
    foreseen = forecast(values)
    if None in values and len(values) >= LEAST_ROUNDS:
        foreseen["reason"] += f": {table[values.index(None)]['triple_accuracy'].reason}"
    return {"names": list(names), "values": values, "table": table, "forecast": foreseen}
