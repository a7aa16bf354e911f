"""Write the report of a comparison in sentences, figures and tables, as an HTML page and a short Markdown summary."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from automedeval.meta_evaluation import charts
from automedeval.meta_evaluation.charts import Figure
from automedeval.meta_evaluation.comparison.compare import NO_SCORES
from automedeval.meta_evaluation.page import render_report
from automedeval.meta_evaluation.report.changes import WORDS
from automedeval.meta_evaluation.report.text import layout as layout_of
from automedeval.records.text import UNDEFINED, ends, number, span

KINDS = {"classical": "ratings alone", "naive": "judge alone", "prediction_powered": "ratings and judge"}
COLOURS_OF_KINDS = (charts.GREY, charts.ORANGE, charts.BLUE)
JUDGE_ALONE = {"naive": KINDS["naive"]}  # without ratings
ASSUMPTION = (
    "This assumes that the rated cases are a random draw of all cases, made before any of them was rated. If they were chosen "
    "in another way, the intervals are not valid, with or without a judge."
)
MOST_TIMES, MOST_CASES = 10, 5_000  # of what is there, and in all: a plan for more cases is none
MOST_SHOWN = 100_000  # cases that a table counts: of more the exact number says nothing
EQUAL = "as far as these cases can tell"
Estimates = dict[str, Any]  # what `Powered.to_dict` holds


def words(result: dict[str, Any]) -> list[str]:
    """Return sentences on which candidate is better, what changed, how much a judge adds, and whether more ratings would tell.

    Two candidates have sentences of their own. Of more, one sentence says which is best and others sum up the pairs, so that
    the first screen holds the answer however many candidates there are; the tables have every pair.
    """
    lead, pairs = result["lead"], result["pairs"]
    basis = Basis(lead, bool(result["cases"]["rated_cases"]))
    if len(pairs) > 1:
        sentences = _of_several(pairs, basis)
    elif pairs:
        sentences = _of_two(pairs[0], basis)
    else:
        sentences = _gain(result["all"]["mean"][lead], lead, "the mean score of all responses")
    sentences[1:1] = _changed(result["changes"])
    return [*sentences, *(f"{name.rstrip('?')}: {text}" for name, text in result["facts"])]


@dataclass(frozen=True)
class Basis:
    """What the first screen rests on: ratings and the leading judge, or the judge alone where nothing is rated."""

    lead: str
    rated: bool

    @property
    def rate(self) -> str:
        return "people rate" if self.rated else f"{self.lead} scores"

    def of(self, figure: Estimates) -> Estimates:
        """Return the estimate of a figure that counts."""
        return figure["prediction_powered" if self.rated else "naive"]

    def more(self, pair: dict[str, Any]) -> int | None:
        """Return about how many more cases would tell a pair apart; None where it is about equal, as far as these tell."""
        plan, figure = pair["plan"], pair["difference"][self.lead]
        if "gap" in plan:
            return None
        needed = plan["with"].get(self.lead, {}).get("value") or plan["without"]["value"]
        there = figure["rated"] if self.rated else figure["naive"]["n"]
        if needed is None or needed > min(MOST_TIMES * there, MOST_CASES):
            return None
        return int(float(f"{max(1, needed - there):.1e}"))

    def would_tell(self, counts: Sequence[int]) -> str:
        return f"about {_range(counts)} more {'rated ones ' if self.rated else ''}would tell"


def _changed(changes: dict[str, Any] | None) -> list[str]:
    """Return what changed from the old version to the new one, in one sentence."""
    if changes is None:
        return []
    of_judges = changes["of"] == "judge"
    parts = [
        f"{changes[name]:,} {words[of_judges]}"
        for name, words in WORDS.items()
        if changes[name] or name in ("won", "lost")
    ]
    what = "answers" if of_judges else "cases"
    versions = f"{changes['new']} against {changes['old']}" + ("" if of_judges else f", by {changes['judge']}")
    return [f"{versions}: of {changes['compared']:,} {what} {', '.join(parts)}."]


def _of_two(pair: dict[str, Any], basis: Basis) -> list[str]:
    first, second = (f"“{name}”" for name in pair["pair"])
    lead, figure = basis.lead, pair["difference"][basis.lead]
    estimate = basis.of(figure)
    if estimate["low"] is None:
        return [f"{first} and {second} cannot be compared: {estimate.get('reason', 'no interval')}."]
    by = f"by ratings and {lead}, {span(figure['classical'])} by ratings alone" if basis.rated else f"by {lead} alone"
    by = "by ratings" if basis.rated and not figure["unrated"] else by
    size = f"{span(estimate)} points {by}."
    if _clear(estimate):
        better, worse = (first, second) if estimate["value"] > 0 else (second, first)
        sentences = [f"{basis.rate[0].upper()}{basis.rate[1:]} {better} above {worse}: the difference is {size}"]
    else:
        more = basis.more(pair)
        equal = f"{first} and {second} are about equal, {EQUAL}."
        few = f"Too few cases to tell {first} from {second}; {basis.would_tell([more])}." if more else equal
        sentences = [few, f"{first} less {second} is {size}"]
    if _apart(figure["naive"], figure["prediction_powered"]):
        sentences.append(
            f"By {lead} alone it is {span(figure['naive'])}. The intervals do not overlap: {lead} is biased."
        )
    return [*sentences, *_gain(figure, lead, f"the difference of {first} and {second}")]


def _of_several(pairs: list[dict[str, Any]], basis: Basis) -> list[str]:
    lead = basis.lead
    figures = {tuple(pair["pair"]): pair["difference"][lead] for pair in pairs}
    estimates = {names: basis.of(figure) for names, figure in figures.items()}
    defined = {names: estimate for names, estimate in estimates.items() if estimate["low"] is not None}
    if not defined:
        return [f"The candidates cannot be compared: {next(iter(estimates.values())).get('reason', 'no interval')}."]
    clear = {names for names, estimate in defined.items() if _clear(estimate)}
    sentences = [
        _best(estimates, defined, clear, basis.rate),
        f"{len(clear)} of {len(pairs)} pairs of candidates differ clearly, by "
        + (f"ratings and {lead} together." if basis.rated else f"{lead} alone."),
    ]
    unclear = [basis.more(pair) for pair in pairs if tuple(pair["pair"]) in defined.keys() - clear]
    if few := [more for more in unclear if more is not None]:
        sentences.append(f"Too few cases to tell in {len(few)} of them; {basis.would_tell(few)}.")
    if len(few) < len(unclear):
        sentences.append(f"In {len(unclear) - len(few)} of them the two are about equal, {EQUAL}.")
    if len(defined) < len(pairs):
        sentences.append(f"{len(pairs) - len(defined)} pairs cannot be compared; comparison.json says why.")
    biased = sum(_apart(figures[names]["naive"], figures[names]["prediction_powered"]) for names in defined)
    if biased:
        sentences.append(
            f"In {biased} of {len(defined)} pairs the interval by {lead} alone does not overlap that with ratings: "
            f"{lead} is biased."
        )
    worth = [figure["worth"]["value"] for figure in figures.values() if figure["worth"] and figure["unrated"]]
    if worth:
        rated = _range([figure["rated"] for figure in figures.values() if figure["worth"]])
        sentences.append(
            f"With {lead}, {rated} rated cases give a difference as precisely as {_range(worth)} without a judge."
        )
    return sentences


def _best(estimates: dict[tuple, Estimates], defined: dict[tuple, Estimates], clear: set[tuple], rate: str) -> str:
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
        return f"“{first}” is best: {rate} it above each of the {len(names) - 1} other candidates."
    others = " and ".join(level) if len(level) <= 2 else f"{len(level)} other candidates"
    return f"No candidate is shown to be best. “{first}” is first, without a clear difference from {others}."


def _range(numbers: Sequence[float]) -> str:
    """Return "14 to 17", rounded."""
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (min(numbers), max(numbers))))


def _clear(estimate: Estimates) -> bool:
    return estimate["low"] is not None and (estimate["low"] > 0 or estimate["high"] < 0)


def _apart(naive: dict[str, Any], corrected: dict[str, Any]) -> bool:
    """Return whether the intervals of the judge alone and of the corrected figure do not overlap."""
    if naive["low"] is None or corrected["low"] is None:
        return False
    return naive["high"] < corrected["low"] or naive["low"] > corrected["high"]


def _gain(figure: Estimates, lead: str, what: str) -> list[str]:
    worth = figure["worth"]
    if worth is None or not figure["unrated"]:  # a judge adds nothing where all is rated
        return []
    much = f"{worth['value']:.0f} ({worth['low']:.0f} to {worth['high']:.0f})"
    return [f"With {lead}, {figure['rated']} rated cases give {what} as precisely as {much} without a judge."]


def _count(numbers: dict[str, int | None]) -> str:
    """Return a number of rated cases, and those at the ends of the difference's interval where it is estimated."""
    counts = [numbers[name] for name in ("value", "low", "high") if name in numbers]
    many = f"over {MOST_SHOWN:,}"
    value, *ends = ("none" if number is None else f"{number:,}" if number <= MOST_SHOWN else many for number in counts)
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
            counts = (each and _count(each) for each in (plan["without"], *helped))
            cells = [
                f"{plan['difference']:z.2f}",
                f"{100 * plan['power']:.0f} %",
                *(each or UNDEFINED for each in counts),
            ]
        rows.append((" : ".join(pair["pair"]), cells))
    return rows


