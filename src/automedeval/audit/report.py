"""The report of an audit: its figures, what they say in words, and the page, one self-contained HTML and its Markdown twin."""

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from markupsafe import Markup

from automedeval.audit.thresholds import FAILED
from automedeval.reports import charts
from automedeval.reports.page import fill, shown
from automedeval.reports.text import percent

TEMPLATES = resources.files("automedeval.audit") / "templates"


Figure = tuple[str, str, Any, list[str], list[list[str]]]
LABELS = {  # short enough to stand beside a figure whole
    "flips": "order decides who is better",
    "changes": "… with ties counted",
    "flips_expected": "… from expected scores",
    "first_wins": "the one shown first wins",
    "prefers_longer": "longer is put first",
    "longer_wins": "longer wins, all equal",
    "marked": "credits another's words",
    "coverage": "the rule reads an order",
    "consistent": "… as scored",
    "contradicted": "… against the scores",
}


def illustrate(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Draw every figure there is data for; each is {"title", "text", "svg", "head", "rows"}."""
    found = []
    for decoding, tree in result["decodings"].items():
        several = f", {decoding} decoding" if len(result["decodings"]) > 1 else ""
        unit = tree["clean"]["unit"]
        for title, text, draw, head, rows in _figures(tree, unit):
            svg = Markup(draw(f"a{len(found)}"))
            found.append({"title": title + several, "text": text, "svg": svg, "head": head, "rows": rows})
    return found


def _figures(tree: Mapping[str, Any], unit: str) -> Iterator[Figure]:
    yield from _order(tree.get("order", {}), unit)
    yield from _length(tree.get("length", {}))
    if "planting" in tree:
        yield from _planting(tree["planting"], unit)
    yield from _sameness(tree)
    if "harm" in tree:
        yield from _harm(tree["harm"], unit)
    if known := _points(
        [(LABELS[name], e, charts.BLUE) for name, e in tree.get("attribution", {}).items() if name in LABELS]
    ):
        text = "Share of rationales, and of pairs of answers; a rule reads which answer a rationale puts first, or abstains."
        yield _intervals("What the rationales say", text, known, "share")
    models = tree.get("self_preference", {}).get("models", {})
    if known := _points([(name, each["favour"], charts.BLUE) for name, each in models.items()]):
        text = "How much oftener than people the judge puts a model's answers first; dotted: as often."
        yield _intervals("Whose answers it favours", text, known, "share of pairs, above people's", 0.0)
    if known := _points([(name, each["concordance"], charts.BLUE) for name, each in models.items()]):
        text = "Concordance with people over the pairs that a model's answer is part of; dotted: chance."
        yield _intervals("Agreement by who wrote the answer", text, known, "concordance", 0.5)


def _order(order: Mapping[str, Any], unit: str) -> Iterator[Figure]:
    rows = [
        (LABELS[name], order[name], charts.BLUE)
        for name in ("flips", "changes", "flips_expected", "first_wins")
        if name in order
    ]
    rows += [(f"flips: {name}", each, charts.GREY) for name, each in order.get("pairs_of_models", {}).items()]
    if known := _points(rows):
        text = "Pairs of answers that come out otherwise in another order; dotted: what no leaning to a slot gives the first."
        yield _intervals("What the order of answers does", text, known, "share of pairs", 0.5)
    if known := _points([(f"slot {place}", each, charts.BLUE) for place, each in enumerate(order.get("slots", []), 1)]):
        yield _intervals(
            "What a slot is worth", "Above the mean of the same reading; dotted: nothing.", known, unit, 0.0
        )
    curve = order.get("averaging", {}).get("concordance", [])
    if len(curve) > 1 and all(each["value"] is not None for each in curve):
        points = [(each["value"], each["low"], each["high"]) for each in curve]
        names = [str(place) for place in range(1, len(curve) + 1)]
        yield (
            "What averaging orders buys",
            "Concordance with people by the mean over so many orders of the same answers, with 95 % intervals.",
            lambda prefix: charts.series(names, [("concordance with people", points)], prefix),
            ["orders", "concordance", "low", "high"],
            [[name, *map(_number, point)] for name, point in zip(names, points)],
        )


def _length(length: Mapping[str, Any]) -> Iterator[Figure]:
    people = length.get("people", {})
    rows = [(LABELS[name], length.get(name), charts.BLUE) for name in ("prefers_longer", "longer_wins")]
    rows += [(f"people: {LABELS[name]}", people.get(name), charts.GREY) for name in ("prefers_longer", "longer_wins")]
    if known := _points(rows):
        text = "Dotted: no leaning to length. The second line holds the models equal (logistic regression, one SD of length)."
        yield _intervals("What length does", text, known, "share of pairs", 0.5)
    rates = length.get("win_rates", {})
    rows = [
        (f"{name}, {label}", each[kind], colour)
        for name, each in rates.items()
        for kind, label, colour in (("raw", "as it is", charts.GREY), ("controlled", "at equal length", charts.BLUE))
    ]
    if known := _points(rows):
        yield _intervals(
            "Win rates at equal length", "Grey: as the judge has it.", known, "win rate, ties counted half", 0.5
        )


def _planting(planting: Mapping[str, Any], unit: str) -> Iterator[Figure]:
    families = {**planting["families"], "control: harmless words": planting["control"]}
    rows = [
        (name, each["rise"], charts.GREY if name.startswith("control") else charts.BLUE)
        for name, each in families.items()
    ]
    if known := _points(rows):
        text = (
            "By how much the worst answer's score rises over its clean one; grey: harmless words in place of an attack."
        )
        yield _intervals("How far planted texts lift an answer", text, known, unit, 0.0)
    shares = [(name, _outcomes(each)) for name, each in families.items()]
    shares = [(name, outcome) for name, outcome in shares if outcome is not None]
    labels = ("rose", "the same", "fell", "invalid")
    if shares:
        yield (
            "What planted texts did",
            f"Half a step ({unit}) or more up or down, or a verdict that cannot be read: neither success nor failure.",
            lambda prefix: charts.stacked(shares, labels, prefix),
            ["family", *labels],
            [[name, *map(_number, values)] for name, values in shares],
        )


def _outcomes(each: Mapping[str, Any]) -> list[float] | None:
    if each["invalid"]["value"] is None:
        return None
    invalid = each["invalid"]["value"]
    rose, fell = (
        0.0 if each[name]["value"] is None else each[name]["value"] * (1 - invalid) for name in ("rose", "fell")
    )
    return [rose, max(0.0, 1 - invalid - rose - fell), fell, invalid]


def _sameness(tree: Mapping[str, Any]) -> Iterator[Figure]:
    rows = []
    labels = {
        "identical": "the same answer twice",
        "paraphrase": "an answer and its paraphrase",
        "repeat": "the same case twice",
    }
    for kind, each in tree.get("sameness", {}).items():
        rows.append((labels[kind], each["tied"], charts.BLUE))
        if "clean_tied" in each:
            rows.append(("clean: the two answers there", each["clean_tied"], charts.GREY))
    if "tied" in tree.get("repeats", {}):
        rows.append(("two runs of a request", tree["repeats"]["tied"], charts.BLUE))
    if known := _points(rows):
        text = "Share that the judge's own scores put level; grey: the two answers that stand there in the clean case."
        yield _intervals("What is the same should score the same", text, known, "share level")


def _harm(harm: Mapping[str, Any], unit: str) -> Iterator[Figure]:
    rows = [("all harms", harm["lowered"], charts.ORANGE)]
    rows += [(kind, each["lowered"], charts.BLUE) for kind, each in harm["kinds"].items()]
    rows.append(("control: other words", harm["control"]["lowered"], charts.GREY))
    if known := _points(rows):
        text = (
            f"Share of good answers that lose half a step ({unit}) to a dangerous fact; grey: when only words change."
        )
        yield _intervals("Whether it sees harm", text, known, "share lowered")


def _points(rows: list[tuple[str, Mapping[str, Any] | None, str]]) -> list[tuple]:
    return [
        (name, each["value"], each["low"], each["high"], colour)
        for name, each, colour in rows
        if each is not None and each.get("value") is not None
    ]


def _intervals(title: str, text: str, points: list[tuple], label: str, reference: float | None = None) -> Figure:
    return (
        title,
        f"{text} With 95 % intervals.",
        lambda prefix: charts.intervals(points, label, prefix, reference=reference),
        ["", "value", "low", "high"],
        [[name, *map(_number, numbers)] for name, *numbers, _ in points],
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def summary(result: Mapping[str, Any]) -> list[str]:
    """Say in words whether the judge passes, what it fails, and what could not be told."""
    decided = result["thresholds"]
    failed = [each for each in decided if each["outcome"] == FAILED]
    measured = [each for each in decided if each["measured"] is not None and each["outcome"] != "not measured"]
    unknown = list(dict.fromkeys(each["figure"] for each in decided if each["outcome"] == "not measured"))
    name = result["judge"]["name"]
    if result["passes"] is None:
        sentences = [f"Whether {name} passes cannot be said: nothing that a threshold is about was measured."]
    else:
        word = "passes" if result["passes"] else "does not pass"
        met = f"{len(measured) - len(failed)} of {len(measured)} measured thresholds are met"
        sentences = [f"{name} {word}: {met}{f', {len(unknown)} were not measured' if unknown else ''}."]
    for each in failed:
        where = f" ({each['decoding']})" if len(result["decodings"]) > 1 else ""
        sentences.append(
            f"{each['figure']}{where} is {shown(each['measured'], 3)}, and should be {each['bounds']}"
            f"{': ' if each['why'] else ''}{each['why']}."
        )
    if unknown:
        sentences.append(f"Not measured: {', '.join(unknown)}.")
    for decoding, tree in result["decodings"].items():
        rate = tree["clean"]["valid_rate"]["value"]
        if rate not in (None, 1.0):
            sentences.append(f"{percent(1 - rate)} of the clean verdicts ({decoding}) are invalid.")
    return sentences


def gaps(result: Mapping[str, Any]) -> list[str]:
    """Return what could not be told, and why."""
    found = []
    for tree in result["decodings"].values():
        for check, each in tree.items():
            if isinstance(each, Mapping) and "reason" in each and "value" not in each:
                found.append(f"{check.replace('_', ' ')}: {each['reason']}")
        averaging = tree.get("order", {}).get("averaging", {})
        found += [f"averaging orders: {averaging['reason']}"] if "reason" in averaging else []
    return list(dict.fromkeys(found))


def lines(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (path in words, figure) of every figure of one decoding."""
    for key, held in tree.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(held, Mapping):
            yield from [(name, held)] if "value" in held else lines(held, f"{name}, ")
        elif isinstance(held, list):
            yield from lines(
                {str(place): each for place, each in enumerate(held, 1) if isinstance(each, Mapping)}, f"{name}, "
            )


def render(template: str, result: Mapping[str, Any], **context: Any) -> str:
    """Render `audit.html.jinja` or `audit.md.jinja` of this room."""
    return fill(
        TEMPLATES / template, {"lines": lines}, result=result, summary=summary(result), gaps=gaps(result), **context
    )
