"""Write an audit's table in sentences, as an HTML page and a short Markdown summary."""

from collections.abc import Iterator

from automedeval.audit.table import FAILED, SECTIONS, UNKNOWN
from automedeval.meta_evaluation.page import PageTable, render_report
from automedeval.records import JsonObject
from automedeval.records.text import UNDEFINED, p_value, percent, span

HEAD = ("measure", "outcome", "share", "shift in steps", "should be", "of")


def summary(result: JsonObject) -> list[str]:
    """Return sentences on whether the judge passes, what it fails, and what was not measured."""
    rows = [row for row in result["perturbations"] if row["outcome"] is not None]
    failed = [row for row in rows if row["outcome"] == FAILED]
    unknown = [row["what"] for row in rows if row["outcome"] == UNKNOWN]
    name, measured = result["judge"]["name"], len(rows) - len(unknown)
    if result["passes"] is None:
        sentences = [f"{name} neither passes nor fails: nothing with a limit was measured."]
    else:
        left = (
            f", {len(unknown)} {'was' if len(unknown) == 1 else 'were'} not measured"
            if unknown
            else ""
        )
        met = f"{measured - len(failed)} of {measured} limits are kept{left}"
        sentences = [f"{name} {'passes' if result['passes'] else 'does not pass'}: {met}."]
    for row in failed:
        moved = f", shift {span(row['shift'])}{' (' + row['shift']['kind'] + ')' if row['shift'].get('kind') else ''}"
        figures = f"{span(row['share'], 3)}{moved if 'shift' in row['limit'] else ''}"
        why = f" ({row['why']})" if row["why"] else ""
        sentences.append(
            f"{row['what'][:1].upper()}{row['what'][1:]}: {figures}, should be {row['limit']}{why}."
        )
    if unknown:
        sentences.append(f"Not measured: {'; '.join(unknown)}.")
    return sentences


def lines(result: JsonObject, groups: bool = False) -> Iterator[tuple[object, ...]]:
    """Yield the lines of the table: of each perturbation and, with `groups`, of each of its groups, whose name is indented."""
    for row in result["perturbations"]:
        yield (row["what"], row["outcome"] or UNDEFINED, *_cells(row, row["limit"] or UNDEFINED))
        for section in SECTIONS if groups else ():
            kinds = row[section].items()
            for name, each in (
                kinds if section != "kinds" or len(kinds) > 1 else ()
            ):  # the only kind is the line above
                p = f"p {p_value(each['p_adjusted'])}" if "p_adjusted" in each else UNDEFINED
                harmless = "harmless, " if section == "controls" else ""
                yield (f"· {harmless}{name}", "", *_cells(each, p))


def _cells(row: JsonObject, limit: str) -> tuple[str, str, str, int]:
    return span(row["share"], 3), span(row["shift"]), limit, row["share"]["n"] or row["shift"]["n"]


def gaps(result: JsonObject) -> list[str]:
    """Return what could not be measured, and why, and of what changes verdicts could often not be read."""
    found = []
    for row in result["perturbations"]:
        if row["outcome"] == UNKNOWN:
            found.append(f"{row['name']}: {row['share'].get('reason', '')}")
        if row["invalid"]["value"]:
            lost = percent(row["invalid"]["value"])
            found.append(f"{row['name']}: {lost} cannot be read after the change, and are left out")
    return found


def render(result: JsonObject) -> dict[str, str]:
    """Render a result, what `audit.json` holds, as {"audit.html": text, "audit.md": text}."""
    return render_report(
        "audit", f"Audit of {result['judge']['name']}", words=summary(result),
        notes=[*gaps(result), *result["notes"]], settings=result["settings"],
        tables=[PageTable(HEAD, list(lines(result)))], room="automedeval.audit", head=HEAD,
        rows=list(lines(result, groups=True)), result=result,
    )  # fmt: skip
