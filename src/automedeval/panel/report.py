"""The page of a panel over time: one point for each check, after what was frozen."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from automedeval.panel.comparison import FIGURES, RESULTS, words
from automedeval.reports import charts
from automedeval.reports.charts import Figure
from automedeval.reports.page import Table, render_report
from automedeval.reports.text import UNDEFINED, ends, number, shown

CHARTS = {
    "Agreement with physicians": ("agreement",),
    "Planted dangers": ("dangers", "alarms"),
    "Valid, abstained, changed": ("valid", "abstained", "changed"),
}
NOTHING = {"value": None, "low": None, "high": None}


def illustrate(checks: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """Yield the figures over time; the first point is the frozen judge."""
    dates = [f"frozen {checks[-1]['frozen']}", *(each["date"] for each in checks)]
    text = "One point for each check, with 95 % intervals over cases."
    for title, names in CHARTS.items():
        there = [name for name in names if name in checks[-1]["figures"]]
        lines = {
            FIGURES[name]: [
                checks[-1]["figures"][name]["frozen"],
                *(each["figures"].get(name, {}).get("today", NOTHING) for each in checks),
            ]
            for name in there
        }
        rows = [(date, name, *ends(points[at])) for name, points in lines.items() for at, date in enumerate(dates)]
        if there:
            yield Figure(title, text, partial(charts.series, dates, lines), ("check", "", "value", "low", "high"), rows)


def tables(checks: Sequence[Mapping[str, Any]]) -> tuple[Table, Table]:
    """Return the figures of the last check, and every check, the last one first."""
    last = [
        (
            FIGURES[name],
            *(shown(figure[side], 3) for side in ("frozen", "today")),
            *(number(figure.get(end)) for end in ("difference", "low", "high")),
            RESULTS.get(figure.get("status"), UNDEFINED),
        )
        for name, figure in checks[-1]["figures"].items()
    ]
    over_time = [
        (
            each["date"],
            each["result"],
            *(shown(each["figures"].get(name, {}).get("today"), 3) for name in FIGURES),
            f"{each['judge']['name']} ({each['judge']['settings']})",
        )
        for each in reversed(checks)
    ]
    head = ("figure", "frozen", "today", "difference", "at least", "at most", "result")
    return (head, last), (("check", "result", *FIGURES.values(), "judge (settings)"), over_time)


def sentences(check: Mapping[str, Any]) -> list[str]:
    """Return a check in words: what it decides, its figures, and what is known to have changed of the judge."""
    changed = "; ".join(check["identity_changed"]) or "the same fingerprints as when it was frozen"
    return [*words(check), f"{check['judge']['name']}: {changed}"]


def render(checks: Sequence[Mapping[str, Any]], title: str) -> dict[str, str]:
    """Render the checks of a panel, the oldest first, as {"panel.html": text, "panel.md": text}."""
    check = checks[-1]
    latest, over_time = tables(checks)
    return render_report(
        "automedeval.panel", "panel", title, words=sentences(check), notes=check["notes"], figures=illustrate(checks),
        settings=check["settings"], main_table=latest, more_tables=[over_time], latest=latest, check=check,
    )  # fmt: skip
