"""Fill the templates of reports."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from automedeval.records import text
from automedeval.records.templates import environment

if TYPE_CHECKING:
    from automedeval.meta_evaluation.charts import Figure

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
SHOWN_CASES = 300  # cases with their texts on a page: more of them make it slow to open
Table = tuple[Sequence[str], Sequence[Sequence[object]]]  # the names of the columns, and the rows


def render_report(
    room: str,
    name: str,
    title: str,
    *,
    words: Iterable[str],
    notes: Iterable[str],
    figures: Iterable["Figure"],
    settings: Mapping[str, Any],
    main_table: Table,
    more_tables: Sequence[Table] = (),
    summary: Iterable[str] | None = None,
    scripts: Sequence[str] = (),
    **context: Any,
) -> dict[str, str]:
    """Render a report as one self-contained HTML page, and a short Markdown summary of it for a pull request.

    Args:
        room: the package whose `templates` hold `NAME.html.jinja`, which extends the shared page.
        words: the results in sentences.
        notes: gaps and assumptions.
        figures: the `charts.Figure`s.
        settings: how the results were made: "command", "version" and "commit".
        main_table: what the summary shows beside the sentences: the names of the columns, and the rows.
        more_tables: what both show after it.
        summary: the sentences of the summary; by default `words`.
        scripts: the files of the HTML page's script, the only one that the page allows.
        context: what else the room's template names.

    Returns:
        {"NAME.html": text, "NAME.md": text}
    """
    made = environment(room, report=jinja2.PackageLoader("automedeval.meta_evaluation"))
    # Such a character in a model's name would turn the rest of the line round.
    made.finalize = lambda value: _BIDI.sub("", value) if type(value) is str else value
    style = _template_file("automedeval.meta_evaluation", "report.css")
    source = "".join(_template_file(room, each) for each in scripts)
    script_hash = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    context |= {"title": title, "words": list(words), "notes": list(notes), "figures": list(figures)}
    context |= {"settings": settings, "more_tables": more_tables}
    context |= {"style": Markup(style), "script": Markup(source), "script_hash": script_hash}
    page = f"{name}.html"
    sentences = [*(context["words"] if summary is None else summary), *(f"note: {note}" for note in context["notes"])]
    return {
        page: made.get_template(f"{page}.jinja").render(context).rstrip() + "\n",
        f"{name}.md": markdown_summary(title, sentences, [main_table, *more_tables], page),
    }


def _template_file(room: str, name: str) -> str:
    return resources.files(room).joinpath("templates", name).read_text(encoding="utf-8")


def markdown_summary(title: str, sentences: Iterable[str], tables: Iterable[Table], page: str) -> str:
    """Return a report's sentences and tables in Markdown, with a link to the page that has everything."""
    lines = [f"# {text.cell(title)}", "", "Not for clinical use: for research on medical language models.", ""]
    lines += [f"- {text.cell(sentence)}" for sentence in sentences]
    for head, rows in tables:
        if rows:
            above, *below = (f"| {' | '.join(map(text.cell, row))} |" for row in (head, *rows))
            lines += ["", above, "|---" * len(head) + "|", *below]
    lines += ["", "Intervals: 95 %; of fewer than 50 cases they are approximate.", ""]
    return "\n".join([*lines, f"Figures, every table, gaps and assumptions: [{page}]({page})."]) + "\n"