def illustrate(result: dict[str, Any]) -> Iterator[Figure]:
    """Yield every figure of two points or more."""
    lead, kinds, rater = result["lead"], KINDS, "people give"
    text = f"Three estimates with 95 % intervals: by ratings alone, by {lead} alone, and by both together."
    if not result["cases"]["rated_cases"]:
        kinds, rater, text = JUDGE_ALONE, f"{lead} gives", f"By {lead} alone, with 95 % intervals."
    pairs = {" : ".join(pair["pair"]): pair for pair in result["pairs"]}
    means = {"all responses": result["all"], **result["models"]}
    groups = (
        ("Mean scores", f"mean score that {rater}", means, "mean", None),
        ("Differences", "difference of mean scores", pairs, "difference", 0.0),
        ("Win rates", "share of cases that the first wins", pairs, "win_rate", 0.5),
    )
    for title, label, records, measure, zero in groups:
        rows = [(name, [record[measure][lead][kind] for kind in kinds]) for name, record in records.items()]
        if sum(estimate["value"] is not None for _, estimates in rows for estimate in estimates) > 1:
            drawn = [(name, list(zip(estimates, COLOURS_OF_KINDS))) for name, estimates in rows]
            draw = partial(charts.intervals, drawn, label, zero, kinds=list(kinds.values()))
            numbers = [[name, *(span(estimate, 3) for estimate in estimates)] for name, estimates in rows]
            yield Figure(title, text, draw, ["what", *kinds.values()], numbers)
    first = next(iter(pairs.values()), None)
    measured = first["difference"] if first else result["all"]["mean"]
    of = f"the difference of {' and '.join(first['pair'])}" if first else "the mean score of all responses"
    worth = [(name, each["worth"]) for name, each in measured.items() if each["worth"]]
    if len(worth) > 1:  # of one judge the sentences have it
        rated = float(next(iter(measured.values()))["rated"])
        yield Figure(
            "Rated cases without a judge for the same precision",
            f"How many rated cases would give {of} as precisely without a judge. Dotted: the cases that are rated.",
            partial(charts.intervals, [(name, [(each, charts.BLUE)]) for name, each in worth], "rated cases", rated),
            ["judge", "rated cases", "low", "high"],
            [[name, *(number(value, 1) for value in ends(estimate))] for name, estimate in worth],
        )
    about = "Concordance on the rated cases. Dotted: one half, which is what guessing gives."
    agreed = [(name, record["concordance"], charts.BLUE) for name, record in result["judges"].items()]
    agreed = agreed if len(agreed) > 1 else []
    label, head = "concordance with people", ("judge", "concordance")
    yield from charts.estimates("Agreement with people", about, agreed, label, 0.5, head=head)


def render(result: dict[str, Any], title: str, grid: dict[str, Any]) -> dict[str, str]:
    """Render what `comparison.json` holds, and `Changes.grid`, as {"comparison.html": text, "comparison.md": text}."""
    tables, rated = rows_of_tables(result), result["cases"]["rated_cases"]
    kinds, layout = KINDS if rated else JUDGE_ALONE, layout_of(result["judges"].values())
    means = [(what, figure) for what, judge, figure in tables["Mean scores"] if judge == result["lead"]]
    rows = [(what, *(span(figure[kind], 3) for kind in kinds)) for what, figure in means]
    return render_report(
        "automedeval.meta_evaluation", "comparison", title, words=words(result),
        notes=[*([ASSUMPTION] if rated else []), *result["notes"]],
        figures=[replace(figure, text=f"{figure.text} {layout}.") for figure in illustrate(result)],
        settings=result["settings"], scripts=("grid.js",) if grid["grid"] else (),
        main_table=(("mean score", *kinds.values()), rows), result=result, tables=tables, plans=rows_of_plans(result),
        kinds=kinds, rated=rated, layout=layout, **grid,
    )  # fmt: skip
