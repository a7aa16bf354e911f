"""Which figures a report shows: what of `meta_evaluate`'s result goes into each, and the numbers behind it."""

from typing import Any

from markupsafe import Markup

from automedeval.meta_evaluation.ratings import OUTCOMES
from automedeval.reports import charts
from automedeval.reports.text import real_judges
from automedeval.stats.agreement import LABELS
from automedeval.stats.growth_curve import AHEAD, Curve


def illustrate(
    result: dict[str, Any], in_series: bool = False, paper_rounds: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Draw every figure there is data for.

    Args:
        result: what `agreement.json` holds.
        in_series: whether the judges are a series, over which curves are drawn.
        paper_rounds: the paper's own rounds, to be drawn beside.

    Returns:
        {"title", "text", "svg", "head", "rows"} each; head and rows are the numbers that were drawn, as a table.
    """
    found = [*_agreement(result, in_series)] if "people" in result else []
    found += [*_rounds(result["rounds"], paper_rounds)] if "rounds" in result else []
    found += [*_candidates(result), *_verdict_ratings(result), *illustrate_preferences(result.get("preferences", []))]
    return [
        # matplotlib escapes the names that it draws
        {"title": title, "text": text, "svg": Markup(svg(f"f{number}")), "head": head, "rows": rows}
        for number, (title, text, svg, head, rows) in enumerate(found)
    ]


def _agreement(result: dict[str, Any], in_series: bool):
    colours = {"judge": charts.BLUE, "baseline": charts.GREY}
    judges = real_judges(result)
    points = [
        (name, e["value"], e["low"], e["high"], colours[record["kind"]])
        for name, record in result["judges"].items()
        if (e := record[record["headline"]])["value"] is not None
    ]
    ceiling = (result["people"].get("ceiling") or {}).get("concordance")
    band = (ceiling["value"], ceiling["low"], ceiling["high"]) if ceiling and ceiling["value"] is not None else None
    if points:
        yield (
            "Agreement with people",
            "Concordance of every judge with 95 % intervals; dotted: one half, what guessing gives"
            + ("; dashed: one rater against the mean of the others." if band else "."),
            lambda prefix: charts.intervals(points, "concordance with people", prefix, band, 0.5),
            ["judge", "concordance", "low", "high"],
            [[name, *map(_number, numbers)] for name, *numbers, _ in points],
        )
    if in_series and len(judges) > 1:
        lines = []
        for measure in ("concordance", "pairwise_accuracy", "listwise_accuracy"):
            name = {True: f"{measure}_expected", False: measure}
            use = [measure == "concordance" or record[measure]["value"] is None for record in judges.values()]
            known = [
                record[record["headline"] if measure == "concordance" else name[expected]]
                for record, expected in zip(judges.values(), use)
            ]
            lines.append(
                (LABELS[measure], [None if e["value"] is None else (e["value"], e["low"], e["high"]) for e in known])
            )
        yield (
            "Agreement over the series",
            "Concordance, pairwise and listwise accuracy of the judges in the order of the files, with 95 % intervals.",
            lambda prefix: charts.series(list(judges), lines, prefix),
            ["judge", *(label for label, _ in lines)],
            [[name, *(_number(p[place] and p[place][0]) for _, p in lines)] for place, name in enumerate(judges)],
        )
    histograms = [("people", result["people"]["scores"])]
    histograms += [(name, record["scores"]) for name, record in judges.items() if record.get("scores")]
    steps = sorted({score for _, counts in histograms for score in counts}, key=float)
    yield (
        "Scores of judges and people",
        "Share of responses at every score, rounded.",
        lambda prefix: charts.distributions(histograms, "score", prefix),
        ["score", *(name for name, _ in histograms)],
        [[score, *(str(counts.get(score, 0)) for _, counts in histograms)] for score in steps],
    )
    for name, record in judges.items():
        bins = record["reliability"]
        if len(bins) > 1:
            yield (
                f"Reliability of {name}",
                "People's mean score in bins of the judge's (expected) score: it should rise steadily.",
                lambda prefix, name=name, bins=bins: charts.reliability([(name, bins)], prefix),
                ["judge's mean", "people's mean", "responses"],
                [[_number(each["judge"]), _number(each["people"]), str(each["n"])] for each in bins],
            )

    yield from _risk({name: record["risk_coverage"] for name, record in judges.items() if record.get("risk_coverage")})


def _risk(curves: dict[str, list[dict[str, Any]]]):
    lines = [
        (name, [(each["coverage"], *(each["risk"][key] for key in ("value", "low", "high"))) for each in points])
        for name, points in curves.items()
    ]
    if lines:
        yield (
            "Risk and coverage",
            "Share of wrong pairs among the verdicts that are kept, where only the surest are: those whose expected scores lie "
            "farthest apart, in the mean over pairs. Of the pairs that people put in an order; cases count alike.",
            lambda prefix: charts.risk_coverage(lines, prefix),
            ["judge", "verdicts kept", "wrong pairs", "low", "high", "cases"],
            [
                [name, f"{at:.0%}", *map(_number, numbers), str(each["cases"])]
                for name, points in lines
                for (at, *numbers), each in zip(points, curves[name])
            ],
        )


def _rounds(rounds: dict[str, Any], paper: dict[str, Any] | None):
    table, forecast = rounds["table"], rounds["forecast"]
    points = [(line["round"], *(line["listwise_accuracy"][key] for key in ("value", "low", "high"))) for line in table]
    measured = [point for point in points if point[1] is not None]
    if not measured:
        return
    curve = None if "reason" in forecast else Curve(*(forecast[name] for name in "abc"))
    ahead = [(each["round"], each["value"], each["low"], each["high"]) for each in forecast.get("next", [])]
    end = len(table) + AHEAD - 1 if curve else len(table) - 1
    published = [share / 100 for share in paper["listwise_accuracy"]] if paper else []
    end = max(end, len(published) - 1)
    drawn = None
    if curve is not None:
        drawn = [(step / 8, curve.at(step / 8)) for step in range(8 * end + 1)]
    text = "Listwise accuracy of the judge after each round, with 95 % intervals"
    if curve is not None:
        text += "; dashed: the curve of the paper's Appendix F fitted to it, open circles: what it forecasts"
        text += ", with 95 % intervals" if ahead[0][2] is not None else ""
        text += "; dotted: its limit"
    text += "; grey: the paper's own rounds (Table 5), other cases and other physicians." if paper else "."
    known, forecasts = {place: rest for place, *rest in points}, {place: rest for place, *rest in ahead}
    nothing = [None] * 3
    rows = [
        [
            str(place),
            table[place]["judge"] if place < len(table) else "forecast",
            *map(_number, known.get(place, nothing)),
        ]
        + [_number(curve and curve.at(place)), *map(_number, forecasts.get(place, nothing)[1:])]
        + ([f"{100 * published[place]:.2f} %" if place < len(published) else "–"] if paper else [])
        for place in range(end + 1)
    ]
    yield (
        "Rounds of introspection",
        text,
        lambda prefix: charts.rounds(measured, prefix, drawn, ahead, curve and curve.a, published),
        [
            "round",
            "judge",
            "measured",
            "low",
            "high",
            "curve",
            "curve low",
            "curve high",
            *(["the paper's"] if paper else []),
        ],
        rows,
    )


def _candidates(result: dict[str, Any]):
    outcomes = []
    for name, table in result["models"].items():
        if "gap" in table:
            continue
        models = list(table["models"])
        shares: list[list[float | None]] = [[None] * len(models) for _ in models]
        for pair in table["pairs"]:
            i, j = (models.index(model) for model in pair["pair"])
            shares[i][j] = pair["win"]["value"] + pair["tie"]["value"] / 2
            shares[j][i] = pair["loss"]["value"] + pair["tie"]["value"] / 2
            if len(models) <= 5:
                values = [pair[label]["value"] for label in ("win", "tie", "loss")]
                outcomes.append((f"{pair['pair'][0]} : {pair['pair'][1]}, {name}", values))
        yield (
            f"Win rates by {name}",
            "Share of cases in which the model of the row is better than that of the column, ties counted half.",
            lambda prefix, models=models, shares=shares: charts.win_matrix(models, shares, prefix),
            ["model", *models],
            [[model, *map(_number, row)] for model, row in zip(models, shares)],
        )
        if table["strengths"]:
            points = [
                (model, e["value"], e["low"], e["high"], charts.BLUE)
                for model, e in sorted(table["strengths"].items(), key=lambda item: -item[1]["value"])
            ]
            yield (
                f"Strengths by {name}",
                "Bradley–Terry strengths in log odds against the average model, with 95 % intervals.",
                lambda prefix, points=points: charts.intervals(
                    points, "log odds against the average", prefix, reference=0.0
                ),
                ["model", "strength", "low", "high"],
                [[model, *map(_number, numbers)] for model, *numbers, _ in points],
            )
    if outcomes:
        outcomes.sort(key=lambda each: each[0])
        yield (
            "Wins, ties and losses",
            "For every pair of models, the share of cases that the first wins, ties and loses (the paper's Figure 4).",
            lambda prefix: charts.stacked(outcomes, ("win", "tie", "loss"), prefix),
            ["models, judge", "win", "tie", "loss"],
            [[name, *map(_number, values)] for name, values in outcomes],
        )


def _verdict_ratings(result: dict[str, Any]):
    for judge, criteria in result.get("verdict_ratings", {}).items():
        scores = sorted({score for record in criteria.values() for score in record["counts"]}, key=float)
        counts = [(name, [record["counts"].get(score, 0) for score in scores]) for name, record in criteria.items()]
        shares = [(name, [count / sum(given) for count in given]) for name, given in counts]
        yield (
            f"People's scores of {judge}'s verdicts",
            "Share of every score that people gave the verdicts, per criterion (the paper's Figure 5a).",
            lambda prefix, shares=shares, scores=scores: charts.stacked(shares, scores, prefix),
            ["criterion", *scores],
            [[name, *map(str, given)] for name, given in counts],
        )


def illustrate_preferences(preferences: list[dict[str, Any]]):
    """Yield a figure for every two judges that people were to prefer one of: `result["preferences"]` of `agreement.json`."""
    for compared in preferences:
        names = [compared["judges"][0], "tie", compared["judges"][1]]
        bars = [
            (
                criterion,
                [tuple(record[name][key] for key in ("value", "low", "high")) for name in OUTCOMES],
                list(record["annotators"].values()),
            )
            for criterion, record in compared["criteria"].items()
        ]
        yield (
            f"Preference between {names[0]} and {names[2]}",
            "Share of people's choices for either judge's verdict and for neither, per criterion, with 95 % intervals over "
            "cases; small circles: every annotator's own share (the paper's Figure 5b).",
            lambda prefix, bars=bars, names=names: charts.preferences(bars, names, prefix),
            ["criterion", "choice", "share", "low", "high"],
            [
                [criterion, name, *map(_number, numbers)]
                for criterion, shares, _ in bars
                for name, numbers in zip(names, shares)
            ],
        )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
