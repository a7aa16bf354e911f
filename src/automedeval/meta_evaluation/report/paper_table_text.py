"""Put the table in the form of the paper's Table 2 into words: its cells, its legend, and the paper's own figures beside."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from automedeval.meta_evaluation.agreement.paper_table import RATIONALES
from automedeval.reports.text import p_value, span

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


class Line(NamedTuple):
    """One judge as the report shows it: its runs in words, and a cell and a difference for every column."""

    judge: str
    ours: bool
    runs: str
    cells: list[str]
    differences: list[str]
    valid: float


def lines_of(result: Record) -> list[Line]:
    """Return the lines of the table."""
    table, lines = result["table2"], []
    for row in table["rows"]:
        cells = {name: row["cells"][name] for name in table["columns"]}
        ours = row["judge"] == table["ours"]
        differences = [] if ours or table["ours"] is None else [_difference(*each) for each in cells.items()]
        runs = "one run" if row["runs"] == 1 else f"{row['runs']} {row['of']}"
        lines.append(
            Line(row["judge"], ours, runs, [_cell(*each) for each in cells.items()], differences, row["valid"])
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


def reasons(result: Record) -> dict[str, list[str]]:
    """Return why cells and tests are N/A → which judge's which."""
    found: dict[str, list[str]] = {}
    for row in result["table2"]["rows"]:
        own: dict[str, list[str]] = {}
        for name, cell in row["cells"].items():
            label = COLUMNS[name].label
            if cell["mean"]["value"] is None:
                own.setdefault(cell["mean"]["reason"], []).append(label)
            elif "difference" in cell and cell["p"] is None:
                own.setdefault(cell["difference"].get("reason", "no p-value"), []).append(f"the test of {label}")
        for reason, labels in own.items():
            found.setdefault(reason, []).append(f"{row['judge']}, {', '.join(labels)}")
    return found


def fewer(result: Record) -> list[str]:
    """Return, for each judge whose figures were tested on a part of what its own cells are from, on how many."""
    found = []
    for row in result["table2"]["rows"]:
        parts: dict[int, list[str]] = {}
        for name, cell in row["cells"].items():
            if cell.get("p") is not None and "difference" in cell and cell["difference"]["n"] < cell["mean"]["n"]:
                parts.setdefault(cell["difference"]["n"], []).append(COLUMNS[name].label)
        words = "; ".join(f"{', '.join(labels)} on {count}" for count, labels in parts.items())
        found += [f"{row['judge']} ({words})"] if words else []
    return found


def legend(result: Record, teacher: str | None) -> list[str]:
    """Return the sentences that explain the table, in the order in which a reader asks."""
    table = result["table2"]
    said = [
        f"All figures are from {SOURCES[table['scores']]}; accuracies and BERTScore in per cent.",
        "Each cell is the mean over the judge's runs ± the standard deviation (n − 1) between them, with the 95 % interval of "
        "the mean over cases. Every run is scored by itself. With one run there is no standard deviation.",
        "An invalid or missing verdict of a run is wrong in its accuracies, and left out of its correlations.",
    ]
    if teacher is not None and set(RATIONALES) & set(table["columns"]):
        said.append(
            f"BERTScore and BARTScore measure how similar a rationale is to {teacher}'s on the same responses, not how good it "
            "is. Of several rationales of the teacher the most similar one counts."
        )
    cells = [cell for row in table["rows"] for cell in row["cells"].values()]
    if any(cell["mean"].get("approximate") for cell in cells):
        said.append("There are fewer than 50 cases: intervals and p-values are approximate.")
    if (ours := table["ours"]) is not None:
        said.append(
            f"In this table * is p < 0.001, † p < 0.01, § p < 0.05. For {ours}: the correlation with people differs from 0, "
            f"not adjusted. For the other judges: the figure differs from that of {ours}, adjusted within the column (Holm)."
        )
        said.append(
            "The tests are t-tests, two-sided and paired: both judges on the responses, pairs and cases on which both have a "
            "value in every run. A correlation has no value per case, and the pairs of one case depend on one another, so that "
            "the standard error of every difference is that of resampled cases. The runs are held fixed: the standard "
            "deviation shows how much they differ."
        )
    said += _reliability(result["people"])
    return said


def _reliability(people: Record) -> list[str]:
    """Return the agreement among the raters, as in the caption of Table 2."""
    if not people.get("reliability"):
        return [f"The agreement among the raters is not known: {people['reason']}."]
    criterion = "mean of the criteria" if "mean of the criteria" in people["reliability"] else people["criteria"][0]
    figures = (f"{name} {span(each)}" for name, each in people["reliability"][criterion].items())
    raters = f"{len(people['annotators'])} raters ({people['raters']})"
    return [f"Agreement among {raters}, {criterion}: {', '.join(figures)}."]


def sentences(table: Record) -> Sequence[str]:
    """Say, for every column, which judges differ from ours at p < 0.05, adjusted."""
    found, ours = [], table["ours"]
    others = [row for row in table["rows"] if row["judge"] != ours]
    for name in table["columns"] if ours is not None else ():
        tested = [(row["judge"], row["cells"][name]) for row in others if row["cells"][name]["p_adjusted"] is not None]
        clear = [(judge, cell["difference"]["value"]) for judge, cell in tested if cell["p_adjusted"] < 0.05]
        below = [judge for judge, value in clear if value < 0]
        above = [judge for judge, value in clear if value > 0]
        if not tested:
            continue
        parts = [f"above {', '.join(below)}"] if below else []
        parts += [f"below {', '.join(above)}"] if above else []
        if rest := len(tested) - len(below) - len(above):
            parts.append(f"not clearly different from {rest} of {len(tested)} judges")
        found.append(f"On {COLUMNS[name].label}, {ours} is {'; '.join(parts)}.")
    return found
