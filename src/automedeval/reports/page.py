"""Fill the templates of reports and cards."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from automedeval.reports import text

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_FILTERS = (text.cell, text.number, text.p_value, text.percent, text.shown)


def environment(room: str) -> jinja2.Environment:
    """Return the environment of a room's templates: HTML is escaped, and a name that is not there is an error.

    Args:
        room: the package whose folder `templates` holds them; "reports/…" names one of the templates that rooms share.
    """
    shared = jinja2.PrefixLoader({"reports": jinja2.PackageLoader("automedeval.reports")})
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(room), shared]),
        autoescape=lambda name: ".html" in (name or ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {each.__name__: each for each in _FILTERS}
    return made


def render_twins(
    room: str,
    name: str,
    title: str,
    *,
    words: Iterable[str],
    notes: Iterable[str],
    figures: Iterable[Any],
    settings: Mapping[str, Any],
    script: str | None = None,
    **context: Any,
) -> dict[str, str]:
    """Render a report as one self-contained HTML page and as its Markdown twin.

    Args:
        room: the package whose `templates` hold `NAME.html.jinja` and `NAME.md.jinja`, which extend the shared pages.
        words: the results in sentences.
        notes: gaps and assumptions.
        figures: the `charts.Figure`s.
        settings: how the results were made: "command", "version" and "commit".
        script: the file of the HTML page's script, the only one that the page allows; None: no script.
        context: what else the room's templates name.

    Returns:
        {"NAME.html": text, "NAME.md": text}
    """
    made = environment(room)
    # Such a character in a model's name would turn the rest of the line round.
    made.finalize = lambda value: _BIDI.sub("", value) if type(value) is str else value
    style = resources.files("automedeval.reports").joinpath("templates/report.css").read_text(encoding="utf-8")
    source = made.loader.get_source(made, script)[0] if script else ""
    script_hash = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    context |= {"title": title, "words": list(words), "notes": list(notes), "figures": list(figures)}
    context |= {"settings": settings, "style": Markup(style), "script": Markup(source), "script_hash": script_hash}
    files = (f"{name}.html", f"{name}.md")
    return {file: made.get_template(f"{file}.jinja").render(context).rstrip() + "\n" for file in files}
