"""A check in words, and the page of a panel over time: one point for each check, after what was frozen."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from automedeval.panel.comparison import FIGURES, RESULTS
from automedeval.reports import charts
from automedeval.reports.charts import Figure
from automedeval.reports.page import render_report
from automedeval.reports.text import UNDEFINED, ends, in_a_row, number, shown
from automedeval.stats.gate import LOWER, NOT_LOWER, POWER

CHARTS = {
    "Agreement with physicians": ("agreement",),
    "Planted dangers": ("dangers", "alarms"),
    "Valid, abstained, changed": ("valid", "abstained", "changed"),
}
NOTHING = {"value": None, "low": None, "high": None}


def sentences(check: Mapping[str, Any]) -> list[str]:
    """Return a check in words: what it decides, its figures, and what is known to have changed of the judge."""
    figures, by, status = check["figures"], check["by"], check["status"]
    if status == NOT_LOWER:
        why = f"agreement with physicians is not lower by {by:g} or more, and no other figure is shown to be worse"
    elif status == LOWER:
        worse = [FIGURES[name] for name, figure in figures.items() if figure.get("status") == LOWER]
        why = f"{in_a_row(worse)} {'is' if len(worse) == 1 else 'are'} worse by more than {by:g}"
    elif figures["agreement"]["low"] is None:  # the gate has no bound, and can plan nothing
        why = "physicians must have put answers of at least two cases in an order"
    elif more := figures["agreement"]["more"]:
        why = f"about {more:,} more rated cases would tell, with a power of {POWER:.0%}"
    else:
        why = "no number of rated cases would tell"
    lines = [f"{check['result'].capitalize()} (exit status {status}): {why}"]
    for name, figure in figures.items():
        line = f"{FIGURES[name]}: {number(figure['today']['value'])} today, {number(figure['frozen']['value'])} frozen"
        if figure.get("low") is not None:
            line += f", difference {figure['difference']:+.3f} [{figure['low']:+.3f}, {figure['high']:+.3f}]"
        if "status" in figure:
            missing = f" (about {figure['more']:,} more)" if figure["more"] else ""
            line += f" on {figure['cases']} cases: {RESULTS[figure['status']]}{missing}"
        lines.append(line)
    changed = "; ".join(check["identity_changed"]) or "the same fingerprints as when it was frozen"
    return [*lines, f"{check['judge']['name']}: {changed}"]


def illustrate(checks: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """Yield the figures over time; the first point is the frozen judge."""
    last = checks[-1]["figures"]
    dates = [f"frozen {checks[-1]['frozen']}", *(each["date"] for each in checks)]
    text = "One point for each check, with 95 % intervals over cases."
    for title, names in CHARTS.items():
        lines = {
            FIGURES[name]: [
                last[name]["frozen"],
                *(each["figures"].get(name, {}).get("today", NOTHING) for each in checks),
            ]
            for name in names
            if name in last
        }
        rows = [(date, name, *ends(point)) for name, points in lines.items() for date, point in zip(dates, points)]
        if lines:
            yield Figure(title, text, partial(charts.series, dates, lines), ("check", "", "value", "low", "high"), rows)


def render(checks: Sequence[Mapping[str, Any]], title: str) -> dict[str, str]:
    """Render the checks of a panel, the oldest first, as {"panel.html": text, "panel.md": text}."""
    check = checks[-1]
    latest = [
        (
            FIGURES[name],
            *(shown(figure[side], 3) for side in ("frozen", "today")),
            *(number(figure.get(end)) for end in ("difference", "low", "high")),
            RESULTS.get(figure.get("status"), UNDEFINED),
        )
        for name, figure in check["figures"].items()
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
    main_table = ("figure", "frozen", "today", "difference", "at least", "at most", "result"), latest
    more_tables = [(("check", "result", *FIGURES.values(), "judge (settings)"), over_time)]
    return render_report(
        "automedeval.panel", "panel", title, words=sentences(check), notes=check["notes"], figures=illustrate(checks),
        settings=check["settings"], main_table=main_table, more_tables=more_tables, latest=main_table, check=check,
    )  # fmt: skip
