"""What the report says of introspection rounds: the accuracies of their judges, the changes, and the forecast of further ones.

Round 0 is the judge after the last curriculum stage (paper Tables 3 and 5). The forecast is of listwise accuracy, the paper's
Accuracy triple, which its Appendix F models.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import stdev
from typing import Any

from automedeval.records import RecordError
from automedeval.stats import bootstrap
from automedeval.stats.growth_curve import LEAST_ROUNDS, fit

MEASURES_OF_RUNS = ("concordance", "pairwise_accuracy", "listwise_accuracy")
MEASURES_OF_ROUNDS = ("listwise_accuracy", "pairwise_accuracy")
ENDS = ("", "_expected")  # from own scores or choices; from expected scores


def repeated(names: Sequence[str]) -> dict[str, list[str]]:
    """Return name → the names of its runs, the first run first; a name without a second run has no entry."""
    runs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        told = re.fullmatch(r"(.+)-run(\d+)", name)
        if told and told[1] in names:
            runs[told[1]].append((int(told[2]), name))
    return {name: [name, *(run for _, run in sorted(later))] for name, later in runs.items()}


def average_runs(judges: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a line per judge that was trained several times, in the order of the judges.

    Args:
        judges: what `meta_evaluate` found of every judge, figures as `Estimate` from one bootstrap.

    Returns:
        "judge"; "names" of its runs; "scores", own or expected, that the figures are from; per measure "mean" with its interval
        over cases, and "spread", the standard deviation between runs, None where a run has no figure.
    """
    table = []
    for name, runs in repeated(list(judges)).items():
        records = [judges[run] for run in runs]
        complete = [end for end in ENDS if all(each["concordance" + end].value is not None for each in records)]
        end = complete[0] if complete else ""
        line: dict[str, Any] = {"judge": name, "names": runs, "scores": "expected" if end else "own"}
        for measure in MEASURES_OF_RUNS:
            figures = [each[measure + end] for each in records]
            known = all(figure.value is not None for figure in figures)
            spread = stdev(figure.value for figure in figures) if known else None
            line[measure] = {"mean": bootstrap.average(figures), "spread": spread}
        table.append(line)
    return table


def check_rounds(names: Sequence[str], known: Sequence[str]) -> None:
    """Check that every round has a judge of its own.

    Raises:
        RecordError: a name that no judge has, or that stands twice.
    """
    for number, name in enumerate(names):
        if name not in known:
            raise RecordError(f"--rounds: no judge is called {name!r}; there are {', '.join(known)}")
        if name in names[:number]:
            raise RecordError(f"--rounds: {name!r} stands twice: rounds {names.index(name)} and {number}")


def follow_rounds(judges: dict[str, dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Lay out the accuracies of rounds 0, 1, 2, …, and fit the forecast to them.

    Args:
        judges: what `meta_evaluate` found of every judge, figures as `Estimate` from one bootstrap.
        names: the judges in the order of their rounds; see `check_rounds`.

    Returns:
        "names"; "scores", own or expected, that the accuracies are from; "values", the listwise accuracies; "table", a line
        per round with both accuracies and their change against the round before; "forecast".
    """
    records = [judges[name] for name in names]
    # One kind for all rounds: accuracies from own and from expected scores are not comparable.
    kinds = {"own": "", "expected": "_expected"}
    complete = [
        kind
        for kind, end in kinds.items()
        if all(record[f"listwise_accuracy{end}"].value is not None for record in records)
    ]
    scores = complete[0] if complete else "own"
    table: list[dict[str, Any]] = []
    for number, (name, record) in enumerate(zip(names, records)):
        line: dict[str, Any] = {"round": number, "judge": name}
        line |= {measure: record[measure + kinds[scores]] for measure in MEASURES_OF_ROUNDS}
        line["change"] = (
            {measure: bootstrap.difference(line[measure], table[-1][measure]) for measure in MEASURES_OF_ROUNDS}
            if table
            else None
        )
        table.append(line)
    values = [line["listwise_accuracy"].value for line in table]
    forecast = fit(values).to_dict()
    if None in values and len(values) >= LEAST_ROUNDS:
        forecast["reason"] += f": {table[values.index(None)]['listwise_accuracy'].reason}"
    return {"names": list(names), "scores": scores, "values": values, "table": table, "forecast": forecast}
