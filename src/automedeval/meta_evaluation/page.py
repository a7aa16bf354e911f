"""Fill the templates of reports: one page and one summary for every command that reports."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from automedeval.records import JsonObject, text
from automedeval.records.journal import write_json, write_whole
from automedeval.records.templates import environment

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BEFORE_MARK = re.compile(r"\n(?=[.,:;])")
Pages = dict[str, str]  # the name of a file → its content
Scale = tuple[float, float] | None  # the lowest and the highest score; None: there are none
SHOWN_CASES = 300  # cases with their texts on a page: more of them make it slow to open


class PageTable(NamedTuple):
    """The names of the columns, and the rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


class Bars(NamedTuple):
    """A bar for each model: (its name, an estimate {"value", "low", "high"}, a remark), on a scale."""

    caption: str
    rows: Sequence[tuple[str, JsonObject, str]]
    scale: Scale = None  # None: shares from 0 to 1, shown in per cent


@dataclass(frozen=True)
class Said:
    """What a report says in sentences.

    Args:
        words: the results, the difference and its trust first.
        notes: gaps and assumptions.
        alert: which answers to read first: it stands before the words.
        facts: what is known of the judge, and how sure the result is: name → text.
        further: more results, which the page folds.
        commands: with which people rate cases.
    """

    words: list[str]
    notes: list[str]
    alert: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    further: list[str] = field(default_factory=list)
    commands: Sequence[str] = ()


def render_report(
    name: str,
    title: str,
    said: Said,
    *,
    room: str = "automedeval.meta_evaluation",
    tables: Sequence[PageTable],
    summary: Sequence[PageTable] = (),
    scripts: Sequence[str] = (),
    **context: Any,
) -> Pages:
    """Render a report as one self-contained HTML page, and a short Markdown summary of it for a pull request.

    The page begins with the first sentence, the bars and the cases; everything else is folded.

    Args:
        room: the package whose `templates` hold `NAME.html.jinja`, which extends the shared page.
        tables: the summary shows the first of them, the page those with a caption.
        summary: tables that the summary shows as well; the page has them by the room's template.
        scripts: the files of the HTML page's script, the only one that the page allows.
        context: `settings`, how the results were made ("command", "version" and "commit"), perhaps `bars`, and `links`,
            address on the page → words, of the cases to read first; and what else the room's template names.

    Returns:
        {"NAME.html": text, "NAME.md": text}
    """
    made = environment(room, report=jinja2.PackageLoader("automedeval.meta_evaluation"))
    # Such a character in a model's name would turn the rest of the line round.
    made.finalize = lambda value: _BIDI.sub("", value) if type(value) is str else value
    made.filters["with_code"] = _with_code
    templates = resources.files(room) / "templates"
    source = "".join((templates / script).read_text(encoding="utf-8") for script in scripts)
    script_hash = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    page = f"{name}.html"
    context = {
        "bars": None,
        "links": {},
        "figures": (),
        **context,
        **vars(said),
        "title": title,
        "page": page,
        "tables": tables,
        "summary": summary,
        "script": Markup(source),
        "script_hash": script_hash,
    }
    short = made.get_template("report/summary.md.jinja").render(context)
    return {
        page: made.get_template(f"{page}.jinja").render(context).rstrip() + "\n",
        f"{name}.md": f"{short}\n",
    }


@cache
def _sentences() -> jinja2.Environment:
    """Return the environment of the templates of sentences, which keeps those that it compiled."""
    made = environment("automedeval.meta_evaluation")
    made.finalize = _on_one_line
    return made


def say(template: str, **facts: Any) -> list[str]:
    """Return the sentences of `TEMPLATE.jinja`, one for each of its paragraphs.

    The lines of a paragraph are joined; one that begins with a mark follows without a blank.
    """
    text = _sentences().get_template(f"{template}.jinja").render(facts)
    return [line.strip() for line in map(_on_one_line, text.split("\n\n")) if line.strip()]


def say_by_name(template: str, **facts: Any) -> dict[str, str]:
    """Return those sentences of `TEMPLATE.jinja` that say something, by name: each paragraph is "NAME | SENTENCES"."""
    said = {}
    for paragraph in say(template, **facts):
        name, _, sentences = paragraph.partition(" |")
        if sentences:
            said[name] = sentences.strip()
    return said


def _on_one_line(value: Any) -> Any:
    return _BEFORE_MARK.sub("", value).replace("\n", " ") if type(value) is str else value


def _with_code(sentence: str) -> str:
    """Return a sentence in Markdown, a command at its end as code, which a reader copies from the file."""
    words, colon, command = sentence.partition(": automedeval ")
    command = f"automedeval {text.printable(command)}"
    return (
        f"{text.cell(words)}: `{command}`" if colon and "`" not in command else text.cell(sentence)
    )


def write_report(
    folder: Path, texts: Pages, data: str, result: object, lines: Iterable[str]
) -> None:
    """Write the files of a report, and its data as JSON; print its lines."""
    for name, content in texts.items():
        write_whole(folder / name, content)
    write_json(folder / data, result)
    print("\n".join(map(text.printable, lines)), "Not for clinical use.", sep="\n")
