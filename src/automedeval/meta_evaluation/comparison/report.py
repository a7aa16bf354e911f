"""Write the report of a comparison in sentences, figures and tables, as an HTML page and a short Markdown summary."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from automedeval.meta_evaluation.comparison.compare import NO_SCORES
from automedeval.reports import charts
from automedeval.reports.charts import Figure
from automedeval.reports.page import render_report
from automedeval.reports.text import UNDEFINED, ends, number, shown, span

KINDS = {"classical": "ratings alone", "naive": "judge alone", "prediction_powered": "ratings and judge"}
ASSUMPTION = (
    "This assumes that the rated cases are a random draw of all cases, made before any of them was rated. If they were chosen "
    "in another way, the intervals are not valid, with or without a judge."
)
Estimates = dict[str, Any]  # what `Powered.to_dict` holds


def words(result: dict[str, Any]) -> list[str]:
    """Return sentences on which candidate is better, how much a judge adds, and how many ratings are needed.

    Two candidates have sentences of their own. Of more, one sentence says which is best and others sum up the pairs, so that
    the first screen holds the answer however many candidates there are; the tables have every pair.
    """
    lead, pairs = result["lead"], result["pairs"]
    if len(pairs) > 1:
        sentences = _of_several(pairs, lead)
    elif pairs:
        sentences = _of_two(pairs[0], lead)
    else:
        sentences = _gain(result["all"]["mean"][lead], lead, "the mean score of all responses")
    return [*sentences, *(f"{name.rstrip('?')}: {text}" for name, text in result["facts"])]


def _of_two(pair: dict[str, Any], lead: str) -> list[str]:
    first, second = (f"“{name}”" for name in pair["pair"])
    figure = pair["difference"][lead]
    corrected, alone = figure["prediction_powered"], figure["classical"]
    if corrected["low"] is None:
        return [f"{first} and {second} cannot be compared: {corrected.get('reason', 'no interval')}."]
    if _clear(corrected):
        better, worse = (first, second) if corrected["value"] > 0 else (second, first)
        start = f"People rate {better} above {worse}"
    else:
        start = f"There is no clear difference between {first} and {second}"
    sentences = [
        f"{start}: the difference is {span(corrected)} points by ratings and {lead}, {span(alone)} by ratings alone."
    ]
    if _apart(figure["naive"], corrected):
        sentences.append(
            f"By {lead} alone it is {span(figure['naive'])}. The intervals do not overlap: {lead} is biased."
        )
    return [*sentences, *_gain(figure, lead, f"the difference of {first} and {second}"), *_plans([pair], lead)]


def _of_several(pairs: list[dict[str, Any]], lead: str) -> list[str]:
    figures = {tuple(pair["pair"]): pair["difference"][lead] for pair in pairs}
    estimates = {names: figure["prediction_powered"] for names, figure in figures.items()}
    defined = {names: estimate for names, estimate in estimates.items() if estimate["low"] is not None}
    if not defined:
        return [f"The candidates cannot be compared: {next(iter(estimates.values())).get('reason', 'no interval')}."]
    clear = {names for names, estimate in defined.items() if _clear(estimate)}
    sentences = [
        _best(estimates, defined, clear),
        f"{len(clear)} of {len(pairs)} pairs of candidates differ clearly, by ratings and {lead} together.",
    ]
    if len(defined) < len(pairs):
        sentences.append(f"{len(pairs) - len(defined)} pairs cannot be compared; comparison.json says why.")
    biased = sum(_apart(figures[names]["naive"], defined[names]) for names in defined)
    if biased:
        sentences.append(
            f"In {biased} of {len(defined)} pairs the interval by {lead} alone does not overlap that with ratings: "
            f"{lead} is biased."
        )
    worth = [figure["worth"]["value"] for figure in figures.values() if figure["worth"]]
    if worth:
        rated = _range([figure["rated"] for figure in figures.values() if figure["worth"]])
        sentences.append(
            f"With {lead}, {rated} rated cases give a difference as precisely as {_range(worth)} without a judge."
        )
    return [*sentences, *_plans([pair for pair in pairs if tuple(pair["pair"]) not in clear], lead)]


def _best(estimates: dict[tuple, Estimates], defined: dict[tuple, Estimates], clear: set[tuple]) -> str:
    """Return which candidate is best: the one that is first in most pairs, if it is clearly first in all of its own."""
    names = list(dict.fromkeys(name for pair in estimates for name in pair))
    wins = dict.fromkeys(names, 0.0)
    for (left, right), estimate in defined.items():
        wins[left if estimate["value"] > 0 else right] += 1
    first = max(names, key=lambda name: wins[name])
    level = []
    for pair, estimate in estimates.items():
        if first in pair:
            ahead = pair in clear and (estimate["value"] > 0) == (pair[0] == first)
            level += [] if ahead else [f"“{pair[1] if pair[0] == first else pair[0]}”"]
    if not level:
        return f"“{first}” is best: people rate it above each of the {len(names) - 1} other candidates."
    others = " and ".join(level) if len(level) <= 2 else f"{len(level)} other candidates"
    return f"No candidate is shown to be best. “{first}” is first, without a clear difference from {others}."


def _plans(pairs: list[dict[str, Any]], lead: str) -> list[str]:
    """Return how many ratings find the estimated differences of pairs; of one pair also at the ends of its interval."""
    plans = [pair["plan"] for pair in pairs if "gap" not in pair["plan"]]
    if not plans:
        return []
    what, power = "the differences that are not clear", f"{plans[0]['power']:.0%}"
    if len(pairs) == 1:
        what = "the difference of {} and {}".format(*(f"“{name}”" for name in pairs[0]["pair"]))
    sentence = (
        f"To detect {what}, as estimated, with a power of {power}, "
        f"{_counts([plan['without'] for plan in plans])} rated cases are needed without a judge"
    )
    with_lead = [plan["with"][lead] for plan in plans if lead in plan["with"]]
    reached = [numbers for numbers in with_lead if numbers["value"] is not None]
    if with_lead and not reached:
        return [f"{sentence}. With {lead} and verdicts on {plans[0]['cases']} cases this power cannot be reached."]
    if reached:
        sentence += f", and {_counts(reached)} with {lead}"
    if len(reached) < len(with_lead):
        sentence += f" where {plans[0]['cases']} verdicts are enough for it ({len(reached)} of {len(with_lead)} pairs)"
    return [f"{sentence}."]


def _counts(numbers: list[dict[str, int | None]]) -> str:
    return _count(numbers[0]) if len(numbers) == 1 else _range([each["value"] for each in numbers])


def _range(numbers: list[float | None]) -> str:
    """Return "14 to 17", rounded; None is more than a million."""
    ends = sorted(math.inf if value is None else value for value in numbers)
    words = ["more than a million" if value == math.inf else f"{value:,.0f}" for value in (ends[0], ends[-1])]
    return " to ".join(dict.fromkeys(words))


def _clear(estimate: Estimates) -> bool:
    return estimate["low"] is not None and (estimate["low"] > 0 or estimate["high"] < 0)


def _apart(naive: dict[str, Any], corrected: dict[str, Any]) -> bool:
    """Return whether the intervals of the judge alone and of the corrected figure do not overlap."""
    if naive["low"] is None or corrected["low"] is None:
        return False
    return naive["high"] < corrected["low"] or naive["low"] > corrected["high"]


def _gain(figure: Estimates, lead: str, what: str) -> list[str]:
    worth = figure["worth"]
    if worth is None:
        return []
    much = f"{worth['value']:.0f} ({worth['low']:.0f} to {worth['high']:.0f})"
    return [f"With {lead}, {figure['rated']} rated cases give {what} as precisely as {much} without a judge."]


def _count(numbers: dict[str, int | None], none: str = "more than a million") -> str:
    """Return a number of rated cases, and those at the ends of the difference's interval where it is estimated."""
    counts = [numbers[name] for name in ("value", "low", "high") if name in numbers]
    value, *ends = (none if number is None else f"{number:,}" for number in counts)
    return f"{value} ({ends[0]} to {ends[1]})" if ends else value


