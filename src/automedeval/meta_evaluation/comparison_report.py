"""The page of a comparison: what `comparison.compare` found in words, figures and tables, as HTML and its Markdown twin.

The templates are `templates/comparison.*`. Names of candidates and judges may be hostile: the HTML template escapes all.
"""

from collections.abc import Iterator
from importlib import resources
from typing import Any

from markupsafe import Markup

from automedeval.meta_evaluation.comparison import NO_SCORES
from automedeval.reports import charts
from automedeval.reports.page import fill, shown

TEMPLATES = resources.files("automedeval.meta_evaluation") / "templates"


KINDS = {"classical": "ratings alone", "naive": "judge alone", "prediction_powered": "ratings and judge"}
Figure = dict[str, Any]  # what `Powered.to_dict` holds


def words(result: dict[str, Any]) -> list[str]:
    """Say which candidate is better, how sure, what the judge is worth, and how many ratings it would take."""
    lead, sentences = result["lead"], []
    for pair in result["pairs"]:
        one, two = (f"“{name}”" for name in pair["pair"])
        figure = pair["difference"][lead]
        found, alone = figure["prediction_powered"], figure["classical"]
        if found["low"] is None:
            sentences.append(f"How {one} and {two} compare cannot be said: {found.get('reason', 'no interval')}.")
            continue
        if found["low"] > 0 or found["high"] < 0:
            better, worse = (one, two) if found["value"] > 0 else (two, one)
            start = f"People rate {better} above {worse}"
        else:
            start = f"Which of {one} and {two} people rate higher cannot be told"
        sentences.append(
            f"{start}: the difference is {_span(found)} points from ratings and {lead}, {_span(alone)} from ratings alone."
        )
        if strayed := _strayed(figure):
            sentences.append(f"Without ratings, {lead} would say {_span(figure['naive'])}, {strayed}.")
        sentences += [*_worth(figure, lead, f"the difference of {one} and {two}"), *_plan(pair, lead)]
    if not result["pairs"]:
        sentences += _worth(result["all"]["mean"][lead], lead, "the mean score of all responses")
    added = {name: record["adds"] for name, record in result["judges"].items() if record.get("adds")}
    for name, estimate in added.items():
        if estimate["low"] is not None and (estimate["low"] > 0 or estimate["high"] < 0):
            verb = "adds" if estimate["value"] > 0 else "takes"
            sentences.append(
                f"{name} {verb} {_span(estimate | {'value': abs(estimate['value'])}, False)} of concordance."
            )
    if added and not any("of concordance." in sentence for sentence in sentences):
        sentences.append("No judge adds to the concordance of all together so much that it can be told.")
    return sentences


def _span(record: dict[str, Any], interval: bool = True) -> str:
    if record["value"] is None:
        return "not known"
    inside = interval and record["low"] is not None
    return f"{record['value']:.2f}" + (f" [{record['low']:.2f}, {record['high']:.2f}]" if inside else "")


def _strayed(figure: Figure) -> str | None:
    """Tell whether the judge alone and the corrected figure contradict each other."""
    naive, found = figure["naive"], figure["prediction_powered"]
    if naive["low"] is None or found["low"] is None:
        return None
    if naive["high"] < found["low"] or naive["low"] > found["high"]:
        return "an interval that does not meet the corrected one: the judge is biased"
    return None


def _worth(figure: Figure, lead: str, what: str) -> list[str]:
    worth = figure["worth"]
    if worth is None:
        return []
    much = f"{worth['value']:.0f} ({worth['low']:.0f} to {worth['high']:.0f})"
    return [f"With {lead}, the {figure['rated']} rated cases say as much about {what} as {much} would without a judge."]


def _plan(pair: dict[str, Any], lead: str) -> list[str]:
    plan = pair["plan"]
    if "gap" in plan:
        return []
    of = "the difference asked for" if plan["given"] else "a difference as large as the estimated one"
    one, two = pair["pair"]
    aim = f"To tell “{one}” and “{two}” apart with a power of {plan['power']:.0%} at {of}"
    without = _count(plan["without"], plan["given"])
    helped = plan["with"].get(lead)
    if helped is None:
        return [f"{aim} takes {without} rated cases without a judge."]
    if helped["value"] is None:
        few = f"the verdicts on {plan['cases']} cases are too few, however many of these are rated"
        return [f"{aim} takes {without} rated cases without a judge; with {lead} {few}."]
    return [f"{aim} takes {_count(helped, plan['given'])} rated cases with {lead}, and {without} without a judge."]


def _count(numbers: dict[str, int | None], given: bool) -> str:
    text = "more than a million" if numbers["value"] is None else f"{numbers['value']:,}"
    if given or "low" not in numbers:
        return text
    low = "–" if numbers["low"] is None else f"{numbers['low']:,}"
    return f"{text} ({low} to {'any number' if numbers['high'] is None else format(numbers['high'], ',')})"


def rows_of_tables(result: dict[str, Any]) -> dict[str, list[tuple[str, str, Figure]]]:
    """Return caption → (what, judge, figure) of every table."""
    tables: dict[str, list[tuple[str, str, Figure]]] = {"Mean scores": []}
    for name, record in {"all responses": result["all"], **result["models"]}.items():
        tables["Mean scores"] += [
            (name, judge, figure)
            for judge, figure in record["mean"].items()
            if judge == result["lead"] or figure["prediction_powered"].get("reason") != NO_SCORES
        ]
    for caption, key in (("Differences of mean scores", "difference"), ("Win rates, ties counted half", "win_rate")):
        found = [(" : ".join(p["pair"]), judge, figure) for p in result["pairs"] for judge, figure in p[key].items()]
        tables |= {caption: found} if found else {}
    return tables


