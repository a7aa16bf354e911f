"""Fill the templates of HTML and Markdown reports."""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import jinja2
from markupsafe import Markup

STYLE = (resources.files("automedeval.reports") / "templates" / "report.css").read_text(encoding="utf-8")
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shown(estimate: dict[str, Any] | None, digits: int = 2, factor: float = 1.0) -> str:
    """Return a figure with its interval, "–" where it is undefined."""
    if not estimate or estimate["value"] is None:
        return "–"
    text = f"{factor * estimate['value']:.{digits}f}"
    if estimate["low"] is not None:
        text += f" [{factor * estimate['low']:.{digits}f}, {factor * estimate['high']:.{digits}f}]"
    return text + ("*" if estimate.get("approximate") else "")


def page_script(file: Traversable) -> dict[str, str]:
    """Return a page's own script, and the hash by which the page allows it and no other."""
    script = file.read_text(encoding="utf-8")
    return {
        "script": Markup(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }


def fill(template: Traversable, filters: Mapping[str, Callable[..., Any]], **context: Any) -> str:
    """Fill a template with the style and the filters that all pages share, and with its own filters."""
    environment = jinja2.Environment(
        autoescape=".html" in template.name,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Such a character in a model's name would turn the rest of the line round.
        finalize=lambda value: _BIDI.sub("", value) if type(value) is str else value,
    )
    environment.filters |= {"shown": shown, "cell": _cell, **filters}
    return environment.from_string(template.read_text(encoding="utf-8")).render(style=Markup(STYLE), **context)


def _cell(text: object) -> str:
    """Return text that cannot break a Markdown table, or become HTML, a heading, a link or code."""
    text = (
        printable(str(text))
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace("://", ":&#47;/")
        .replace("www.", "www&#46;")
    )
    return re.sub(r"([|\[\]`*_~\\#])", r"\\\1", text)


def printable(text: str) -> str:
    """Return text without what steers a terminal or a page: control characters and line breaks become spaces."""
    return "".join(" " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter for letter in text)
