"""Put the table in the form of the paper's Table 2 into words: its cells, and why some are N/A."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from automedeval.records.text import by_reason, p_value, span

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


def lines_of(table: Record) -> list[dict[str, Any]]:
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
