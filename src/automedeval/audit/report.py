"""Write an audit's table as an HTML page and a short Markdown summary."""

from automedeval.meta_evaluation.page import PageTable, Said, render_report, say
from automedeval.records import JsonObject
from automedeval.records.text import UNDEFINED, span

HEAD = ("measure", "outcome", "share", "shift in steps", "should be", "of")


def render(result: JsonObject) -> dict[str, str]:
    """Render a result, what `audit.json` holds, as {"audit.html": text, "audit.md": text}."""
    rows = []
    for row in result["perturbations"]:
        share, shift = row["share"], row["shift"]
        outcome, limit = row["outcome"] or UNDEFINED, row["limit"] or UNDEFINED
        count = share["n"] or shift["n"]
        rows.append((row["what"], outcome, span(share, 3), span(shift), limit, count))
    notes = [*say("audit_gaps", result=result), *result["notes"]]
    return render_report(
        "audit", f"Audit of {result['judge']['name']}", Said(say("audit", result=result), notes),
        settings=result["settings"], tables=[PageTable(HEAD, rows)], room="automedeval.audit",
        result=result,
    )  # fmt: skip
