"""Write an audit's table as an HTML page and a short Markdown summary."""

from automedeval.meta_evaluation.page import Pages, PageTable, Said, render_report, say
from automedeval.records import JsonObject
from automedeval.records.text import UNDEFINED, span

HEAD = ("measure", "outcome", "share", "shift in steps", "should be", "of")


def summary(result: JsonObject) -> list[str]:
    """Return sentences on whether the judge passes, what it fails, and what was not measured."""
    judge = result["judge"]["name"]
    return say("audit", judge=judge, passes=result["passes"], rows=result["perturbations"])


def render(result: JsonObject) -> Pages:
    """Render a result, what `audit.json` holds, as {"audit.html": text, "audit.md": text}."""
    rows = []
    for row in result["perturbations"]:
        share = row["share"]
        shift = row["shift"]
        outcome = row["outcome"] or UNDEFINED
        limit = row["limit"] or UNDEFINED
        count = share["n"] or shift["n"]
        rows.append((row["what"], outcome, span(share, 3), span(shift), limit, count))
    notes = [*say("audit_gaps", rows=result["perturbations"]), *result["notes"]]
    return render_report(
        "audit", f"Audit of {result['judge']['name']}", Said(summary(result), notes),
        settings=result["settings"], tables=[PageTable(HEAD, rows)], room="automedeval.audit",
        result=result,
    )  # fmt: skip
