"""Write the report of a meta-evaluation, a self-contained HTML page with its tables and cases, and a short Markdown summary."""

from collections.abc import Sequence
from typing import Any

from automedeval.meta_evaluation.agreement.candidates import standing
from automedeval.meta_evaluation.agreement.judge_facts import MEASURES
from automedeval.meta_evaluation.agreement.paper_table import COLUMNS, gaps_in_words, lines_in_words
from automedeval.meta_evaluation.facts import called
from automedeval.meta_evaluation.page import PageTable, render_report
from automedeval.meta_evaluation.report import text
from automedeval.meta_evaluation.report.figures import illustrate
from automedeval.records.text import percent


def report_page(
    result: dict[str, Any],
    title: str,
    grid: dict[str, Any],
    rate: Sequence[str] = (),
    scale: tuple[float, float] | None = None,
    harm: Sequence[str] = (),
) -> dict[str, str]:
    """Render a result as {"report.html": text, "report.md": text}.

    Args:
        rate: the commands with which people rate cases; empty where enough are rated.
        scale: that of the main judge's scores.
        harm: the sentences on harm but the first, which the facts have.
    """
    records = dict(result["judges"]) if "people" in result else {}
    if ceiling := result.get("people", {}).get("ceiling"):
        records["one rater against the others"] = ceiling | {"kind": "people", "valid_rate": None}
    judges, table2, summary = text.real_judges(result), None, list[PageTable]()
    if table := result.get("table2"):
        lines, head = lines_in_words(table), [COLUMNS[name].label for name in table["columns"]]
        table2 = {"lines": lines, "reasons": gaps_in_words(table), "head": head}
        rows = [[line["judge"], line["runs"], percent(line["valid"]), *line["cells"]] for line in lines]
        summary = [PageTable(["evaluation model", "runs", "valid", *head], rows)] * (len(rows) > 1)
    return render_report(
        "report", title, words=text.report_sentences(result, scale),
        facts=text.answer(result), further=[*text.further(result), *harm], commands=rate, bars=text.bars(result, scale),
        links=text.read_first(result), tables=text.tables(result), summary=summary, notes=result["notes"],
        figures=illustrate(result),
        settings=result["settings"], scripts=("report.js", "grid.js"), result=result, judges=judges,
        standing=standing(result["models"][result["main_judge"]["name"]]),
        main=called(result["main_judge"]["name"]), table2=table2,
        gaps=text.gaps(result), records=records, labels=MEASURES, **grid,
    )  # fmt: skip
