"""What the report says of introspection rounds: the accuracies of their judges, the changes, and the forecast of further ones.

Round 0 is the judge after the last curriculum stage (paper Tables 3 and 5). The forecast is of listwise accuracy, the paper's
Accuracy triple, which its Appendix F models.
"""

from collections.abc import Sequence
from typing import Any

from automedeval import resampling
from automedeval.forecast import LEAST_ROUNDS, fit
from automedeval.records import RecordError

MEASURES = ("listwise_accuracy", "pairwise_accuracy")


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
        line |= {measure: record[measure + kinds[scores]] for measure in MEASURES}
        line["change"] = (
            {measure: resampling.difference(line[measure], table[-1][measure]) for measure in MEASURES}
            if table
            else None
        )
        table.append(line)
    values = [line["listwise_accuracy"].value for line in table]
    forecast = fit(values).to_dict()
    if None in values and len(values) >= LEAST_ROUNDS:
        forecast["reason"] += f": {table[values.index(None)]['listwise_accuracy'].reason}"
    return {"names": list(names), "scores": scores, "values": values, "table": table, "forecast": forecast}
