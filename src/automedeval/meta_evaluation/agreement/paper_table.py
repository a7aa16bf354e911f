"""Make the table in the form of the paper's Table 2: every judge's figures over its runs, its tests, and both in words.

Every cell is the mean over the judge's runs (see `runs`). A test compares a judge with the main one, `ours`, on the
responses, pairs and cases on which both have a value in every run. Paper: a t-test. A correlation has no value per case, and
the pairs and responses of one case depend on one another; so the standard error is that of resampled cases, the same ones for
all columns. The p-values of a column, two-sided, are adjusted for the number of judges that are compared in it (Holm 1979).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from automedeval.meta_evaluation.agreement.evaluate import measures_of
from automedeval.meta_evaluation.agreement.runs import over_runs, trainings_of
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People
from automedeval.meta_evaluation.verdicts.table import Rows
from automedeval.records import JsonObject
from automedeval.records.text import UNDEFINED, p_value, percent, span
from automedeval.stats.agreement import CORRELATIONS
from automedeval.stats.bootstrap import (
    SHARE,
    Bounds,
    Estimate,
    Statistic,
    adjust,
    difference,
    estimate,
    is_known,
    mean,
    only,
    t_test,
)

RATIONALES = ("bert_score", "bart_score")
OF_SCORES = ("spearman", "pearson", "pairwise_accuracy", "triple_accuracy")
MARKS = ((0.001, "*"), (0.01, "†"), (0.05, "§"))  # Paper: the marks of Table 2
# Name of a judge → what `compare_rationales` found, under "judges".
Rationales = Mapping[str, JsonObject]
Figures = dict[str, dict[int, Any]]  # of one column: name of a training → run → figure


class Column(NamedTuple):
    label: str
    digits: int
    factor: float
    bounds: Bounds = None  # the lowest and highest value of a unit


COLUMNS = {
    "bert_score": Column("BERTScore (F1)", 2, 100),
    "bart_score": Column("BARTScore", 4, 1),
    "spearman": Column("Spearman", 4, 1),
    "pearson": Column("Pearson", 4, 1),
    "pairwise_accuracy": Column("Accuracy 2-tuple", 2, 100, SHARE),
    "triple_accuracy": Column("Accuracy triple", 2, 100, SHARE),
}


def paper_table(
    cases: Cases,
    rows: Rows,
    people: People,
    judges: Mapping[str, JsonObject],
    main: str,
    rationales: tuple[Rationales, Rationales] | None,
    resamples: int,
) -> JsonObject:
    """Return the table, figures as `Estimate`.

    Args:
        judges: the records of `meta_evaluate`.
        main: the name of a line of the judge that every other one is tested against.
        rationales: what `compare_rationales` found, as `Statistic`s and as `Estimate`s from the same resamples; None: the
            table has no columns for rationales.

    Returns:
        "columns"; "ours"; "rows": for each "judge" the "names" of its trainings, how many "runs" are averaged, "of" trainings
        or runs of one judge, the "valid" share of its verdicts, and "cells": column → what `over_runs` returns, with "mark",
        and of other judges than ours "difference" (less ours), "p" and "p_adjusted", of the correlations of ours "p".
    """
    statistics, estimates = rationales or ({}, {})
    named = set().union(*estimates.values())
    compared = [column for column in RATIONALES if column in named]
    columns = [*compared, *OF_SCORES]
    trainings = trainings_of(rows)
    table = []
    for line, of_judge in trainings.items():
        record = _about(line, of_judge)
        for column in columns:
            figures = _figures(column, of_judge, estimates if column in RATIONALES else judges)
            record["cells"][column] = over_runs(figures, COLUMNS[column].bounds)
        table.append(record)
    ours = next(record for record in table if main in record["names"])
    others = [record for record in table if record is not ours]
    for record in others:
        both = [*trainings[record["judge"]], *trainings[ours["judge"]]]
        shared = _on_shared_pairs(people, both)
        for column in compared:
            shared[column] = _on_shared_cases(_figures(column, both, statistics))
        shared = estimate(shared, cases.clusters, resamples)
        for column in columns:
            gap = _difference(column, shared[column], record, ours)
            record["cells"][column]["difference"] = gap
    _add_p_values(columns, ours, others)
    return {"columns": columns, "ours": ours["judge"], "rows": table}


def _add_p_values(columns: Sequence[str], ours: JsonObject, others: Sequence[JsonObject]) -> None:
    """Add the p-values of the tests to the rows of the table, and the mark of each cell."""
    for column in columns:
        adjust([record["cells"][column] for record in others], "difference", t_test)
    for column in CORRELATIONS:
        cell = ours["cells"][column]
        cell["p"] = t_test(cell["mean"])
    for record in (ours, *others):
        for cell in record["cells"].values():
            cell["mark"] = mark(cell.get("p_adjusted", cell.get("p")))


def _about(line: str, trainings: Rows) -> JsonObject:
    """Return a row of the table without its cells."""
    count = len(trainings)
    what = "trainings"
    if count == 1:
        count = len(trainings[0].runs())
        what = "runs"
    valid = sum(row.judge.verdicts_valid.sum() for row in trainings)
    due = sum(row.judge.verdicts_due.sum() for row in trainings)
    return {
        "judge": line,
        "names": [row.name for row in trainings],
        "runs": count,
        "of": what,
        "valid": float(valid / due),
        "cells": {},
    }


def _figures(column: str, trainings: Rows, records: Mapping[str, JsonObject]) -> Figures:
    """Return the figures of a column: the record of a line or a judge has that of every run, or of the only one."""
    figures = {}
    for row in trainings:
        record = records[row.judge.name if column in RATIONALES else row.name]
        if column in record:
            runs = record["runs"] or [record]
            figures[row.name] = {run.get("run", 0): run[column] for run in runs}
        else:
            figures[row.name] = {0: Estimate(None, reason=record["reason"])}
    return figures


def _difference(column: str, figures: Figures, record: JsonObject, ours: JsonObject) -> Estimate:
    """Return the difference of a judge's mean to ours on what both share; the records are their rows of the table."""
    means = []
    bounds = COLUMNS[column].bounds
    for row in (record, ours):
        figure = row["cells"][column]["mean"]
        if figure.value is None:
            return Estimate(None, reason=f"{row['judge']}: {figure.reason}")
        means.append(over_runs({name: figures[name] for name in row["names"]}, bounds)["mean"])
    theirs, of_ours = means
    return difference(theirs, of_ours, bounds and (-1.0, 1.0))


