"""Write figures, tables and hostile text as plain text: what reports, cards and terminals show."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.records.types import each_once, whole

UNDEFINED = "–"
MOST_ROWS = 20  # of a table in a terminal
# How cells begin that a spreadsheet runs; the last four do in some languages
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_ADDRESS = re.compile(r"(?i)(https?://)(?:\S*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")
LONG = re.compile(r"[A-Za-z0-9]{50}(?=[A-Za-z0-9])")
RANKED = (
    "In brackets: 95 % intervals over {}. "
    "Models whose ranks overlap do not clearly differ in pairs won."
)


def number(value: Any, digits: int = 3) -> str:
    """Return a float with so many decimals, an estimate with its interval, "–" for None; counts and text stay as they are."""
    if isinstance(value, Mapping):
        return span(value, digits)
    if isinstance(value, float):
        return f"{value:.{digits}f}"
    return UNDEFINED if value is None else str(value)


def span(estimate: Mapping | None, digits: int = 2, factor: float = 1.0) -> str:
    """Return an estimate {"value", "low", "high"} with its interval, as "0.73 [0.70, 0.76]"; "–" where it is undefined."""
    if not estimate or estimate["value"] is None:
        return UNDEFINED
    figures = [estimate["value"], estimate["low"], estimate["high"]]
    value, *bounds = [f"{factor * bound:z.{digits}f}" for bound in figures if bound is not None]
    return f"{value} [{', '.join(bounds)}]" if bounds else value


def interval(estimate: Mapping) -> str:
    """Return the interval of a share in per cent, as "95 % interval 70–76"; "no interval" where there is none."""
    if estimate["low"] is None:
        return "no interval"
    return f"95 % interval {100 * estimate['low']:z.0f}–{100 * estimate['high']:z.0f}"


def in_a_row(names: Sequence[str], last: str = "and") -> str:
    """Return names as "one, two and three"."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def several(count: int, noun: str) -> str:
    """Return "1 case" or "2 cases"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def percent(share: float) -> str:
    """Return a share in whole per cent; a share near 0 or 1 is not rounded to 0 % or 100 %."""
    if 0 < share < 0.005:
        return "under 1 %"
    return "over 99 %" if 0.995 < share < 1 else f"{100 * share:.0f} %"


def p_value(p: float | None) -> str:
    return "< 0.001" if p is not None and p < 0.001 else number(p)


def no_formula(value: Any) -> Any:
    """Return a text with an apostrophe in front if a spreadsheet would run it (OWASP, "CSV Injection"), else the value."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def printable(text: str) -> str:
    """Return text without what steers a terminal or a page: control characters and line breaks become spaces."""
    return "".join(
        " " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter
        for letter in text
    )


def shown_address(text: str) -> str:
    """Return a text whose web addresses have no user, password and query, which may be secrets."""
    return _ADDRESS.sub(r"\1\2", text)


def cell(text: object) -> str:
    """Return text that cannot break a Markdown table, or become HTML, a heading, a link or code."""
    text = printable(str(text)).replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([|\[\]`*_~\\#])", r"\\\1", text)
    return text.replace("://", ":&#47;/").replace("www.", "www&#46;")


def format_table(rows: list[dict], most: int = MOST_ROWS) -> str:
    """Lay rows out as a plain text table, the first `most` of them; an estimate has its interval."""
    if not rows:
        return "no valid verdict"
    names = each_once(rows)
    table = [list(map(printable, names))]
    for row in rows[:most]:
        table.append([printable(number(row.get(name), 2)) for name in names])
    width, *widths = [max(map(len, column)) for column in zip(*table)]
    lines = []
    for first, *others in table:
        lines.append("  ".join([first.ljust(width), *map(str.rjust, others, widths)]).rstrip())
    if len(rows) > most:
        lines.append(f"… and {len(rows) - most} more")
    return "\n".join(lines)


def readable(text: str) -> str:
    """Return a `whole` text with a blank after every 50 letters of a word: one of more than 100 is unknown to WordPiece."""
    return LONG.sub(r"\g<0> ", whole(text))
