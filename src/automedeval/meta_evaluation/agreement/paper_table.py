"""Make the table in the form of the paper's Table 2: every judge's figures over its runs, its tests, and both in words.

Every cell is the mean over the judge's runs (see `runs`). A test compares a judge with the main one, `ours`, on the
responses, pairs and cases on which both have a value in every run. Paper: a t-test. A correlation has no value per case, and
the pairs and responses of one case depend on one another; so the standard error is that of resampled cases, the same ones for
all columns. The p-values of a column, two-sided, are adjusted for the number of judges that are compared in it (Holm 1979).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.evaluate import measures_of
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.runs import over_runs, trainings_of
from automedeval.meta_evaluation.table import Row
from automedeval.records import JsonObject
from automedeval.records.text import by_reason, p_value, span
from automedeval.stats import bootstrap
from automedeval.stats.agreement import ACCURACIES, CORRELATIONS
from automedeval.stats.bootstrap import Estimate, Statistic

RATIONALES = ("bert_score", "bart_score")
OF_SCORES = ("spearman", "pearson", "pairwise_accuracy", "triple_accuracy")
MARKS = ((0.001, "*"), (0.01, "†"), (0.05, "§"))  # Paper: the marks of Table 2
Rationales = Mapping[
    str, JsonObject
]  # name of a judge → what `compare_rationales` found, under "judges"


class Column(NamedTuple):
    label: str
    digits: int
    factor: float


COLUMNS = {
    "bert_score": Column("BERTScore (F1)", 2, 100),
    "bart_score": Column("BARTScore", 4, 1),
    "spearman": Column("Spearman", 4, 1),
    "pearson": Column("Pearson", 4, 1),
    "pairwise_accuracy": Column("Accuracy 2-tuple", 2, 100),
    "triple_accuracy": Column("Accuracy triple", 2, 100),
}


def paper_table(
    cases: Cases,
    rows: Sequence[Row],
    people: People,
    judges: Mapping[str, JsonObject],
    main: str,
    rationales: tuple[Rationales, Rationales] | None = None,
    resamples: int = bootstrap.RESAMPLES,
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
    columns = [
        name for name in RATIONALES if any(name in record for record in estimates.values())
    ] + list(OF_SCORES)
    by_name = {row.name: row for row in rows}
    table = []
    for line, names in trainings_of(
        {row.name: (row.judge.name, row.criterion) for row in rows}
    ).items():
        trainings = [by_name[name] for name in names]
        runs = {
            name: {each.get("run", 0): each for each in judges[name]["runs"] or [judges[name]]}
            for name in names
        }
        cells = {}
        for measure in OF_SCORES:
            by_run = {
                name: {run: each[measure] for run, each in of.items()} for name, of in runs.items()
            }
            cells[measure] = over_runs(by_run, (0.0, 1.0) if measure in ACCURACIES else None)
        for name in (each for each in RATIONALES if each in columns):
            cells[name] = over_runs(
                {row.name: _rationale_runs(name, estimates[row.judge.name]) for row in trainings}
            )
        valid = sum(row.judge.verdicts_valid.sum() for row in trainings)
        due = sum(row.judge.verdicts_due.sum() for row in trainings)
        count, of = (len(names), "trainings") if len(names) > 1 else (len(runs[line]), "runs")
        record: JsonObject = {"judge": line, "names": names, "runs": count, "of": of}
        table.append(
            record | {"valid": float(valid / due), "cells": {name: cells[name] for name in columns}}
        )
    mine = next(record for record in table if main in record["names"])
    others = [record for record in table if record is not mine]
    for record in others:
        pair = [[by_name[name] for name in each["names"]] for each in (record, mine)]
        figures = _on_shared_pairs(cases, people, pair) | {
            name: _on_shared_cases(
                [
                    {row.name: _rationale_runs(name, statistics[row.judge.name]) for row in side}
                    for side in pair
                ]
            )
            for name in RATIONALES
            if name in columns
        }
        figures = bootstrap.estimate(figures, cases.clusters, resamples)
        for name in columns:
            unit, bounds = ((0.0, 1.0), (-1.0, 1.0)) if name in ACCURACIES else (None, None)
            theirs, own = (over_runs(side, unit)["mean"] for side in figures[name])
            difference = bootstrap.difference(theirs, own, bounds)
            for each in (mine, record):  # the first of the two without a figure says why
                if (mean := each["cells"][name]["mean"]).value is None:
                    difference = Estimate(None, reason=f"{each['judge']}: {mean.reason}")
            record["cells"][name]["difference"] = difference
    for name in columns:
        bootstrap.adjust(
            [record["cells"][name] for record in others], "difference", bootstrap.t_test
        )
    for name in CORRELATIONS:
        mine["cells"][name]["p"] = bootstrap.t_test(mine["cells"][name]["mean"])
    for record in table:
        for cell in record["cells"].values():
            cell["mark"] = mark(cell.get("p_adjusted", cell.get("p")))
    return {"columns": columns, "ours": mine["judge"], "rows": table}


def mark(p: float | None) -> str:
    """Return the paper's mark of a p-value, "" for none."""
    return "" if p is None else next((sign for level, sign in MARKS if p < level), "")


