"""The page of a panel over time: one point for each check, after what was frozen."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from automedeval.panel.comparison import FIGURES, RESULTS, words
from automedeval.reports import charts
from automedeval.reports.charts import Figure
from automedeval.reports.page import Table, render_report
from automedeval.reports.text import ends, number, shown


def illustrate(checks: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """Yield the figures over time; the first point is the frozen judge."""
    titles = {
        "Agreement with physicians": {"agreement": "concordance"},
        "Planted dangers": {"dangers": "dangers found", "alarms": "false alarms on clean twins"},
        "Valid and changed": {"valid": "valid verdicts", "changed": "changed scores", "abstained": "abstained"},
    }
    names = [f"frozen {checks[0]['frozen']}", *(each["date"] for each in checks)]
    undefined = {"value": None, "low": None, "high": None}
    for title, lines in titles.items():
        drawn = {}
        for key, label in lines.items():
            figures = [each["figures"].get(key) or each.get(key) for each in checks]
            sides = [figure and figure.get("today", figure) for figure in figures]
            frozen = figures[-1] and figures[-1].get("frozen", {**undefined, "value": 0.0})  # no score has changed yet
            if any(sides):
                drawn[label] = [each or undefined for each in (frozen, *sides)]
        if drawn:
            rows = [
                (name, label, *ends(points[at])) for label, points in drawn.items() for at, name in enumerate(names)
            ]
            text = "One point for each check, with 95 % intervals over cases."
            yield Figure(title, text, partial(charts.series, names, drawn), ("check", "", "value", "low", "high"), rows)


def _latest(check: Mapping[str, Any]) -> Table:
    rows = []
    for name, figure in check["figures"].items():
        bounds = [number(figure[end]) for end in ("difference", "low", "high")]
        result = RESULTS[figure["status"]]
        rows.append((FIGURES[name], *(shown(figure[side], 3) for side in ("frozen", "today")), *bounds, result))
    return ("figure", "frozen", "today", "difference", "at least", "at most", "result"), rows


def _over_time(checks: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            each["date"],
            each["result"],
            *(shown(each["figures"].get(name, {}).get("today"), 3) for name in FIGURES),
            shown(each["changed"], 3),
            f"{each['judge']['name']} ({each['judge']['settings']})",
        )
        for each in reversed(checks)
    ]
    return ("check", "result", *FIGURES.values(), "changed scores", "judge (settings)"), rows


def sentences(check: Mapping[str, Any]) -> list[str]:
    """Return a check in words: what it decides, its figures, and what is known to have changed of the judge."""
    known = "; ".join(check["identity_changed"]) or "the same fingerprints as when it was frozen"
    return [*words(check), f"{check['judge']['name']}: {known}"]


def render(checks: Sequence[Mapping[str, Any]], title: str) -> dict[str, str]:
    """Render the checks of a panel, the oldest first, as {"panel.html": text, "panel.md": text}."""
    last = checks[-1]
    return render_report(
        "automedeval.panel",
        "panel",
        title,
        words=sentences(last),
        notes=last["notes"],
        figures=illustrate(checks),
        settings=last["settings"],
        main_table=_latest(last),
        more_tables=[_over_time(checks)],
        latest=_latest(last),
        check=last,
    )
