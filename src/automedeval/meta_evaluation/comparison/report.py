"""Write the report of a comparison in sentences, bars and tables, as an HTML page and a short Markdown summary."""

from collections.abc import Sequence
from typing import Any

from automedeval.meta_evaluation.comparison.compare import NO_SCORES
from automedeval.meta_evaluation.facts import SHOWN
from automedeval.meta_evaluation.page import Bars, PageTable, render_report
from automedeval.meta_evaluation.report.changes import WORDS
from automedeval.meta_evaluation.report.text import is_clear
from automedeval.records.text import number, span

KINDS = {
    "classical": "ratings alone",
    "naive": "judge alone",
    "prediction_powered": "ratings and judge",
}
JUDGE_ALONE = {"naive": KINDS["naive"]}  # without ratings
ASSUMPTION = (
    "This assumes that the rated cases are a random draw of all cases, made before any of them was rated. If they were chosen "
    "in another way, the intervals are not valid, with or without a judge."
)
Result = dict[str, Any]  # what comparison.json holds


def comparison_sentences(result: Result) -> list[str]:
    """Return sentences on which model is better, what changed, how much a judge adds, and whether more ratings would tell."""
    lead, pairs, rated = result["lead"], result["pairs"], result["cases"]["rated_cases"]
    kind, alone = (
        ("prediction_powered", f"ratings and {lead} together")
        if rated
        else ("naive", f"{lead} alone")
    )
    changed = _changed(result["changes"])
    if not pairs:
        means = [each["mean"][lead] for each in result["models"].values()]
        why = "There is one model, and nothing to compare it with."
        if len(means) > 1:
            why = f"The models are not compared: {result['notes'][-1]}."
        return [why, *changed, *_gain(means, lead, "its mean score")]
    figures = [pair["difference"][lead] for pair in pairs]
    said = [_beside(pair["pair"], figure[kind], kind) for pair, figure in zip(pairs, figures)]
    more = [f"{len(said) - SHOWN} more models stand below"] if len(said) > SHOWN else []
    sentences = [f"{'; '.join(said[:SHOWN] + more)}.", *changed]
    what = "a difference"
    if len(pairs) == 1 and figures[0][kind]["low"] is not None:
        what = f"the difference of {' and '.join(pairs[0]['pair'])}"
        size = f"{span(figures[0][kind])} points by {alone}"
        own = "estimated by itself, so that the mean scores may differ by another amount"
        size += (
            f", {span(figures[0]['classical'])} by ratings alone; {own}"
            if rated and figures[0]["unrated"]
            else ""
        )
        sentences.append(f"T{what[1:]} is {size}.")
    return sentences + _gain(figures, lead, what)


def _beside(pair: Sequence[str], estimate: Result, kind: str) -> str:
    """Say whether a model is above or below the baseline, the first of the pair."""
    baseline, name = pair
    if estimate["low"] is not None and not is_clear(estimate):
        return f"{name} is not clearly different from {baseline}"
    verb, way = (
        "scores" if kind == "naive" else "is rated",
        "lower" if (estimate["value"] or 0) > 0 else "higher",
    )
    if estimate["low"] is not None:
        return f"{name} {verb} {way} than {baseline}"
    # A sign test of six equal signs has p < 0.05:
    if kind == "naive" and estimate["value"] and estimate["n"] > 5:
        points = f"{abs(estimate['value']):g} point{'s' * (abs(estimate['value']) != 1)}"
        return f"{name} {verb} {way} than {baseline}, by {points} in each of {estimate['n']} cases"
    return f"{name} cannot be compared with {baseline}: {estimate.get('reason', 'no interval')}"


def _changed(records: Sequence[Result]) -> list[str]:
    """Return what changed from the old version to each new one, in a sentence each."""
    sentences = []
    for each in records[:SHOWN]:
        counts = {name: each[name] for name in WORDS if each[name] or name in ("won", "lost")}
        said = ", ".join(f"{count:,} {WORDS[name]}" for name, count in counts.items())
        by = f"{each['new']} against {each['old']}, by {each['judge']}"
        sentences.append(f"{by}: of {each['compared']:,} cases {said}.")
    return sentences


