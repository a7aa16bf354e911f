"""Write the report of a comparison in sentences, bars, figures and tables, as an HTML page and a short Markdown summary."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from automedeval.meta_evaluation import charts
from automedeval.meta_evaluation.charts import Figure
from automedeval.meta_evaluation.comparison.compare import NO_SCORES
from automedeval.meta_evaluation.facts import best_of
from automedeval.meta_evaluation.page import Bars, Table, render_report
from automedeval.meta_evaluation.report.changes import WORDS
from automedeval.meta_evaluation.report.text import is_clear
from automedeval.meta_evaluation.report.text import layout as layout_of
from automedeval.records.text import UNDEFINED, number, span

KINDS = {"classical": "ratings alone", "naive": "judge alone", "prediction_powered": "ratings and judge"}
COLOURS_OF_KINDS = (charts.GREY, charts.ORANGE, charts.BLUE)
JUDGE_ALONE = {"naive": KINDS["naive"]}  # without ratings
ASSUMPTION = (
    "This assumes that the rated cases are a random draw of all cases, made before any of them was rated. If they were chosen "
    "in another way, the intervals are not valid, with or without a judge."
)
MOST_TIMES, MOST_CASES = 10, 5_000  # of what is there, and in all: a plan for more cases is none
MOST_SHOWN = 100_000  # cases that a table counts: of more the exact number says nothing
Result = dict[str, Any]  # what comparison.json holds


def words(result: Result) -> list[str]:
    """Return sentences on which model is better, what changed, how much a judge adds, and whether more ratings would tell."""
    lead, pairs, rated = result["lead"], result["pairs"], result["cases"]["rated_cases"]
    kind, alone = ("prediction_powered", f"ratings and {lead} together") if rated else ("naive", f"{lead} alone")
    changed = _changed(result["changes"])
    if not pairs:
        return [
            "There is one model, and nothing to compare it with.",
            *changed,
            *_gain([result["all"]["mean"][lead]], lead, "the mean score of all responses"),
        ]
    figures = [pair["difference"][lead] for pair in pairs]
    defined = [(pair, figure) for pair, figure in zip(pairs, figures) if figure[kind]["low"] is not None]
    if not defined:
        (estimate, pair), reason = (figures[0][kind], pairs[0]["pair"]), figures[0][kind].get("reason", "no interval")
        if len(pairs) == 1 and not rated and estimate["value"] and estimate["n"] > 5:  # a sign test of six has p < 0.05
            better, worse = pair if estimate["value"] > 0 else pair[::-1]
            points = f"{abs(estimate['value']):g} point{'s' * (abs(estimate['value']) != 1)} in each of {estimate['n']} cases"
            return [f"{better} scores higher than {worse}, by {points}.", *changed]
        return [f"The models cannot be compared: {reason}.", *changed]
    unclear = [_more(pair, lead, rated) for pair, figure in defined if not is_clear(figure[kind])]
    few, equal = [more for more in unclear if more is not None], unclear.count(None)
    tell = f"about {_range(few)} more {'rated ones ' * bool(rated)}would tell." if few else ""
    both = " and ".join(pairs[0]["pair"])
    if len(pairs) > 1:
        sentences = [_best(pairs, kind, lead), *changed]
        sentences.append(f"{len(defined) - len(unclear)} of {len(pairs)} pairs of models differ clearly, by {alone}.")
        sentences += [f"Too few cases to tell in {len(few)} of them; {tell}"] * bool(few)
        sentences += [f"In {equal} of them the two are about equal, as far as these cases can tell."] * bool(equal)
        if len(defined) < len(pairs):
            sentences.append(f"{len(pairs) - len(defined)} pairs cannot be compared; comparison.json says why.")
    else:
        too_few = f"Too few cases to tell {' from '.join(pairs[0]['pair'])}; {tell}"
        level = too_few if few else f"{both} are about equal, as far as these cases can tell."
        (figure,) = figures
        size = f"{span(figure[kind])} points by {alone}"
        size += f", {span(figure['classical'])} by ratings alone" if rated and figure["unrated"] else ""
        sentences = [level if unclear else _best(pairs, kind, lead), *changed]
        sentences.append(f"The difference of {both} is {size}.")
    biased = sum(_apart(figure["naive"], figure["prediction_powered"]) for _, figure in defined)
    if biased:
        sentences.append(
            f"In {biased} of {len(defined)} pairs the interval by {lead} alone does not overlap that with ratings: "
            f"{lead} is biased."
        )
    return sentences + _gain(figures, lead, f"the difference of {both}" if len(pairs) == 1 else "a difference")


def _more(pair: Result, lead: str, rated: bool) -> int | None:
    """Return about how many more cases would tell a pair apart; None where it is about equal, as far as these tell."""
    plan, figure = pair["plan"], pair["difference"][lead]
    if "gap" in plan:
        return None
    needed = plan["with"].get(lead, {}).get("value") or plan["without"]["value"]
    there = figure["rated"] if rated else figure["naive"]["n"]
    if needed is None or needed > min(MOST_TIMES * there, MOST_CASES):
        return None
    return int(float(f"{max(1, needed - there):.1e}"))


def _changed(changes: Result | None) -> list[str]:
    """Return what changed from the old version to the new one, in one sentence."""
    if changes is None:
        return []
    of_judges = changes["of"] == "judge"
    counts = {name: changes[name] for name in WORDS if changes[name] or name in ("won", "lost")}
    said = ", ".join(f"{count:,} {WORDS[name][of_judges]}" for name, count in counts.items())
    by, what = ("", "answers") if of_judges else (f", by {changes['judge']}", "cases")
    return [f"{changes['new']} against {changes['old']}{by}: of {changes['compared']:,} {what} {said}."]


def _best(pairs: Sequence[Result], kind: str, lead: str) -> str:
    """Say which model is best: the one that is first in most pairs, if it is clearly first in all of its own."""
    wins, ahead = dict.fromkeys((name for pair in pairs for name in pair["pair"]), 0), set()
    for pair in pairs:
        estimate = pair["difference"][lead][kind]
        if estimate["low"] is not None:
            better, worse = pair["pair"] if estimate["value"] > 0 else reversed(pair["pair"])
            wins[better] += 1
            ahead |= {(better, worse)} if is_clear(estimate) else set()
    first, *others = sorted(wins, key=lambda name: -wins[name])
    level = [name for name in others if (first, name) not in ahead]
    higher = "scores higher" if kind == "naive" else "is rated higher"
    return best_of([first, *others], level, higher, "is shown to be best")


def _range(numbers: Sequence[float]) -> str:
    """Return "14 to 17", rounded."""
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (min(numbers), max(numbers))))


def _apart(naive: Result, corrected: Result) -> bool:
    """Return whether the intervals of the judge alone and of the corrected figure do not overlap."""
    if naive["low"] is None or corrected["low"] is None:
        return False
    return naive["high"] < corrected["low"] or naive["low"] > corrected["high"]


def _gain(figures: Sequence[Result], lead: str, what: str) -> list[str]:
    """Say how many ratings a judge saves; nothing where all is rated."""
    worth = [(each["worth"]["value"], each["rated"]) for each in figures if each["worth"] and each["unrated"]]
    if not worth:
        return []
    much, rated = map(_range, zip(*worth))
    return [f"With {lead}, {rated} rated cases give {what} as precisely as {much} without a judge."]


def _count(numbers: dict[str, int | None]) -> str:
    """Return a number of rated cases, and those at the ends of the difference's interval where it is estimated."""
    counts = [numbers[name] for name in ("value", "low", "high") if name in numbers]
    many = f"over {MOST_SHOWN:,}"
    value, *ends = ("none" if number is None else f"{number:,}" if number <= MOST_SHOWN else many for number in counts)
    return f"{value} ({ends[0]} to {ends[1]})" if ends else value


