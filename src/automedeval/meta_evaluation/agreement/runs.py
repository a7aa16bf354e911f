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

from automedeval.meta_evaluation.table import Row
from automedeval.records import JsonObject, RecordError
from automedeval.stats import bootstrap
from automedeval.stats.bootstrap import Bounds, Estimate
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


def trainings_of(names: Mapping[str, tuple[str, str | None]]) -> dict[str, list[str]]:
    """Return the name of each judge's first training → those of all of them, in the order of the judges.

    Args:
        names: the name of a line → its judge, and its criterion if it is one of a pairwise judge.
    """
    lines = {key: line for line, key in names.items()}
    several = repeated(list(dict.fromkeys(judge for judge, _ in lines)))
    first = {run: name for name, runs in several.items() for run in runs}
    trainings: dict[str, list[str]] = {}
    for (judge, criterion), line in lines.items():
        base = first.get(judge, judge)
        if (base, criterion) not in lines:  # the first training has no choice on this criterion
            base = judge
        if base == judge:
            keys = ((name, criterion) for name in several.get(base, [base]))
            trainings[line] = [lines[key] for key in keys if key in lines]
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
        each = {
            name: bootstrap.average(list(runs.values()), bounds) for name, runs in figures.items()
        }
    else:
        each = {
            f"run {number}": figure for runs in figures.values() for number, figure in runs.items()
        }
    values = [figure.value for figure in each.values()]
    mean, sd = bootstrap.average(list(each.values()), bounds), None
    if len(each) > 1 and None in values:
        name, figure = list(each.items())[values.index(None)]
        mean = Estimate(None, reason=f"{name}: {figure.reason}", cases=mean.cases)
    elif len(each) > 1:
        sd = stdev(value for value in values if value is not None)
    return {"mean": mean, "sd": sd, "values": values}


def check_names(option: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    """Raise RecordError for a name in an option that no judge has, or that is given twice."""
    for number, name in enumerate(names):
        if name not in allowed:
            raise RecordError(
                f"{option}: no judge is called {name!r}; there are {', '.join(allowed)}"
            )
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
        figures = {measure: judge["cells"][measure] for measure in ROUND_MEASURES}
        line = {measure: figure["mean"] for measure, figure in figures.items()}
        line["sd"] = {measure: figure["sd"] for measure, figure in figures.items()}
        change = {
            each: bootstrap.difference(line[each], table[-1][each])
            for each in ROUND_MEASURES
            if table
        }
        table.append(
            {
                "round": number,
                "judge": name,
                "runs": judge["runs"],
                **line,
                "change": change or None,
            }
        )
    values = [line["triple_accuracy"].value for line in table]
    foreseen = forecast(values)
    if None in values and len(values) >= LEAST_ROUNDS:
        foreseen["reason"] += f": {table[values.index(None)]['triple_accuracy'].reason}"
    return {"names": list(names), "values": values, "table": table, "forecast": foreseen}