def _range(numbers: Sequence[float]) -> str:
    """Return "14 to 17", rounded."""
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (min(numbers), max(numbers))))


def _gain(figures: Sequence[Result], lead: str, what: str) -> list[str]:
    """Say how many ratings a judge saves; nothing where all is rated."""
    worth = [
        (each["worth"], each["rated"]) for each in figures if each["worth"] and each["unrated"]
    ]
    if not worth:
        return []
    much, rated = map(_range, zip(*worth))
    return [f"With {lead}, {rated} rated cases give {what} as precisely as {much} without a judge."]


def tables(result: Result) -> list[PageTable]:
    """Return the mean scores by the leading judge, for the summary, and every figure by every judge."""
    rated, lead = result["cases"]["rated_cases"], result["lead"]
    kinds = KINDS if rated else JUDGE_ALONE
    head = [
        "what",
        "judge",
        *kinds.values(),
        *(["weight of the judge", "rated", "equivalent"] if rated else []),
    ]
    groups = {"Mean scores": {name: each["mean"] for name, each in result["models"].items()}}
    for title, key in (
        (
            "Mean differences, of people by those who rated both, each estimated by itself",
            "difference",
        ),
        ("Shares of pairs won, ties counted half", "win_rate"),
    ):
        groups |= {title: {" : ".join(pair["pair"]): pair[key] for pair in result["pairs"]}}
    found = []
    for title, records in groups.items():
        rows = []
        for name, judge, figure in (
            (name, *each) for name, record in records.items() for each in record.items()
        ):
            if (
                title != "Mean scores"
                or judge == lead
                or figure["prediction_powered"].get("reason") != NO_SCORES
            ):
                without = f", {figure['rated_without_verdict']} without a verdict" * bool(
                    figure["rated_without_verdict"]
                )
                more = [
                    number(figure["weight"], 2),
                    f"{figure['rated']}{without}",
                    number(figure["worth"], 0),
                ]
                rows.append(
                    [
                        name,
                        judge,
                        *(span(figure[kind], 3) for kind in kinds),
                        *(more if rated else []),
                    ]
                )
        if records:
            found.append(PageTable(head, rows, title))
    main = [[row[0], *row[2 : 2 + len(kinds)]] for row in found[0].rows if row[1] == lead]
    return [PageTable(["mean score", *kinds.values()], main), *found]


def comparison_page(
    result: Result, title: str, grid: dict[str, Any], scale: tuple[float, float] | None
) -> dict[str, str]:
    """Render what `comparison.json` holds as {"comparison.html": text, "comparison.md": text}.

    Args:
        grid: what `grid_of` returns.
        scale: that of the leading judge's scores.
    """
    if result["cases"]["rated_cases"] and not result["judges"][result["lead"]]["on_scale"]:
        scale = None  # the means are on people's scale
    lead, rated = result["lead"], result["cases"]["rated_cases"]
    kind = "prediction_powered" if rated else "naive"
    means = [(name, each["mean"][lead][kind], "") for name, each in result["models"].items()]
    means = sorted(
        (each for each in means if each[1]["value"] is not None), key=lambda each: -each[1]["value"]
    )
    bars = (
        Bars(f"Mean score, {scale[0]:g} to {scale[1]:g}, with 95 % intervals", means, scale)
        if scale
        else None
    )
    return render_report(
        "comparison", title, words=comparison_sentences(result), facts=result["facts"],
        bars=bars, notes=[*([ASSUMPTION] if rated else []), *result["notes"]], tables=tables(result),
        settings=result["settings"], scripts=("report.js", "grid.js") if grid["grid"] else ("report.js",), result=result,
        rated=rated, **grid,
    )  # fmt: skip