def groups(result: Result) -> list[tuple[str, str, dict[str, dict[str, Result]]]]:
    """Return (title, what is measured, name → judge → figure) of the means and of the pairs."""
    means = {name: each["mean"] for name, each in {"all responses": result["all"], **result["models"]}.items()}
    rater = "people give" if result["cases"]["rated_cases"] else f"{result['lead']} gives"
    found = [("Mean scores", f"mean score that {rater}", means)]
    for title, label, key in (
        ("Differences of mean scores", "difference of mean scores", "difference"),
        ("Shares of pairs won, ties counted half", "share of pairs that the first wins", "win_rate"),
    ):
        found += [(title, label, {" : ".join(pair["pair"]): pair[key] for pair in result["pairs"]})]
    return [group for group in found if group[2]]


def tables(result: Result) -> list[Table]:
    """Return the mean scores by the leading judge, for the summary, and every figure by every judge."""
    rated, lead, layout = result["cases"]["rated_cases"], result["lead"], layout_of(result["judges"].values())
    kinds = KINDS if rated else JUDGE_ALONE
    head = ["what", "judge", *kinds.values(), *(["weight of the judge", "rated", "equivalent"] if rated else [])]
    found = []
    for title, _, records in groups(result):
        rows = []
        for name, judge, figure in ((name, *each) for name, record in records.items() for each in record.items()):
            if title != "Mean scores" or judge == lead or figure["prediction_powered"].get("reason") != NO_SCORES:
                without = f", {figure['rated_without_verdict']} without a verdict" * bool(
                    figure["rated_without_verdict"]
                )
                more = [number(figure["weight"], 2), f"{figure['rated']}{without}", span(figure["worth"], 0)]
                rows.append([name, judge, *(span(figure[kind], 3) for kind in kinds), *(more if rated else [])])
        found.append(Table(head, rows, f"{title}. {layout}"))
    main = [[row[0], *row[2 : 2 + len(kinds)]] for row in found[0].rows if row[1] == lead]
    found = [Table(["mean score", *kinds.values()], main), *found]
    if rated and result["pairs"]:
        rows = []
        for pair in result["pairs"]:
            plan = pair["plan"]
            cells = [plan.get("gap"), *[UNDEFINED] * (2 + len(result["judges"]))]
            if "gap" not in plan:
                counts = [plan["without"], *(plan["with"].get(name) for name in result["judges"])]
                cells = [f"{plan['difference']:z.2f}", f"{100 * plan['power']:.0f} %"]
                cells += [_count(each) if each else UNDEFINED for each in counts]
            rows.append([" : ".join(pair["pair"]), *cells])
        caption = "Rated cases needed to detect the difference; in brackets, at the ends of its interval"
        head = ["models", "difference", "power", "without a judge", *result["judges"]]
        found.append(Table(head, rows, f"{caption}. {layout}"))
    if rated:
        rows = [[name, span(r["concordance"], 3), r["cases_with_verdict"]] for name, r in result["judges"].items()]
        head = ["judge", "concordance with people", "cases with a verdict"]
        found.append(Table(head, rows, f"The judges on the rated cases. {layout}"))
    return found