def rows_of_tables(result: dict[str, Any]) -> dict[str, list[tuple[str, str, Estimates]]]:
    """Return caption → (what, judge, figure) of every table."""
    tables: dict[str, list[tuple[str, str, Estimates]]] = {"Mean scores": []}
    for name, record in {"all responses": result["all"], **result["models"]}.items():
        tables["Mean scores"] += [
            (name, judge, figure)
            for judge, figure in record["mean"].items()
            if judge == result["lead"] or figure["prediction_powered"].get("reason") != NO_SCORES
        ]
    for caption, key in (("Differences of mean scores", "difference"), ("Win rates, ties counted half", "win_rate")):
        rows = [(" : ".join(p["pair"]), judge, figure) for p in result["pairs"] for judge, figure in p[key].items()]
        tables |= {caption: rows} if rows else {}
    return tables


def rows_of_plans(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return (candidates, cells) per pair: the difference, the power, the numbers without a judge and with each."""
    rows = []
    for pair in result["pairs"]:
        plan = pair["plan"]
        if "gap" in plan:
            cells = [plan["gap"], *[UNDEFINED] * (2 + len(result["judges"]))]
        else:
            helped = [plan["with"].get(name) for name in result["judges"]]
            counts = (each and _count(each, "none") for each in (plan["without"], *helped))
            cells = [
                f"{plan['difference']:.2f}",
                f"{100 * plan['power']:.0f} %",
                *(each or UNDEFINED for each in counts),
            ]
        rows.append((" : ".join(pair["pair"]), cells))
    return rows


def illustrate(result: dict[str, Any]) -> Iterator[Figure]:
    """Yield every figure there is data for."""
    lead = result["lead"]
    pairs = {" : ".join(pair["pair"]): pair for pair in result["pairs"]}
    means = {"all responses": result["all"], **result["models"]}
    groups = (
        ("Mean scores", "mean score that people give", means, "mean", None),
        ("Differences", "difference of mean scores", pairs, "difference", 0.0),
        ("Win rates", "share of cases that the first wins", pairs, "win_rate", 0.5),
    )
    for title, label, records, measure, zero in groups:
        rows = [(name, [record[measure][lead][kind] for kind in KINDS]) for name, record in records.items()]
        if any(estimate["value"] is not None for _, estimates in rows for estimate in estimates):
            yield Figure(
                title,
                f"Three estimates with 95 % intervals: by ratings alone, by {lead} alone, and by both together.",
                partial(charts.side_by_side, rows, list(KINDS.values()), label, zero),
                ["", *KINDS.values()],
                [[name, *(shown(estimate, 3) for estimate in estimates)] for name, estimates in rows],
            )
    first = next(iter(pairs.values()), None)
    measured = first["difference"] if first else result["all"]["mean"]
    of = f"the difference of {' and '.join(first['pair'])}" if first else "the mean score of all responses"
    worth = [(name, each["worth"], charts.BLUE) for name, each in measured.items() if each["worth"]]
    if worth:
        rated = float(next(iter(measured.values()))["rated"])
        yield Figure(
            "Rated cases without a judge for the same precision",
            f"How many rated cases would give {of} as precisely without a judge. Dotted: the cases that are rated.",
            partial(charts.intervals, worth, "rated cases", rated),
            ["judge", "rated cases", "low", "high"],
            [[name, *(number(value, 1) for value in ends(estimate))] for name, estimate, _ in worth],
        )
    text = "Concordance on the rated cases. Dotted: one half, which is what guessing gives."
    agreed = [(name, record["concordance"], charts.BLUE) for name, record in result["judges"].items()]
    label, head = "concordance with people", ("judge", "concordance")
    yield from charts.estimates("Agreement with people", text, agreed, label, 0.5, head=head)


def render(result: dict[str, Any], title: str) -> dict[str, str]:
    """Render what `comparison.json` holds as {"comparison.html": text, "comparison.md": text}."""
    tables = rows_of_tables(result)
    return render_report(
        "automedeval.meta_evaluation",
        "comparison",
        title,
        words=words(result),
        notes=[ASSUMPTION, *result["notes"]],
        figures=illustrate(result),
        settings=result["settings"],
        main_table=(
            ("mean score", *KINDS.values()),
            [
                (what, *(shown(figure[kind], 3) for kind in KINDS))
                for what, judge, figure in tables["Mean scores"]
                if judge == result["lead"]
            ],
        ),
        result=result,
        tables=tables,
        plans=rows_of_plans(result),
        kinds=KINDS,
    )
