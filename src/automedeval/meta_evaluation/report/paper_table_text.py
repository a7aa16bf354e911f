"""Put the table in the form of the paper's Table 2 into words: its cells, its legend, and the paper's own figures beside."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from automedeval.meta_evaluation.agreement.paper_table import RATIONALES
from automedeval.reports.text import by_reason, p_value, span

Record = Mapping[str, Any]


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
SOURCES = {"own": "the judges' own scores or choices", "expected": "expected scores"}


def lines_of(table: Record) -> list[dict[str, Any]]:
    """Return a line per judge: its name, its runs in words, its share of valid verdicts, and its cells and differences."""
    lines = []
    for row in table["rows"]:
        cells = {name: row["cells"][name] for name in table["columns"]}
        is_ours = row["judge"] == table["ours"]
        lines.append(
            {
                "judge": row["judge"],
                "ours": is_ours,
                "runs": "one run" if row["runs"] == 1 else f"{row['runs']} {row['of']}",
                "valid": row["valid"],
                "cells": [_cell(*each) for each in cells.items()],
                "differences": []
                if is_ours or table["ours"] is None
                else [_difference(*each) for each in cells.items()],
            }
        )
    return lines


def _cell(name: str, cell: Record) -> str:
    """Return "74.61 ± 0.40* [73.10, 76.00]": mean, standard deviation between runs, mark, interval of the mean."""
    mean, column = cell["mean"], COLUMNS[name]
    if mean["value"] is None:
        return "N/A"
    text = span(mean, column.digits, column.factor)
    spread = "" if cell["sd"] is None else f" ± {column.factor * cell['sd']:.{column.digits}f}"
    value, space, interval = text.partition(" ")
    return f"{value}{spread}{cell['mark']}{space}{interval}"


def _difference(name: str, cell: Record) -> str:
    difference, column = cell["difference"], COLUMNS[name]
    if difference["value"] is None:
        return "N/A"
    p = cell["p_adjusted"]
    test = "no p-value" if p is None else f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"
    return f"{span(difference, column.digits, column.factor)}, {test}"


def reasons(table: Record) -> dict[str, list[str]]:
    """Return why cells and tests are N/A → which judge's which."""
    gaps = []
    for row in table["rows"]:
        for name, cell in row["cells"].items():
            label = COLUMNS[name].label
            if cell["mean"]["value"] is None:
                gaps.append((cell["mean"]["reason"], row["judge"], label))
            elif "difference" in cell and cell["p"] is None:
                gaps.append((cell["difference"].get("reason", "no p-value"), row["judge"], f"the test of {label}"))
    return by_reason(gaps)


def legend(result: Record, teacher: str | None) -> list[str]:
    """Return the sentences that explain the table, in the order in which a reader asks."""
    table = result["table2"]
    lines = [
        f"All figures are from {SOURCES[table['scores']]}; accuracies and BERTScore in per cent.",
        "Each cell is the mean over the judge's runs ± the standard deviation (n − 1) between them, with the 95 % interval of "
        "the mean over cases. Every run is scored by itself. With one run there is no standard deviation.",
        "An invalid or missing verdict of a run is wrong in its accuracies, and left out of its correlations.",
    ]
    if teacher is not None and set(RATIONALES) & set(table["columns"]):
        lines.append(
            f"BERTScore and BARTScore measure how similar a rationale is to {teacher}'s on the same responses, not how good it "
            "is. Of several rationales of the teacher the most similar one counts."
        )
    cells = [cell for row in table["rows"] for cell in row["cells"].values()]
    if any(cell["mean"].get("approximate") for cell in cells):
        lines.append("There are fewer than 50 cases: intervals and p-values are approximate.")
    if (ours := table["ours"]) is not None:
        lines.append(
            f"In this table * is p < 0.001, † p < 0.01, § p < 0.05. For {ours}: the correlation with people differs from 0, "
            f"not adjusted. For the other judges: the figure differs from that of {ours}, adjusted within the column (Holm)."
        )
        lines.append(
            "The tests are t-tests, two-sided and paired: both judges on the responses, pairs and cases on which both have a "
            "value in every run. A correlation has no value per case, and the pairs of one case depend on one another, so that "
            "the standard error of every difference is that of resampled cases. The runs are held fixed: the standard "
            "deviation shows how much they differ."
        )
    lines += _reliability(result["people"])
    return lines


def _reliability(people: Record) -> list[str]:
    """Return the agreement among the raters, as in the caption of Table 2."""
    if not people.get("reliability"):
        return [f"The agreement among the raters is not known: {people['reason']}."]
    criterion = "mean of the criteria" if "mean of the criteria" in people["reliability"] else people["criteria"][0]
    figures = (f"{name} {span(each)}" for name, each in people["reliability"][criterion].items())
    raters = f"{len(people['annotators'])} raters ({people['raters']})"
    return [f"Agreement among {raters}, {criterion}: {', '.join(figures)}."]


def sentences(table: Record) -> list[str]:
    """Say, for every column, which judges differ from ours at p < 0.05, adjusted."""
    lines, ours = [], table["ours"]
    for name in table["columns"] if ours is not None else ():
        sides: dict[str, list[str]] = {"above": [], "below": [], "not clearly different from": []}
        for row in table["rows"]:
            cell = row["cells"][name]
            if row["judge"] != ours and cell["p_adjusted"] is not None:
                clear = "below" if cell["difference"]["value"] > 0 else "above"
                side = clear if cell["p_adjusted"] < 0.05 else "not clearly different from"
                sides[side].append(row["judge"])
        if parts := [f"{side} {', '.join(judges)}" for side, judges in sides.items() if judges]:
            lines.append(f"On {COLUMNS[name].label}, {ours} is {'; '.join(parts)}.")
    return lines
