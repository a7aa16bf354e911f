"""The figures of the meta-evaluation report: what of the result goes into each, the numbers behind it, and how it is drawn.

matplotlib draws them as SVG that takes the page's colours and keeps its text as text. A function of a chart draws on its axes;
`Figure.svg` calls it, all its other arguments given by `functools.partial`. An estimate is {"value", "low", "high"}.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from automedeval.meta_evaluation.agreement.ratings import OUTCOMES
from automedeval.records.text import ends
from automedeval.stats.growth_curve import AHEAD, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any  # matplotlib is slow to import, and drawing alone needs it

INK = "#010203"  # stands for the page's own text colour until the SVG is finished
BLUE, ORANGE, GREEN, GREY = "#3b7dd8", "#c8641e", "#2e8b57", "#8a8f98"
WIDTH, HEIGHT = 5.6, 2.8  # inches; at 72 points an inch it fits a phone, and its text stays readable there
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "automedeval",
    "text.parse_math": False,  # a model may be called anything
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
}
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}  # where a legend hides nothing
Estimate = Mapping[str, Any]
Rounds = Sequence[tuple[int, Estimate]]


@dataclass(frozen=True)
class Figure:
    """A chart, drawn by `draw` on matplotlib's `axes`, with its caption and the table of what is drawn.

    `head` has the table's columns, `rows` their values; a report writes floats with three decimals and None as "–".
    """

    title: str
    text: str
    draw: Callable[..., None]
    head: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]

    def svg(self, prefix: str) -> str:
        """Return the chart for the inside of a page; its ids begin with the prefix, as ids are the whole page's."""
        import matplotlib
        import matplotlib.figure

        # matplotlib's stubs name every setting in a type of its own.
        with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
            # The reader's browser has what this font lacks.
            warnings.filterwarnings("ignore", r"Glyph .* missing from font")
            figure = matplotlib.figure.Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
            self.draw(axes=figure.subplots())
            stream = io.StringIO()
            figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = stream.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
        text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", text)
        text = text.replace(INK, "currentColor")
        return re.sub(r"<svg [^>]*?viewBox", '<svg aria-hidden="true" focusable="false" viewBox', text, count=1)


def _set_height(axes: Axes, inches: float) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None  # `Figure.svg` made the axes
    figure.set_figheight(inches)


def _short(name: str, most: int = 30) -> str:
    """Return a name's beginning and end: checkpoints of a series differ at the end."""
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def _whiskers(axes: Axes, places: Sequence[float], estimates: Sequence[Estimate], **style: Any) -> None:
    """Draw the intervals of estimates upright, of those that have one."""
    low, high = (np.array([estimate[end] for estimate in estimates], float) for end in ("low", "high"))
    axes.vlines(places, low, high, **style)


def _name_rows(axes: Axes, names: Sequence[str], top: float, most: int = 30, **style: Any) -> None:
    axes.set_yticks(range(len(names)), [_short(name, most) for name in names], **style)
    axes.set_ylim(len(names) - 0.4, top)


def draw_stacked(rows: Sequence[tuple[str, Sequence[float]]], labels: Sequence[str], *, axes: Axes) -> None:
    """Draw shares that sum to 1 as stacked bars, one below the other."""
    import matplotlib

    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.8, len(labels)))
    colours = (BLUE, GREY, ORANGE) if "tie" in labels else shades
    _set_height(axes, 0.8 + 0.26 * len(rows))
    left = [0.0] * len(rows)
    for number, label in enumerate(labels):
        values = [shares[number] for _, shares in rows]
        bars = axes.barh(range(len(rows)), values, left=left, color=colours[number], label=label, height=0.7)
        texts = [f"{value:.0%}" if value >= 0.08 else "" for value in values]
        axes.bar_label(
            bars,
            texts,
            label_type="center",
            color="white" if "tie" in labels or number < len(labels) / 2 else "black",
            fontsize=7,
        )
        left = [start + value for start, value in zip(left, values)]
    _name_rows(axes, [name for name, _ in rows], -0.6, 44, fontsize=8)
    axes.set_xlim(0, 1)
    axes.xaxis.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.legend(ncols=len(labels), columnspacing=0.8, handlelength=1, **ABOVE)


