"""Cut a text into sentences and list items, each with its place, so that a page can mark the words.

They are cut by pattern: the answers of chatbots are well punctuated.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

# A mark of the end, with closing quotes, brackets or markup and a note ("[1]"), before a space and the start of a sentence,
# which may have an arrow, a bullet or such before it; or the end of a line.
_END = re.compile(
    r"[.!?…][\"'”’)\]*_`]*(?:\[\d+\])*(?=\s+(?:(?:[^\w\s|]|_){1,8}\s*)?[A-Z0-9À-ÖØ-Þ¿¡])|$"
)
# A full stop that ends no sentence: after an abbreviation, a single initial, or the number of a list item. The letters of
# "vitamin K", "8 a.m.", "20 g", "38 °C" and "Crohn's" are no initials.
_ABBREVIATION = re.compile(
    r"(?i)(?:\b(?:e\.g|i\.e|approx|vs|cf|al|ca|drs?|mrs?|ms|jr|sr|prof|st|nos?|figs?|vol|pp|incl|max|min|resp)|"
    r"(?<!vitamin )(?<!hepatitis )(?<!type )(?<!group )(?<!and )(?<!or )(?<!\d )(?<!degrees )(?<![ap]\.)(?<![°/'’-])\b[A-Z]|"
    r"^\s*\d{1,2})\.$",
)
_BULLET = re.compile(r"\s*(?:[-*+–]\s+|[•◦▪‣·➤>]\s*|(?:\d{1,2}[.)]|[a-z]\)|#{1,6})\s+)")
_MARKS = r"(?:[*_`]|</?(?:b|i|u|em|strong)>)+"
# Emphasis that keeps two words apart, "<b>Adults</b>500 mg", or two numbers, "12*500 mg" and
# "on day 10 **500 mg**".
_BETWEEN = re.compile(
    rf"(?i)(?<=[^\W\d_]){_MARKS}(?=[^\W_])|(?:(?<=\d)|(?<=\d\s)){_MARKS}(?=\s?[\d½¼¾⅓⅔])"
)
# Other emphasis; tags; blanks at a line break; and the full stops in "b.i.d.".
_HIDDEN = re.compile(
    r"[*_`]++(?!(?<=\s[*_`])\s)|</?(?:b|i|u|em|strong)>|[ \r](?=\n)|\n\s*(?=\s)"
    r"|\.(?:(?<=\b[btq]\.)(?=[id]\.[ds]\b)|(?<=\b[btq]\.[id]\.)(?=[ds]\b))",
    re.I,
)
_RULE = re.compile(r"(?m)\s*\|[-:| ]+\|\s*$")
_TABLE = re.compile(r"^\s*\|.*\|\s*$|\t.*\t")
_HEADING = re.compile(r"#{1,6}\s[^\n]*|(?:\*\*[^*\n]*[^*\n.]\*\*|__[^*\n]*[^*\n.]__):?")
# A heading; a line of cells; or lines of which each goes on in the next: it is long or ends in a
# number, and the next begins with a small letter or a number, and has no label ("12 years: 4 g").
_LINE = re.compile(
    r"(?m)^(?:[^\S\n]*+(?:#|[*_]{2}[^*\n]+[*_]{2}:?[^\S\n]*$|[^\s|][^\n\t|]*[\t|]|\|)[^\n]*"
    r"|[^\n]*\S(?:(?:(?<=\d)|(?<=[^\n]{50}))(?<![.!?…:;|])(?!(?<=\d)\s+\d)[ \r]?\n(?![^\S\n]*[*_]{2}[^*\n]+[*_]{2}:?[^\S\n]*$)"
    rf"(?!{_BULLET.pattern}|\s*(?:\(?(?:[a-z]|[ivx]{{1,4}}|\d{{1,2}})(?:\)|[./]\s)|o\s))"
    r"(?=[^\S\n]*[*_`(]{0,3}(?:[a-zµ°½¼¾⅓⅔\d](?![^\n]{0,40}:)|IU\b)[^\n\t|]*$)[^\n]*\S)*[^\n]*)"
)


class Span(NamedTuple):
    """The place of a sentence or list item in a text, and what stands `above` it: a heading, the lines above its list."""

    start: int
    end: int
    above: str


def spans(text: str) -> Iterator[Span]:
    """Yield every sentence and list item of a text, without space and list marks around it.

    A line above a list, such as "Do not:", stands above each of its items, and a heading above all up to the next.
    """
    lists: list[tuple[int, str]] = []  # the lines above lists, the heading first, by their indents
    last = 0
    was_item = False
    for line in _LINE.finditer(text):
        written = line[0]
        bullet = _BULLET.match(written)
        is_item = bool(bullet or _TABLE.search(written))
        heading = _HEADING.fullmatch(written.strip())
        indent = len(written) - len(written.lstrip()) if is_item else -1
        is_below = not (is_item or was_item) and text[last : line.start()] == "\n"
        if heading:
            lists = []
        while lists and lists[-1][0] >= indent and not is_below:
            lists.pop()
        above = ": ".join(words for _, words in lists if words)
        last = line.end()
        was_item = is_item
        start = end = 0
        for start, end in _sentences(written, bullet.end() if bullet else 0):
            yield Span(line.start() + start, line.start() + end, above)
        if heading:
            indent = -2  # which no indent takes away
        elif _TABLE.search(written):
            indent = -1
        if heading or _opens_list(written.rstrip(" *_"), text[line.end() :].lstrip("\n")):
            lists.append((indent, plain(written[start:end])[0].strip(" :|#")))


def plain(text: str) -> tuple[str, list[int]]:
    """Return a sentence on one line and without emphasis, and the place of each character."""
    text = _BETWEEN.sub(lambda marks: "×".ljust(len(marks[0]), "*"), text)
    places = list(range(len(text)))
    for hidden in reversed(list(_HIDDEN.finditer(text))):
        start, end = hidden.span()
        del places[start:end]
        text = text[:start] + text[end:]
    return text.replace("\n", " "), places


def _sentences(line: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the places of the sentences of a line, from `start` on."""
    for mark in _END.finditer(line, start):
        end = mark.end()
        stop = mark.start() + 1
        is_stop = mark[0].rstrip("*_`") == "."
        if is_stop and _ABBREVIATION.search(line[max(start, stop - 12) : stop]):
            continue
        sentence = line[start:end].strip()
        if sentence:
            first = line.index(sentence[0], start)
            yield first, first + len(sentence)
        start = end


def _opens_list(line: str, below: str) -> bool:
    """Return whether a list is below a line: it ends with a colon, or no sentence; or it is the head of a table."""
    if _TABLE.search(line):
        return bool(_RULE.match(below))
    is_cut = not line.endswith((".", "!", "?")) and not _BULLET.match(line)
    return line.endswith(":") or (is_cut and bool(_BULLET.match(below)))