def illustrate(result: Result) -> Iterator[Figure]:
    """Yield every figure of two points or more."""
    lead, kinds, rated = result["lead"], KINDS, result["cases"]["rated_cases"]
    text = f"Three estimates with 95 % intervals: by ratings alone, by {lead} alone, and by both together."
    if not rated:
        kinds, text = JUDGE_ALONE, f"By {lead} alone, with 95 % intervals."
    for (title, label, records), zero in zip(groups(result), (None, 0.0, 0.5)):
        rows = [(name, [record[lead][kind] for kind in kinds]) for name, record in records.items()]
        if sum(estimate["value"] is not None for _, estimates in rows for estimate in estimates) > 1:
            drawn = [(name, list(zip(estimates, COLOURS_OF_KINDS))) for name, estimates in rows]
            draw = partial(charts.intervals, drawn, label, zero, kinds=list(kinds.values()))
            numbers = [[name, *(span(estimate, 3) for estimate in estimates)] for name, estimates in rows]
            yield Figure(title, text, draw, ["what", *kinds.values()], numbers)
    first = next(iter(result["pairs"]), None)
    measured = first["difference"] if first else result["all"]["mean"]
    of = f"the difference of {' and '.join(first['pair'])}" if first else "the mean score of all responses"
    worth = [(name, each["worth"], charts.BLUE) for name, each in measured.items()]
    about = f"Rated cases that would give {of} as precisely without a judge. Dotted: the cases that are rated."
    title, head = "Rated cases without a judge for the same precision", ("judge", "rated cases")
    yield from charts.estimates(title, about, worth, "rated cases", float(measured[lead]["rated"]), head=head)
    about = "Concordance on the rated cases. Dotted: one half, which is what guessing gives."
    agreed = [(name, record["concordance"], charts.BLUE) for name, record in result["judges"].items()]
    label, head = "concordance with people", ("judge", "concordance")
    yield from charts.estimates("Agreement with people", about, agreed, label, 0.5, head=head)


def render(result: Result, title: str, grid: dict[str, Any], scale: tuple[float, float] | None) -> dict[str, str]:
    """Render what `comparison.json` holds as {"comparison.html": text, "comparison.md": text}.

    Args:
        grid: of `Changes.grid`.
        scale: that of the leading judge's scores.
    """
    if result["cases"]["rated_cases"] and not result["judges"][result["lead"]]["on_scale"]:
        scale = None  # the means are on people's scale
    lead, rated = result["lead"], result["cases"]["rated_cases"]
    kind, layout = "prediction_powered" if rated else "naive", layout_of(result["judges"].values())
    means = [(name, each["mean"][lead][kind], "") for name, each in result["models"].items()]
    means = sorted((each for each in means if each[1]["value"] is not None), key=lambda each: -each[1]["value"])
    bars = Bars(f"Mean score, from {scale[0]:g} to {scale[1]:g}, with 95 % intervals", means, scale) if scale else None
    return render_report(
        "automedeval.meta_evaluation", "comparison", title, words=words(result), facts=dict(result["facts"]), bars=bars,
        notes=[*([ASSUMPTION] if rated else []), *result["notes"]], tables=tables(result),
        figures=[replace(figure, text=f"{figure.text} {layout}.") for figure in illustrate(result)],
        settings=result["settings"], scripts=("report.js", "grid.js") if grid["grid"] else ("report.js",), result=result,
        rated=rated, **grid,
    )  # fmt: skip
