"""The figures of the meta-evaluation report: what of the result goes into each, and the numbers behind it."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from automedeval.meta_evaluation import charts
from automedeval.meta_evaluation.agreement.ratings import OUTCOMES
from automedeval.meta_evaluation.charts import Figure
from automedeval.records.text import ends
from automedeval.stats.growth_curve import AHEAD, Curve

MOST_BARS = 24  # of a figure of topics


def illustrate(result: dict[str, Any]) -> Iterator[Figure]:
    """Yield every figure there is data for."""
    yield from _risk_coverage(result)
    if "rounds" in result:
        yield from _rounds(result["rounds"])
    yield from _candidates(result)
    yield from _verdict_ratings(result)
    yield from illustrate_preferences(result.get("preferences", []))


def _risk_coverage(result: dict[str, Any]) -> Iterator[Figure]:
    curves = {name: each["risk_coverage"] for name, each in result["judges"].items() if each.get("risk_coverage")}
    if curves:
        yield Figure(
            "Risk and coverage",
            "Share of wrong pairs when only the most confident verdicts are kept. A verdict's confidence is the mean distance "
            "of its expected scores over pairs. Pairs that people tied are left out; every case counts the same.",
            partial(charts.risk_coverage, curves),
            ["judge", "verdicts kept", "wrong pairs", "low", "high", "cases"],
            [
                [name, f"{each['coverage']:.0%}", *ends(each["risk"]), each["cases"]]
                for name, points in curves.items()
                for each in points
            ],
        )


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
    drawn = None
    if curve is not None:
        drawn = [(step / 8, curve.at(step / 8)) for step in range(8 * end + 1)]
        text += " Dashed: the fitted curve of the paper's Appendix F. Dotted: its limit. Open circles: its forecasts"
        text += ", with 95 % intervals." if forecast["next"][0]["low"] is not None else "."
    rows = [[line["round"], line["judge"], *ends(line["triple_accuracy"])] for line in table]
    rows += [[place, "forecast", *ends(each)] for place, each in ahead.items()]
    yield Figure(
        "Rounds of introspection",
        text,
        partial(charts.rounds, measured, drawn, list(ahead.items()), None if curve is None else curve.a),
        ["round", "judge", "triple accuracy", "low", "high"],
        rows,
    )


def _candidates(result: dict[str, Any]) -> Iterator[Figure]:
    text = f"Share of its answers at every score by {result['main_judge']['name']}, rounded."
    yield from _shares("Scores of each model", text, "model", result["score_counts"])
    topics = result["topics"][: MOST_BARS // max(1, len(result["score_counts"]))]  # those with most cases
    none = {step: 0 for of in result["score_counts"].values() for step in of}  # so that a score has one colour
    counts = {f"{each['topic']}, {name}": none | of for each in topics for name, of in each["score_counts"].items()}
    yield from _shares("Scores in each topic", text, "topic, model", counts)
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
            partial(charts.stacked, outcomes, ("win", "tie", "loss")),
            ["models, judge", "win", "tie", "loss"],
            [[name, *values] for name, values in outcomes],
        )


def _verdict_ratings(result: dict[str, Any]) -> Iterator[Figure]:
    text = "Share of every score that people gave the verdicts, per criterion (the paper's Figure 5a)."
    for judge, criteria in result.get("verdict_ratings", {}).items():
        counts = {name: record["counts"] for name, record in criteria.items()}
        yield from _shares(f"People's scores of {judge}'s verdicts", text, "criterion", counts)


def _shares(title: str, text: str, of: str, counts: Mapping[str, Mapping[str, int]]) -> Iterator[Figure]:
    """Yield the distributions {name: {score: number}} as bars of shares, if there are some; `of` says what has the names."""
    steps = sorted({score for each in counts.values() for score in each}, key=float)
    rows = [(name, [each.get(score, 0) for score in steps]) for name, each in counts.items() if any(each.values())]
    shares = [(name, [number / sum(numbers) for number in numbers]) for name, numbers in rows]
    if rows:
        draw = partial(charts.stacked, shares, steps)
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
            partial(charts.preferences, bars, names),
            ["criterion", "choice", "share", "low", "high"],
            [[criterion, name, *ends(share)] for criterion, shares, _ in bars for name, share in zip(names, shares)],
        )