def draw_rounds(measured: Rounds, curve: Curve | None, ahead: Rounds, end: int, *, axes: Axes) -> None:
    """Draw (round, estimate) as measured, and beside them a curve to its end, with its limit and its forecasts."""
    _set_height(axes, 3.2)
    for points, colour in ((measured, BLUE), (ahead, ORANGE)):
        at, estimates = [place for place, _ in points], [estimate for _, estimate in points]
        _whiskers(axes, at, estimates, color=colour, linewidth=1.5, alpha=0.7)
    if curve is not None:
        steps = [step / 8 for step in range(8 * end + 1)]
        axes.axhline(curve.a, color=GREEN, linewidth=1.2, linestyle=":", label=f"limit, {curve.a:.3f}")
        axes.plot(steps, [curve.at(step) for step in steps], "--", color=ORANGE, linewidth=1.2, label="fitted curve")
    if ahead:
        places, values = zip(*((place, estimate["value"]) for place, estimate in ahead))
        axes.plot(places, values, "o", color=ORANGE, markerfacecolor="none", markersize=5, label="forecast")
    places, values = zip(*((place, estimate["value"]) for place, estimate in measured))
    axes.plot(places, values, "o", color=BLUE, markersize=6, label="measured")
    for place, value in zip(places, values):
        axes.annotate(f"{value:z.2f}", (place, value), (6, -10), textcoords="offset points", fontsize=8)
    last = max(place for place, *_ in [*measured, *ahead])
    axes.set_xticks(range(last + 1))
    axes.set(xlim=(-0.3, last + 0.5), xlabel="round of introspection", ylabel="triple accuracy")
    axes.legend(ncols=3, **ABOVE)


def draw_preferences(
    rows: Sequence[tuple[str, Sequence[Estimate], Sequence[Sequence[float]]]], labels: Sequence[str], *, axes: Axes
) -> None:
    """Draw for each (criterion, shares, annotators) a group of bars, one a label, with intervals and annotators' own shares."""
    width = 0.8 / len(labels)
    for number, (label, colour) in enumerate(zip(labels, (BLUE, GREY, ORANGE))):
        at = [place + (number - (len(labels) - 1) / 2) * width for place in range(len(rows))]
        points = [shares[number] for _, shares, _ in rows]
        heights = [point["value"] for point in points]
        axes.bar(at, heights, 0.92 * width, color=colour, alpha=0.8, label=_short(label))
        for place, point, (*_, annotators) in zip(at, points, rows):
            value, _, high = ends(point)
            top = max([value if high is None else high, *(shares[number] for shares in annotators)])
            axes.annotate(f"{value:.0%}", (place, top), (0, 2), textcoords="offset points", ha="center", fontsize=8)
        _whiskers(axes, at, points, color=INK, linewidth=1.2)
        dots = [(place, shares[number]) for place, (*_, annotators) in zip(at, rows) for shares in annotators]
        # Beside the interval, so that neither hides the other.
        x, y = [x - width / 4 for x, _ in dots], [y for _, y in dots]
        axes.scatter(x, y, s=9, facecolors="none", edgecolors=INK, linewidths=0.6)
    axes.set_xticks(range(len(rows)), [_short(name, 22) for name, *_ in rows])
    axes.set(ylim=(0, 1.1), ylabel="share of choices")
    axes.legend(ncols=3, **ABOVE)


def illustrate(result: dict[str, Any]) -> Iterator[Figure]:
    """Yield every figure there is data for."""
    if "rounds" in result:
        yield from _rounds(result["rounds"])
    yield from _candidates(result)
    text = "Share of every score that people gave the verdicts, per criterion (the paper's Figure 5a)."
    for judge, criteria in result.get("verdict_ratings", {}).items():
        counts = {name: record["counts"] for name, record in criteria.items()}
        yield from _shares(f"People's scores of {judge}'s verdicts", text, "criterion", counts)
    yield from illustrate_preferences(result.get("preferences", []))


