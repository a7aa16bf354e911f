"""The figures of the meta-evaluation report: what of the result goes into each, as shares that the page draws as bars."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from automedeval.meta_evaluation.agreement.ratings import OUTCOMES


class Figure(NamedTuple):
    """Numbers of several kinds, drawn as their shares; `of` says what has the names of the rows, `labels` are the kinds."""

    title: str
    text: str
    of: str
    labels: Sequence[str]
    rows: Sequence[Sequence[Any]]  # a name, and a number of each kind


def illustrate(result: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield every figure there is data for."""
    tables = {line: result["models"].get(line, {}) for line in ("people", result["main_judge"]["name"])}
    outcomes = sorted(
        [f"{' : '.join(pair['pair'])}, {line}", *(pair[label]["value"] for label in ("win", "tie", "loss"))]
        for line, table in tables.items()
        for pair in (table.get("pairs", ()) if len(table.get("models", ())) <= 5 else ())
    )
    if outcomes:
        text = "Share of cases that the first model of a pair wins, ties and loses (the paper's Figure 4)."
        yield Figure("Wins, ties and losses", text, "models, judge", ("win", "tie", "loss"), outcomes)
    for judge, criteria in result.get("verdict_ratings", {}).items():
        text = "How often people gave the verdicts each score, per criterion (the paper's Figure 5a)."
        steps = sorted({score for record in criteria.values() for score in record["counts"]}, key=float)
        rows = [[name, *(record["counts"].get(score, 0) for score in steps)] for name, record in criteria.items()]
        yield Figure(f"People's scores of {judge}'s verdicts", text, "criterion", steps, rows)
    for compared in result.get("preferences", []):
        first, second = compared["judges"]
        rows = []
        for criterion, record in compared["criteria"].items():
            rows.append([criterion, *(record[outcome]["value"] for outcome in OUTCOMES)])
            rows += [[f"{criterion}, {name}", *shares] for name, shares in record["annotators"].items()]
        text = (
            "Share of people's choices for either judge's verdict and for a tie, per criterion, and of each annotator "
        )
        text += "(the paper's Figure 5b)."
        yield Figure(f"Preference between {first} and {second}", text, "choices", (first, "tie", second), rows)
