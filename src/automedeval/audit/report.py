"""Write an audit's table in sentences, as an HTML page and a short Markdown summary."""

from collections.abc import Iterator

from automedeval.audit.table import FAILED, UNKNOWN
from automedeval.meta_evaluation.page import PageTable, Said, render_report
from automedeval.records import JsonObject
from automedeval.records.text import UNDEFINED, p_value, percent, span

HEAD = ("measure", "outcome", "share", "shift in steps", "should be", "of")


def summary(result: JsonObject) -> list[str]:
    """Return sentences on whether the judge passes, what it fails, and what was not measured."""
    rows = [row for row in result["perturbations"] if row["outcome"] is not None]
    failed = [row for row in rows if row["outcome"] == FAILED]
    unknown = [row["what"] for row in rows if row["outcome"] == UNKNOWN]
    name = result["judge"]["name"]
    told = f"{name} neither passes nor fails: nothing with a limit was measured."
    if result["passes"] is not None:
        measured = len(rows) - len(unknown)
        passes = "passes" if result["passes"] else "does not pass"
        told = f"{name} {passes}: {measured - len(failed)} of {measured} limits are kept."
    sentences = [told, *map(_failure, failed)]
    if unknown:
        sentences.append(f"Not measured: {'; '.join(unknown)}.")
    return sentences


def _failure(row: JsonObject) -> str:
    """Say what a row measured, what it should be, and why."""
    figures = span(row["share"], 3)
    if "shift" in row["limit"]:
        figures += f", shift {span(row['shift'])}"
        if kind := row["shift"].get("kind"):
            figures += f" ({kind})"
    why = f" ({row['why']})" if row["why"] else ""
    return f"{row['what'][:1].upper()}{row['what'][1:]}: {figures}, should be {row['limit']}{why}."


def lines(result: JsonObject, groups: bool = False) -> Iterator[tuple[object, ...]]:
    """Yield the lines of the table: of each perturbation and, with `groups`, of each of its groups, whose name is indented."""
    for row in result["perturbations"]:
        yield (row["what"], row["outcome"] or UNDEFINED, *_cells(row, row["limit"] or UNDEFINED))
        if groups and len(row["kinds"]) > 1:  # the only kind is the line above
            yield from _lines_of(row["kinds"], "· ")
        if groups:
            yield from _lines_of(row["controls"], "· harmless, ")


def _lines_of(kinds: JsonObject, before: str) -> Iterator[tuple[object, ...]]:
    """Yield the lines of a perturbation's groups, each name with something before it."""
    for name, figures in kinds.items():
        p = f"p {p_value(figures['p_adjusted'])}" if "p_adjusted" in figures else UNDEFINED
        yield (f"{before}{name}", "", *_cells(figures, p))


def _cells(row: JsonObject, limit: str) -> list[object]:
    count = row["share"]["n"] or row["shift"]["n"]
    return [span(row["share"], 3), span(row["shift"]), limit, count]


def gaps(result: JsonObject) -> list[str]:
    """Return what could not be measured, and why, and of what changes verdicts could often not be read."""
    reasons = []
    for row in result["perturbations"]:
        if row["outcome"] == UNKNOWN:
            reasons.append(f"{row['name']}: {row['share'].get('reason', '')}")
        if lost := row["invalid"]["value"]:
            reasons.append(
                f"{row['name']}: {percent(lost)} cannot be read after the change, and are left out"
            )
    return reasons


def render(result: JsonObject) -> dict[str, str]:
    """Render a result, what `audit.json` holds, as {"audit.html": text, "audit.md": text}."""
    return render_report(
        "audit", f"Audit of {result['judge']['name']}", Said(summary(result), [*gaps(result), *result["notes"]]),
        settings=result["settings"],
        tables=[PageTable(HEAD, list(lines(result)))], room="automedeval.audit", head=HEAD,
        rows=list(lines(result, groups=True)), result=result,
    )  # fmt: skip