def _rounds(rounds: dict[str, Any]) -> Iterator[Figure]:
    table, forecast = rounds["table"], rounds["forecast"]
    accuracies = [(line["round"], line["triple_accuracy"]) for line in table]
    measured = [(place, estimate) for place, estimate in accuracies if estimate["value"] is not None]
    if not measured:
        return
    curve = None if "reason" in forecast else Curve(*(forecast[name] for name in "abc"))
    ahead = {each["round"]: each for each in forecast.get("next", [])}
    end = len(table) - 1 + (AHEAD if curve else 0)
    text = "Triple accuracy of the judge after each round, with 95 % intervals."
    if curve is not None:
        text += " Dashed: the fitted curve of the paper's Appendix F. Dotted: its limit. Open circles: its forecasts"
        text += ", with 95 % intervals." if forecast["next"][0]["low"] is not None else "."
    rows = [[line["round"], line["judge"], *ends(line["triple_accuracy"])] for line in table]
    rows += [[place, "forecast", *ends(each)] for place, each in ahead.items()]
    yield Figure(
        "Rounds of introspection",
        text,
        partial(draw_rounds, measured, curve, list(ahead.items()), end),
        ["round", "judge", "triple accuracy", "low", "high"],
        rows,
    )


def _candidates(result: dict[str, Any]) -> Iterator[Figure]:
    tables = {line: result["models"].get(line, {}) for line in ("people", result["main_judge"]["name"])}
    outcomes = sorted(
        (f"{' : '.join(pair['pair'])}, {line}", [pair[label]["value"] for label in ("win", "tie", "loss")])
        for line, table in tables.items()
        for pair in (table.get("pairs", ()) if len(table.get("models", ())) <= 5 else ())
    )
    if outcomes:
        yield Figure(
            "Wins, ties and losses",
            "Share of cases that the first model of a pair wins, ties and loses (the paper's Figure 4).",
            partial(draw_stacked, outcomes, ("win", "tie", "loss")),
            ["models, judge", "win", "tie", "loss"],
            [[name, *values] for name, values in outcomes],
        )


def _shares(title: str, text: str, of: str, counts: Mapping[str, Mapping[str, int]]) -> Iterator[Figure]:
    """Yield the distributions {name: {score: number}} as bars of shares, if there are some; `of` says what has the names."""
    steps = sorted({score for each in counts.values() for score in each}, key=float)
    rows = [(name, [each.get(score, 0) for score in steps]) for name, each in counts.items() if any(each.values())]
    shares = [(name, [number / sum(numbers) for number in numbers]) for name, numbers in rows]
    if rows:
        draw = partial(draw_stacked, shares, steps)
        yield Figure(title, text, draw, [of, *steps], [[name, *numbers] for name, numbers in rows])


def illustrate_preferences(preferences: list[dict[str, Any]]) -> Iterator[Figure]:
    """Yield a figure for every two judges that people compared: `result["preferences"]` of `agreement.json`."""
    for compared in preferences:
        names = [compared["judges"][0], "tie", compared["judges"][1]]
        bars = [
            (criterion, [record[name] for name in OUTCOMES], list(record["annotators"].values()))
            for criterion, record in compared["criteria"].items()
        ]
        yield Figure(
            f"Preference between {names[0]} and {names[2]}",
            "Share of people's choices for either judge's verdict and for a tie, per criterion, with 95 % intervals over "
            "cases. Small circles: every annotator's own share (the paper's Figure 5b).",
            partial(draw_preferences, bars, names),
            ["criterion", "choice", "share", "low", "high"],
            [[criterion, name, *ends(share)] for criterion, shares, _ in bars for name, share in zip(names, shares)],
        )