def _on_shared_pairs(
    cases: Cases, people: People, pair: Sequence[Sequence[Row]]
) -> dict[str, list[dict]]:
    """Return measure → of the trainings of both judges, name → run → the figure where every run has a value."""
    rows = [row for side in pair for row in side]
    relation, rated = people.relations, people.scores
    for row in rows:
        relation = np.where(np.isnan(row.people_relations(people)), np.nan, relation)
        for run in row.runs():
            rated = rated if run.own is None else np.where(np.isnan(run.own), np.nan, rated)
    measured = {
        row: [measures_of(cases, run, rated, relation) for run in row.runs()] for row in rows
    }
    return {
        name: [
            {row.name: {n: each[name] for n, each in enumerate(measured[row])} for row in side}
            for side in pair
        ]
        for name in OF_SCORES
    }


def _rationale_runs(name: str, record: JsonObject) -> dict[int, Any]:
    """Return run → the figure of a judge's rationales."""
    if name not in record:
        return {0: Estimate(None, reason=record.get("reason", "not computed"))}
    return {each["run"]: each[name] for each in record["runs"] or [{"run": 0, name: record[name]}]}


def _on_shared_cases(sides: list[dict[str, dict[int, Any]]]) -> list[dict[str, dict[int, Any]]]:
    """Return the means of rationales over the cases in which each of them has a value; its columns are sum and count."""
    every = [figure for side in sides for runs in side.values() for figure in runs.values()]
    if not all(isinstance(figure, Statistic) for figure in every):
        return sides  # one has no figure, and there is no difference
    shared = np.all([figure.columns[:, 1] > 0 for figure in every], axis=0)

    def kept(figure: Statistic) -> Statistic:
        columns = figure.columns * shared[:, None]
        return replace(
            figure,
            columns=columns,
            n=int(columns[:, 1].sum()),
            reason="no case has a rationale of both",
        )

    return [
        {name: {run: kept(each) for run, each in runs.items()} for name, runs in side.items()}
        for side in sides
    ]


def lines_in_words(table: JsonObject) -> list[JsonObject]:
    """Return a line per judge: its name, its runs in words, its share of valid verdicts, and its cells and differences."""
    lines = []
    for row in table["rows"]:
        cells = [(name, row["cells"][name]) for name in table["columns"]]
        ours = row["judge"] == table["ours"]
        line = {"judge": row["judge"], "ours": ours, "valid": row["valid"]}
        line["runs"] = "one run" if row["runs"] == 1 else f"{row['runs']} {row['of']}"
        line["differences"] = [_difference(*each) for each in cells if "difference" in each[1]]
        lines.append(line | {"cells": [_cell(*each) for each in cells]})
    return lines


def _cell(name: str, cell: JsonObject) -> str:
    """Return "74.61 ± 0.40* [73.10, 76.00]": mean, standard deviation between runs, mark, interval of the mean."""
    mean, column = cell["mean"], COLUMNS[name]
    if mean["value"] is None:
        return "N/A"
    text = span(mean, column.digits, column.factor)
    spread = "" if cell["sd"] is None else f" ± {column.factor * cell['sd']:.{column.digits}f}"
    value, space, interval = text.partition(" ")
    return f"{value}{spread}{cell['mark']}{space}{interval}"


def _difference(name: str, cell: JsonObject) -> str:
    difference, column = cell["difference"], COLUMNS[name]
    if difference["value"] is None:
        return "N/A"
    p = cell["p_adjusted"]
    test = "no p-value" if p is None else f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"
    return f"{span(difference, column.digits, column.factor)}, {test}"


def gaps_in_words(table: JsonObject) -> dict[str, list[str]]:
    """Return why cells and tests are N/A → which judge's which."""
    gaps = []
    for row in table["rows"]:
        for name, cell in row["cells"].items():
            label = COLUMNS[name].label
            if cell["mean"]["value"] is None:
                gaps.append((cell["mean"]["reason"], row["judge"], label))
            elif "difference" in cell and cell["p"] is None:
                gaps.append(
                    (
                        cell["difference"].get("reason", "no p-value"),
                        row["judge"],
                        f"the test of {label}",
                    )
                )
    return by_reason(gaps)