def mark(p: float | None) -> str:
    """Return the paper's mark of a p-value, "" for none."""
    return "" if p is None else next((sign for level, sign in MARKS if p < level), "")


def _on_shared_pairs(people: People, rows: Rows) -> dict[str, Figures]:
    """Return measure → the figures of these lines on the pairs and responses on which every run of theirs has a value."""
    relation = people.relations
    rated = people.scores
    for row in rows:
        relation = only(relation, is_known(row.people_relations(people)))
        for run in row.runs():
            known = is_known(run.whole)
            rated = only(rated, known | ~known.any())
    shared: dict[str, Figures] = {column: {} for column in OF_SCORES}
    for row in rows:
        runs = [measures_of(run, rated, relation) for run in row.runs()]
        for column, figures in shared.items():
            figures[row.name] = {at: run[column] for at, run in enumerate(runs)}
    return shared


def _on_shared_cases(figures: Figures) -> Figures:
    """Return the means of rationales over the cases in which each of them has a value; its columns are sum and count."""
    of_runs = list(chain.from_iterable(runs.values() for runs in figures.values()))
    if not all(isinstance(figure, Statistic) for figure in of_runs):
        return figures  # one has no figure, and there is no difference
    is_shared = np.all([figure.columns[:, 1] > 0 for figure in of_runs], axis=0)
    shared: Figures = {}
    for name, runs in figures.items():
        shared[name] = {}
        for number, figure in runs.items():
            total, count = (figure.columns * is_shared[:, None]).T
            reason = "no case has a rationale of both"
            shared[name][number] = mean(total, count, reason)
    return shared


def means_in_words(row: JsonObject) -> dict[str, str]:
    """Return a judge's line: its runs, its share of valid verdicts, and its cells by the labels of their columns."""
    runs = "one run" if row["runs"] == 1 else f"{row['runs']} {row['of']}"
    line = {"runs": runs, "valid": percent(row["valid"])}
    for name, cell in row["cells"].items():
        line[COLUMNS[name].label] = _in_words(cell, COLUMNS[name])
    return line


def tests_in_words(row: JsonObject) -> dict[str, str]:
    """Return how a judge differs from the main one, by the labels of the columns."""
    line = {}
    for name, cell in row["cells"].items():
        if "difference" not in cell:
            continue
        column, p, test = COLUMNS[name], cell["p_adjusted"], "no p-value"
        if p is not None:
            test = f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"
        difference = span(cell["difference"], column.digits, column.factor)
        line[column.label] = "N/A" if difference == UNDEFINED else f"{difference}, {test}"
    return line


def _in_words(cell: JsonObject, column: Column) -> str:
    """Return "74.61 ± 0.40* [73.10, 76.00]": mean, standard deviation between runs, mark, interval of the mean."""
    if cell["mean"]["value"] is None:
        return "N/A"
    spread = "" if cell["sd"] is None else f" ± {column.factor * cell['sd']:.{column.digits}f}"
    value, space, interval = span(cell["mean"], column.digits, column.factor).partition(" ")
    return f"{value}{spread}{cell['mark']}{space}{interval}"


def gaps_in_words(table: JsonObject) -> dict[str, list[str]]:
    """Return why cells and tests are N/A → which judge's which."""
    gaps = defaultdict[str, list[str]](list)
    for row in table["rows"]:
        for name, cell in row["cells"].items():
            judge = row["judge"]
            label = COLUMNS[name].label
            if cell["mean"]["value"] is None:
                gaps[cell["mean"]["reason"]].append(f"{judge}, {label}")
            elif "difference" in cell and cell["p"] is None:
                reason = cell["difference"].get("reason", "no p-value")
                gaps[reason].append(f"{judge}, the test of {label}")
    return gaps
