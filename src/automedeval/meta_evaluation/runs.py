"""Summarise judges of one kind: several trainings of one judge, and the judges of introspection rounds.

The judge of round 0 comes from the last curriculum stage (paper Tables 3 and 5). The forecast is of triple accuracy, the
paper's Accuracy triple, which its Appendix F models.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import stdev
from typing import Any

from automedeval.records import RecordError
from automedeval.stats import bootstrap
from automedeval.stats.growth_curve import LEAST_ROUNDS, fit

TRAINING_MEASURES = ("concordance", "pairwise_accuracy", "triple_accuracy")
ROUND_MEASURES = ("triple_accuracy", "pairwise_accuracy")
SCORES = {
    "own": "",
    "expected": "_expected",
}  # the scores or choices that measures are from → end of the measures' names


def _scores_of_all(records: Sequence[dict[str, Any]], measure: str) -> str:
    """Return the first of `SCORES` from which every record has a measure: measures of different scores do not compare."""
    known = {scores: [each[measure + end].value for each in records] for scores, end in SCORES.items()}
    return next((scores for scores, values in known.items() if None not in values), "own")


def repeated(names: Sequence[str]) -> dict[str, list[str]]:
    """Return name → the names of its trainings (NAME, NAME-run2, …), in order; names with one training are left out."""
    runs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        found = re.fullmatch(r"(.+)-run(\d+)", name)
        if found and found[1] in names:
            runs[found[1]].append((int(found[2]), name))
    return {name: [name, *(run for _, run in sorted(later))] for name, later in runs.items()}


def average_runs(judges: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a line per judge that was trained several times, in the order of the judges.

    Args:
        judges: the judges' figures by `meta_evaluate`, as `Estimate` from one bootstrap.

    Returns:
        "judge"; "names" of its trainings; "scores", own or expected, that the figures are from; per measure "mean" with its
        interval over cases, and "spread", the standard deviation between trainings, None where one has no figure.
    """
    table = []
    for name, runs in repeated(list(judges)).items():
        records = [judges[run] for run in runs]
        scores = _scores_of_all(records, "concordance")
        line: dict[str, Any] = {"judge": name, "names": runs, "scores": scores}
        for measure in TRAINING_MEASURES:
            figures = [each[measure + SCORES[scores]] for each in records]
            known = all(figure.value is not None for figure in figures)
            spread = stdev(figure.value for figure in figures) if known else None
            line[measure] = {"mean": bootstrap.average(figures), "spread": spread}
        table.append(line)
    return table


def check_rounds(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise RecordError for a name of `--rounds` that no judge has, or that is given twice."""
    for number, name in enumerate(names):
        if name not in known:
            raise RecordError(f"--rounds: no judge is called {name!r}; there are {', '.join(known)}")
        if name in names[:number]:
            raise RecordError(f"--rounds: {name!r} is given twice: rounds {names.index(name)} and {number}")


def follow_rounds(judges: dict[str, dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the accuracies of rounds 0, 1, 2, … and a forecast for further rounds.

    Args:
        judges: as in `average_runs`.
        names: the judges in the order of their rounds; see `check_rounds`.

    Returns:
        "names"; "scores", own or expected, that the accuracies are from; "values", the triple accuracies; "table", a line
        per round with both accuracies and their change against the round before; "forecast".
    """
    records = [judges[name] for name in names]
    scores = _scores_of_all(records, "triple_accuracy")
    table: list[dict[str, Any]] = []
    for number, (name, record) in enumerate(zip(names, records)):
        line = {measure: record[measure + SCORES[scores]] for measure in ROUND_MEASURES}
        change = {each: bootstrap.difference(line[each], table[-1][each]) for each in ROUND_MEASURES if table}
        table.append({"round": number, "judge": name, **line, "change": change or None})
    values = [line["triple_accuracy"].value for line in table]
    forecast = fit(values).to_dict()
    if None in values and len(values) >= LEAST_ROUNDS:
        forecast["reason"] += f": {table[values.index(None)]['triple_accuracy'].reason}"
    return {"names": list(names), "scores": scores, "values": values, "table": table, "forecast": forecast}
