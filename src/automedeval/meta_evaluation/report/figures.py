"""The figures of the meta-evaluation report: what of the result goes into each, as shares that are drawn as stacked bars.

matplotlib draws them as SVG that takes the page's colours and keeps its text as text.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.ratings import OUTCOMES

INK = "#010203"  # stands for the page's own text colour until the SVG is finished
BLUE, ORANGE, GREY = "#3b7dd8", "#c8641e", "#8a8f98"
WIDTH = 5.6  # inches; at 72 points an inch it fits a phone, and its text stays readable there
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "automedeval",
    "text.parse_math": False,  # a model may be called anything
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "legend.frameon": False,
    "legend.fontsize": 8,
}


@dataclass(frozen=True)
class Figure:
    """A chart of numbers of several kinds, drawn as their shares, with its caption and the table of the numbers.

    `of` says what has the names of the rows, and `labels` are the kinds; a report writes floats with three decimals.
    """

    title: str
    text: str
    of: str
    labels: Sequence[str]
    rows: Sequence[Sequence[Any]]  # a name, and a number of each kind

    @property
    def head(self) -> list[str]:
        """The columns of the table."""
        return [self.of, *self.labels]

    def svg(self, prefix: str) -> str:
        """Return the chart for the inside of a page; its ids begin with the prefix, as ids are the whole page's."""
        import matplotlib  # slow to import, and drawing alone needs it
        import matplotlib.figure

        # matplotlib's stubs name every setting in a type of its own.
        with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
            # The reader's browser has what this font lacks.
            warnings.filterwarnings("ignore", r"Glyph .* missing from font")
            size = (WIDTH, 0.8 + 0.26 * len(self.rows))
            figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
            self._draw(figure.subplots(), matplotlib.colormaps["viridis"])
            stream = io.StringIO()
            figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = stream.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
        text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", text)
        text = text.replace(INK, "currentColor")
        return re.sub(r"<svg [^>]*?viewBox", '<svg aria-hidden="true" focusable="false" viewBox', text, count=1)

    def _draw(self, axes: Any, shades: Any) -> None:
        """Draw a bar for each row, one below the other."""
        numbers, places = np.array([row[1:] for row in self.rows], float), range(len(self.rows))
        shares, of_outcomes = numbers / numbers.sum(axis=1, keepdims=True), "tie" in self.labels
        colours = (BLUE, GREY, ORANGE) if of_outcomes else shades(np.linspace(0, 0.8, len(self.labels)))
        for at, (label, colour) in enumerate(zip(self.labels, colours, strict=True)):
            left, values = shares[:, :at].sum(axis=1), shares[:, at]
            bars = axes.barh(places, values, left=left, color=colour, label=_short(label), height=0.7)
            texts = [f"{value:.0%}" if value >= 0.08 else "" for value in values]
            inside = "white" if of_outcomes or at < len(self.labels) / 2 else "black"
            axes.bar_label(bars, texts, label_type="center", color=inside, fontsize=7)
        axes.set_yticks(places, [_short(row[0], 44) for row in self.rows], fontsize=8)
        axes.set(xlim=(0, 1), ylim=(len(self.rows) - 0.4, -0.6))
        axes.xaxis.set_visible(False)
        axes.spines[:].set_visible(False)
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1)}  # where it hides nothing
        axes.legend(ncols=len(self.labels), columnspacing=0.8, handlelength=1, **place)


def _short(name: str, most: int = 30) -> str:
    """Return a name's beginning and end: checkpoints of a series differ at the end."""
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def illustrate(result: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield every figure there is data for."""
    tables = {line: result["models"].get(line, {}) for line in ("people", result["main_judge"]["name"])}
    outcomes = sorted(
        [f"{' : '.join(pair['pair'])}, {line}", *(pair[label]["value"] for label in ("win", "tie", "loss"))]
        for line, table in tables.items()
        for pair in (table.get("pairs", ()) if len(table.get("models", ())) <= 5 else ())
    )
    if outcomes:
        text = "Share of cases that the first model of a pair wins, ties and loses (the paper's Figure 4)."
        yield Figure("Wins, ties and losses", text, "models, judge", ("win", "tie", "loss"), outcomes)
    for judge, criteria in result.get("verdict_ratings", {}).items():
        text = "How often people gave the verdicts each score, per criterion (the paper's Figure 5a)."
        steps = sorted({score for record in criteria.values() for score in record["counts"]}, key=float)
        rows = [[name, *(record["counts"].get(score, 0) for score in steps)] for name, record in criteria.items()]
        yield Figure(f"People's scores of {judge}'s verdicts", text, "criterion", steps, rows)
    for compared in result.get("preferences", []):
        first, second = compared["judges"]
        rows = []
        for criterion, record in compared["criteria"].items():
            rows.append([criterion, *(record[outcome]["value"] for outcome in OUTCOMES)])
            rows += [[f"{criterion}, {name}", *shares] for name, shares in record["annotators"].items()]
        text = (
            "Share of people's choices for either judge's verdict and for a tie, per criterion, and of each annotator "
        )
        text += "(the paper's Figure 5b)."
        yield Figure(f"Preference between {first} and {second}", text, "choices", (first, "tie", second), rows)
