"""Cut an answer into statements, each with its place in the text, and say which of them are not asserted.

A statement is a sentence, or a list item. Sentences are cut by pattern: the answers of chatbots are well punctuated, and the
places must be exact so that a page can mark the words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

from automedeval.records.yaml_file import load_yaml

# A mark of the end, with closing quotes or brackets, before a space and the start of a sentence; or the end of a line.
_END = re.compile(r"[.!?](?:[\"'”’)\]]*)(?=\s+[\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ¿¡])|\n+|$")
# A full stop that ends no sentence: after an abbreviation, a single initial, or the number of a list item.
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|approx|vs|cf|al|ca|drs?|mrs?|ms|jr|sr|prof|st|nos?|figs?|vol|pp|incl|max|min|resp)|\b[A-Z]|^\s*\d{1,2})\.$",
    re.I,
)
_BULLET = re.compile(r"\s*(?:[-*+–]\s+|[•◦▪‣·➤]\s*|(?:\d{1,2}[.)]|[a-z]\)|#{1,6})\s+)")
_MARKUP = re.compile(r"[*_`#]+")
_TABLE = re.compile(r"^\s*\|.*\|\s*$|\t.*\t")
_WORD = re.compile(r"[^\W\d_]{2,}")
_HEADING = re.compile(r"#{1,6}\s[^\n]*|(\*\*|__)[^*\n]+\1:?")
# A heading, or a line above a list, changes what stands below it, but for one of these words alone.
_NEUTRAL = re.compile(
    r"(?:\W*\b(?:a|advice|an|and|answers?|are|as|at|can|care|conclusion|do|dos(?:e|es|age|ing)|few|follow(?:ing|s)?|for|general|guidelines?"
    r"|helps?|here|home|how|important|in|information|instructions?|is|it|key|main|may|more|my|notes?|of|options?|other|our|overview|points?"
    r"|recommendations?|self|should|simple|some|steps?|summary|take|that|the|these|things?|this|tips?|to|treatments?|try|use|usual|what"
    r"|ways?|you|your)\b)*\W*",
    re.I,
)
# What the items below complete, what denies them, and a line that says something by itself
_CONDITION = re.compile(r"\b(?:if|when|unless|until)\b", re.I)
_DENIES = re.compile(
    r"\w+n['’]t|(?:do|should|must|can|could) ?not|never|avoid|(?:what|how) not to \w+|\w+ to avoid",
    re.I,
)
_SENTENCE = re.compile(
    r"(?:take|give|use|drink|eat|apply|inject|stop|start|do|don['’]t|never|avoid|see|call|go|ask)\b|(?:\S+\s+){8}"
    r"|.*\b(?:is|are|should|must|can|may|will|has|have)\b", re.I,
)  # fmt: skip

NOT_ASSERTED = {
    name: re.compile("|".join(patterns), re.I)
    for name, patterns in load_yaml(
        (resources.files(__package__) / "templates/not_asserted.yaml").read_bytes()
    ).items()
}
NOT_ASKED = (*NOT_ASSERTED, "code", "table", "no statement")  # why a statement is not checked


class Statement(NamedTuple):
    """A statement of an answer: its words without the mark of a list item, and its place in characters.

    `unread` says why it is not checked: it is not asserted, a table, code, or has no words; None if it is checked.
    """

    text: str
    start: int
    end: int
    unread: str | None = None


@dataclass(frozen=True)
class Evidence:
    """A sentence of a text that says what is true, with its `source`, such as "reference" or a book and its section.

    `before` is the sentence before it, for what "it" means; `on_question` whether its text answers the question of the case, as
    references do: of such a text rules read every sentence, of books only the near ones.
    """

    text: str
    source: str
    before: str = ""
    on_question: bool = True


def statements(text: str) -> list[Statement]:
    """Return the statements of a text in their order; those that are not to be checked say why."""
    cut, code = [], False
    for start, end, head in spans(text):
        shown, reason = text[start:end], None
        fence = shown.startswith("```")
        code ^= fence
        if code or fence:
            reason = "code"
        elif _TABLE.search(shown):
            reason = "table"
        elif len(_WORD.findall(shown)) < 2:
            reason = "no statement"
        else:
            reason = not_asserted(head + shown)
        cut.append(Statement(head + _MARKUP.sub("", shown).strip(), start, end, reason))
    return cut


def not_asserted(sentence: str) -> str | None:
    """Return why what stands in a sentence is not said to be so; None if it is."""
    return next((name for name, pattern in NOT_ASSERTED.items() if pattern.search(sentence)), None)


def spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start and end of every sentence and list item of a text, without space and list marks around it, and its head.

    The head is the heading or the line above a list that changes what stands below it, as "Do not:" does; "" for none.
    """
    # `depth` is the indent of the line above a list, -1 of a paragraph; `items` whether marked items are below it.
    start, cut, title, lead, depth, items = 0, "\n", "", "", -1, False
    for mark in _END.finditer(text):
        if mark[0] == "." and _ABBREVIATION.search(text[max(start, mark.end() - 12) : mark.end()]):
            continue
        end = mark.end()
        bullet = _BULLET.match(text, start, end)
        first = bullet.end() if bullet else start
        if said := text[first:end].strip():
            first += len(text[first:end]) - len(text[first:end].lstrip())
            between, before = cut + text[start:first], text[start:first].rpartition("\n")[2]
            begins, is_item = "\n" in between, bool(bullet) and "#" not in before
            indent = len(before) - len(before.lstrip()) if is_item else -1
            is_heading = begins and bool(_HEADING.fullmatch(before.lstrip() + said))
            is_below = indent > depth or not (is_item or items or "\n\n" in between)
            if begins and (is_heading or not is_below):
                lead, depth, items = "", -1, False
            yield first, first + len(said), "" if is_heading else (lead if begins else "") or title
            items = items or is_item
            above, is_denial = _head(said)
            is_lead = said.endswith((":", ":**")) or not (
                is_item or said[-1] in ".!?" or not _BULLET.match(text, end)
            )
            if is_heading:  # "Call 911 if you faint" is a sentence, and "If you faint" none
                title = (
                    ""
                    if is_denial or (_CONDITION.search(said) and not _CONDITION.match(said))
                    else above
                )
            if begins and (
                is_denial if is_heading else is_lead
            ):  # a denial is one of the list below alone
                lead, depth, items = above, indent, False
        start, cut = end, mark[0]


def _head(line: str) -> tuple[str, bool]:
    """Return a line above others as it stands before each of them, and whether it denies them.

    "" if it changes nothing of what they say, or is a sentence of its own.
    """
    said = _MARKUP.sub("", line).strip().rstrip(":").strip()
    if (denies := bool(_DENIES.fullmatch(said))) or (
        _CONDITION.search(said) and said[-1] not in ".!?"
    ):
        return f"{said} ", denies
    is_none = said[-1:] in (*".!?", "") or _NEUTRAL.fullmatch(said) or _SENTENCE.match(said)
    return "" if is_none else f"{said}: ", False


def sentences(text: str) -> list[str]:
    """Return the sentences of a text that says what is true, such as a reference."""
    return [text[start:end] for start, end, _ in spans(text)]