def rows_of_plans(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return (candidates, cells) per pair: the difference, the power, the numbers without a judge and with each."""

    def cell(numbers: dict[str, int | None] | None) -> str:
        if numbers is None:
            return "–"
        value, *ends = (numbers[name] or "none" for name in ("value", "low", "high") if name in numbers)
        return f"{value} [{ends[0]}, {ends[1]}]" if ends else str(value)

    rows = []
    for pair in result["pairs"]:
        plan = pair["plan"]
        if "gap" in plan:
            cells = [plan["gap"], *["–"] * (2 + len(result["judges"]))]
        else:
            cells = [f"{plan['difference']:.2f}", f"{100 * plan['power']:.0f} %", cell(plan["without"])]
            cells += [cell(plan["with"].get(name)) for name in result["judges"]]
        rows.append((" : ".join(pair["pair"]), cells))
    return rows


def illustrate(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Draw every figure there is data for: {"title", "text", "svg", "head", "rows"} each, as in `illustrations`."""
    return [
        {"title": title, "text": text, "svg": Markup(svg(f"f{number}")), "head": head, "rows": rows}
        for number, (title, text, svg, head, rows) in enumerate(_drawn(result))
    ]


def _drawn(result: dict[str, Any]) -> Iterator[tuple]:
    lead = result["lead"]
    pairs = {" : ".join(pair["pair"]): pair for pair in result["pairs"]}
    means = {"all responses": result["all"], **result["models"]}
    groups = (
        ("Mean scores", "mean score that people give", {name: each["mean"] for name, each in means.items()}, None),
        ("Differences", "difference of mean scores", {name: pair["difference"] for name, pair in pairs.items()}, 0.0),
        (
            "Win rates",
            "share of cases that the first wins",
            {name: pair["win_rate"] for name, pair in pairs.items()},
            0.5,
        ),
    )
    for title, label, records, zero in groups:
        rows = [(name, [_point(figures_[lead][kind]) for kind in KINDS]) for name, figures_ in records.items()]
        if any(point for _, points in rows for point in points):
            yield (
                title,
                f"Three estimates, each with its 95 % interval: ratings alone, {lead} alone, and both together.",
                lambda prefix, rows=rows, label=label, zero=zero: charts.side_by_side(
                    rows, list(KINDS.values()), label, prefix, zero
                ),
                ["", *KINDS.values()],
                [[name, *(shown(figures_[lead][kind], 3) for kind in KINDS)] for name, figures_ in records.items()],
            )
    first = next(iter(pairs.values()), None)
    measured = first["difference"] if first else result["all"]["mean"]
    of = f"the difference of {' and '.join(first['pair'])}" if first else "the mean score of all responses"
    worth = [(name, *each["worth"].values(), charts.BLUE) for name, each in measured.items() if each["worth"]]
    if worth:
        rated = float(next(iter(measured.values()))["rated"])
        yield (
            "What the judges are worth",
            f"How many rated cases would say as much about {of} without a judge; dotted: those that are rated.",
            lambda prefix: charts.intervals(worth, "rated cases", prefix, reference=rated),
            ["judge", "worth", "low", "high"],
            [[name, *(f"{value:.1f}" for value in each)] for name, *each, _ in worth],
        )
    agreed = [
        (name, *(record["concordance"][key] for key in ("value", "low", "high")), charts.BLUE)
        for name, record in result["judges"].items()
        if record["concordance"]["value"] is not None
    ]
    if agreed:
        yield (
            "Agreement with people",
            "Concordance on the rated cases with 95 % intervals; dotted: one half, what guessing gives.",
            lambda prefix: charts.intervals(agreed, "concordance with people", prefix, reference=0.5),
            ["judge", "concordance", "low", "high"],
            [[name, *("–" if value is None else f"{value:.3f}" for value in each)] for name, *each, _ in agreed],
        )
    if first and "curve" in first["plan"]:
        plan = first["plan"]
        lines = [("ratings alone", [(each["rated"], each["without"]) for each in plan["curve"]])]
        helped = [(each["rated"], each["with"]) for each in plan["curve"] if each["with"] is not None]
        lines += [(f"with {lead}", helped)] if helped else []
        yield (
            "How many ratings",
            f"Power to tell {' and '.join(first['pair'])} apart at a difference of {abs(plan['difference']):.2f}; "
            f"dashed: {plan['power']:.0%}.",
            lambda prefix: charts.power_curves(lines, plan["power"], prefix),
            ["rated cases", *(name for name, _ in lines)],
            [[str(at[0][0]), *(f"{value:.3f}" for _, value in at)] for at in zip(*(points for _, points in lines))],
        )


def _point(record: dict[str, Any]) -> tuple[float, float | None, float | None] | None:
    return None if record["value"] is None else (record["value"], record["low"], record["high"])


def render(template: str, result: dict[str, Any], **context: Any) -> str:
    """Render `comparison.html.jinja` or `comparison.md.jinja` of this room."""
    told = {"words": words(result), "tables": rows_of_tables(result), "plans": rows_of_plans(result), "kinds": KINDS}
    return fill(TEMPLATES / template, {"many": _many}, result=result, **told, **context)


def _many(worth: dict[str, float] | None) -> str:
    return "–" if worth is None else f"{worth['value']:.0f} [{worth['low']:.0f}, {worth['high']:.0f}]"
