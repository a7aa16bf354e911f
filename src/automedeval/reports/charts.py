"""The figures of the report, drawn with matplotlib as SVG that takes the page's colours and keeps its text as text."""

import io
import re
import warnings
from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#010203"  # stands for the page's own text colour until `_svg` puts that in
BLUE, ORANGE, GREEN, GREY = "#3b7dd8", "#c8641e", "#2e8b57", "#8a8f98"
COLOURS = (BLUE, ORANGE, GREEN, "#9a5bb5", "#b8860b", "#c2405f", "#2a9aa8", "#6b7280")
WIDTH = 5.6  # inches; at 72 points an inch it fits a phone, and its text stays readable there
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "automedeval",
    "text.parse_math": False,  # a model may be called anything
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}


def _svg(height: float, draw: Callable[[Axes], None], prefix: str) -> str:
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"Glyph .* missing from font"
        )  # the reader's browser has what this font lacks
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure.subplots())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", text)  # ids are the whole page's
    text = text.replace(INK, "currentColor")
    return re.sub(r"<svg [^>]*?viewBox", '<svg aria-hidden="true" focusable="false" viewBox', text, count=1)


def _short(name: str, most: int = 30) -> str:
    """Return a name's beginning and end: checkpoints of a series differ at the end."""
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def intervals(
    rows: Sequence[tuple[str, float, float | None, float | None, str]],
    label: str,
    prefix: str,
    band: tuple[float, float | None, float | None] | None = None,
    reference: float | None = None,
) -> str:
    """Draw (name, value, low, high, colour) one below the other; a band (value, low, high) and a line behind them."""

    def draw(axes: Axes) -> None:
        for place, (_, value, low, high, colour) in enumerate(rows):
            if low is not None and high is not None:
                axes.plot([low, high], [place, place], color=colour, linewidth=2, solid_capstyle="round", alpha=0.7)
            axes.plot([value], [place], "o", color=colour, markersize=6)
            axes.annotate(f"{value:.2f}", (value, place), (0, 5), textcoords="offset points", ha="center", fontsize=8)
        if band is not None:
            value, low, high = band
            if low is not None and high is not None:
                axes.axvspan(low, high, color=GREEN, alpha=0.15, linewidth=0)
            axes.axvline(value, color=GREEN, linewidth=1.2, linestyle="--")
        if reference is not None:
            axes.axvline(reference, color=GREY, linewidth=1, linestyle=":")
        axes.set_yticks(range(len(rows)), [_short(name) for name, *_ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.8)
        axes.set_xlabel(label)

    return _svg(0.75 + 0.34 * len(rows), draw, prefix)


def distributions(histograms: Sequence[tuple[str, dict[str, int]]], label: str, prefix: str) -> str:
    """Draw histograms {score: count} as shares, side by side."""
    steps = sorted({float(score) for _, histogram in histograms for score in histogram})

    def draw(axes: Axes) -> None:
        width = 0.42 / len(histograms)
        for place, (name, histogram) in enumerate(histograms):
            total = sum(histogram.values()) or 1
            counts = {float(score): count for score, count in histogram.items()}
            at = [step + (place - (len(histograms) - 1) / 2) * width for step in steps]
            heights = [counts.get(step, 0) / total for step in steps]
            axes.bar(at, heights, width, label=_short(name), color=COLOURS[place % len(COLOURS)])
        axes.set_xlabel(label)
        axes.set_ylabel("share of responses")
        axes.legend(frameon=False, fontsize=8)

    return _svg(2.6, draw, prefix)


def win_matrix(names: Sequence[str], shares: Sequence[Sequence[float | None]], prefix: str) -> str:
    """Draw the share of cases in which the row's model wins against the column's, ties counted half."""

    def draw(axes: Axes) -> None:
        values = [[float("nan") if share is None else share for share in row] for row in shares]
        # A mesh stays vectors; an image would be a picture file inside the page, which the page forbids itself.
        axes.pcolormesh(values, cmap="RdBu", vmin=0, vmax=1, alpha=0.8, edgecolors="none")
        for i, row in enumerate(shares):
            for j, share in enumerate(row):
                if share is not None:
                    dark = abs(share - 0.5) > 0.3
                    axes.text(
                        j + 0.5,
                        i + 0.5,
                        f"{share:.0%}",
                        ha="center",
                        va="center",
                        color="white" if dark else "black",
                        fontsize=8,
                    )
        short = [_short(name, 18) for name in names]
        middles = [place + 0.5 for place in range(len(names))]
        axes.set_xticks(middles, short, rotation=40, ha="right")
        axes.set_yticks(middles, short)
        axes.invert_yaxis()
        axes.spines[:].set_visible(False)
        axes.set_xlabel("against")

    return _svg(1.3 + 0.34 * len(names), draw, prefix)


def stacked(rows: Sequence[tuple[str, Sequence[float]]], labels: Sequence[str], prefix: str) -> str:
    """Draw shares that sum to 1 as stacked bars, one below the other."""
    colours = (BLUE, GREY, ORANGE) if len(labels) == 3 else COLOURS

    def draw(axes: Axes) -> None:
        left = [0.0] * len(rows)
        for number, label in enumerate(labels):
            values = [shares[number] for _, shares in rows]
            axes.barh(
                range(len(rows)), values, left=left, color=colours[number % len(colours)], label=label, height=0.7
            )
            for place, value in enumerate(values):
                if value >= 0.08:
                    axes.text(
                        left[place] + value / 2,
                        place,
                        f"{value:.0%}",
                        ha="center",
                        va="center",
                        color="white",
                        fontsize=7,
                    )
            left = [start + value for start, value in zip(left, values)]
        axes.set_yticks(range(len(rows)), [_short(name, 44) for name, _ in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.xaxis.set_visible(False)
        axes.spines[:].set_visible(False)
        axes.legend(frameon=False, fontsize=8, ncols=len(labels), loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(0.8 + 0.26 * len(rows), draw, prefix)


def reliability(
    curves: Sequence[tuple[str, Sequence[dict[str, float]]]], prefix: str, exact: tuple[float, float] | None = None
) -> str:
    """Draw people's mean score over the judge's, bin by bin; a reliable judge rises along a line.

    Args:
        exact: the ends of a scale that both are on, along which a line is drawn where they are the same.
    """

    def draw(axes: Axes) -> None:
        if exact is not None:
            axes.plot(exact, exact, ":", color=GREY, linewidth=1)
        for place, (name, bins) in enumerate(curves):
            sides = ([each[side] for each in bins] for side in ("judge", "people"))
            colour = COLOURS[place % len(COLOURS)]
            axes.plot(*sides, "o-", color=colour, label=_short(name), markersize=4, linewidth=1)
        axes.set_xlabel("judge's score, mean of a bin")
        axes.set_ylabel("people's mean score")
        axes.legend(frameon=False, fontsize=8)

    return _svg(2.8, draw, prefix)


def risk_coverage(
    curves: Sequence[tuple[str, Sequence[tuple[float, float, float | None, float | None]]]],
    prefix: str,
    allowed: float | None = None,
    kept: float | None = None,
) -> str:
    """Draw the share of wrong pairs over the share of verdicts kept, each point (coverage, risk, low, high).

    Args:
        allowed: a risk, drawn as a level line.
        kept: a coverage, drawn as an upright one.
    """

    def draw(axes: Axes) -> None:
        for place, (name, points) in enumerate(curves):
            colour = COLOURS[place % len(COLOURS)]
            axes.plot(
                *zip(*((at, risk) for at, risk, *_ in points)), "o-", color=colour, label=_short(name), markersize=4
            )
            known = [point for point in points if point[2] is not None and point[3] is not None]
            if known and len(curves) == 1:  # the bands of several would hide each other
                places, _, low, high = zip(*known)
                axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        if allowed is not None:
            axes.axhline(allowed, color=GREEN, linewidth=1.2, linestyle="--", label=f"allowed, {allowed:g}")
        if kept is not None:
            axes.axvline(kept, color=GREY, linewidth=1, linestyle=":", label=f"kept, {kept:.0%}")
        axes.set_xlim(0, 1.02)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("share of the verdicts that are kept, the surest first")
        axes.set_ylabel("share of wrong pairs")
        axes.legend(frameon=False, fontsize=8)

    return _svg(2.8, draw, prefix)


def series(names: Sequence[str], lines: Sequence[tuple[str, Sequence[tuple]]], prefix: str) -> str:
    """Draw measures over a series of judges, each point (value, low, high) or None."""

    def draw(axes: Axes) -> None:
        for place, (label, points) in enumerate(lines):
            known = [(at, *point) for at, point in enumerate(points) if point is not None]
            colour = COLOURS[place % len(COLOURS)]
            axes.plot(
                [each[0] for each in known], [each[1] for each in known], "o-", color=colour, label=label, markersize=4
            )
            for at, _, low, high in known:
                if low is not None:
                    axes.plot([at, at], [low, high], color=colour, linewidth=1, alpha=0.6)
        axes.set_xticks(range(len(names)), [_short(name, 18) for name in names], rotation=25, ha="right")
        axes.legend(frameon=False, fontsize=8)

    return _svg(2.8, draw, prefix)


def rounds(
    measured: Sequence[tuple[int, float, float | None, float | None]],
    prefix: str,
    curve: Sequence[tuple[float, float]] | None = None,
    ahead: Sequence[tuple[int, float, float | None, float | None]] = (),
    limit: float | None = None,
    published: Sequence[float] = (),
) -> str:
    """Draw (round, value, low, high) as measured, and beside them a curve with its limit, its forecasts, and other rounds."""

    def draw(axes: Axes) -> None:
        for points, colour in ((measured, BLUE), (ahead, ORANGE)):
            for place, _, low, high in points:
                if low is not None and high is not None:
                    axes.plot([place, place], [low, high], color=colour, linewidth=1.5, alpha=0.7)
        if limit is not None:
            axes.axhline(limit, color=GREEN, linewidth=1.2, linestyle=":", label=f"limit, {limit:.3f}")
        if curve:
            axes.plot(*zip(*curve), "--", color=ORANGE, linewidth=1.2, label="fitted curve")
        if ahead:
            places, values = zip(*((place, value) for place, value, *_ in ahead))
            axes.plot(places, values, "o", color=ORANGE, markerfacecolor="none", markersize=5, label="forecast")
        if published:
            axes.plot(range(len(published)), published, "D", color=GREY, markersize=4, label="the paper's Table 5")
        places, values = zip(*((place, value) for place, value, *_ in measured))
        axes.plot(places, values, "o", color=BLUE, markersize=6, label="measured")
        for place, value, *_ in measured:
            axes.annotate(f"{value:.2f}", (place, value), (6, -10), textcoords="offset points", fontsize=8)
        last = max(place for place, *_ in [*measured, *ahead, *enumerate(published)])
        axes.set_xticks(range(last + 1))
        axes.set_xlim(-0.3, last + 0.5)
        axes.set_xlabel("round of introspection")
        axes.set_ylabel("listwise accuracy")
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(3.2, draw, prefix)


def preferences(
    rows: Sequence[tuple[str, Sequence[tuple[float, float | None, float | None]], Sequence[Sequence[float]]]],
    labels: Sequence[str],
    prefix: str,
) -> str:
    """Draw for each (criterion, shares, annotators) a group of bars, one a label, with intervals and annotators' own shares."""
    colours = (BLUE, GREY, ORANGE)

    def draw(axes: Axes) -> None:
        width = 0.8 / len(labels)
        for number, (label, colour) in enumerate(zip(labels, colours)):
            at = [place + (number - (len(labels) - 1) / 2) * width for place in range(len(rows))]
            points = [shares[number] for _, shares, _ in rows]
            axes.bar(at, [value for value, *_ in points], 0.92 * width, color=colour, alpha=0.8, label=_short(label))
            for place, (value, low, high), (*_, annotators) in zip(at, points, rows):
                top = max([value if high is None else high, *(own[number] for own in annotators)])
                if low is not None:
                    axes.plot([place, place], [low, high], color=INK, linewidth=1.2)
                axes.annotate(f"{value:.0%}", (place, top), (0, 2), textcoords="offset points", ha="center", fontsize=8)
            dots = [(place, own[number]) for place, (*_, annotators) in zip(at, rows) for own in annotators]
            # Beside the interval, so that neither hides the other.
            axes.scatter(
                [x - width / 4 for x, _ in dots],
                [y for _, y in dots],
                s=9,
                facecolors="none",
                edgecolors=INK,
                linewidths=0.6,
            )
        axes.set_xticks(range(len(rows)), [_short(name, 22) for name, *_ in rows])
        axes.set_ylim(0, 1.1)
        axes.set_ylabel("share of choices")
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(2.8, draw, prefix)


def drift(lines: Sequence[tuple[str, Sequence[tuple[float, float, int]]]], prefix: str) -> str:
    """Draw means over a sequence, one line a name, points (place, mean, how many); the SVG is a file of its own."""

    def draw(axes: Axes) -> None:
        for number, (name, points) in enumerate(lines):
            places, means, _ = zip(*points)
            colour, mark = COLOURS[number % len(COLOURS)], "osD^v"[number // len(COLOURS) % 5]
            axes.plot(places, means, f"{mark}-", color=colour, label=_short(name, 18), markersize=4, linewidth=1)
        axes.set_xlabel("the physician's own task, first to last")
        axes.set_ylabel("mean score")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))

    return alone(_svg(2.8 + 0.16 * (len(lines) // 3), draw, prefix))


def alone(svg: str) -> str:
    """Return a figure as a file of its own: it names the space of its links, and brings the colour of its text, light and dark.

    A page that shows it as an image lends it neither.
    """
    colour = "<style>svg{color:#1c2330}@media(prefers-color-scheme:dark){svg{color:#e6e9ef}}</style>"
    svg = svg.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1)
    return re.sub(r"(<svg [^>]*>)", rf"\1{colour}", svg, count=1)


def topic_shares(rows: Sequence[tuple[str, float]], prefix: str) -> str:
    """Draw topics, named by their words, and the share of the text that each has; the SVG is a file of its own."""

    def draw(axes: Axes) -> None:
        axes.barh(range(len(rows)), [share for _, share in rows], color=BLUE, height=0.7)
        for place, (_, share) in enumerate(rows):
            axes.annotate(f"{share:.0%}", (share, place), (3, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [_short(name, 44) for name, _ in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("share of the text")

    return alone(_svg(0.8 + 0.26 * len(rows), draw, prefix))


def side_by_side(
    rows: Sequence[tuple[str, list]], kinds: Sequence[str], label: str, prefix: str, zero: float | None
) -> str:
    """Draw several estimates (value, low, high) of each thing, one kind in one colour, things one below the other."""

    def draw(axes: Axes) -> None:
        for number, (kind, colour) in enumerate(zip(kinds, (GREY, ORANGE, BLUE))):
            known = [
                (place + (number - 1) * 0.24, *each[number]) for place, (_, each) in enumerate(rows) if each[number]
            ]
            for place, _, low, high in known:
                if low is not None and high is not None:
                    axes.plot([low, high], [place, place], color=colour, linewidth=2, alpha=0.7)
            axes.plot([each[1] for each in known], [each[0] for each in known], "o", color=colour, label=kind, ms=5)
        if zero is not None:
            axes.axvline(zero, color=GREY, linewidth=1, linestyle=":")
        axes.set_yticks(range(len(rows)), [_short(name, 36) for name, _ in rows])
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel=label)
        axes.figure.legend(frameon=False, fontsize=8, ncols=3, loc="outside upper right")

    return _svg(1.0 + 0.55 * len(rows), draw, prefix)


def power_curves(lines: Sequence[tuple[str, Sequence[tuple[float, float]]]], level: float, prefix: str) -> str:
    """Draw with what probability so many rated cases tell two candidates apart, and the power that is asked for."""

    def draw(axes: Axes) -> None:
        for (name, points), colour in zip(lines, (GREY, BLUE)):
            axes.plot(*zip(*points), color=colour, linewidth=1.6, label=_short(name, 40))
        axes.axhline(level, color=GREEN, linewidth=1, linestyle="--")
        axes.set(ylim=(0, 1.02), xlabel="rated cases", ylabel="power")
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(2.8, draw, prefix)
