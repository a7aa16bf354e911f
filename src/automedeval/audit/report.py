"""Write the report of an audit in figures and sentences, as an HTML page and a short Markdown summary."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from automedeval.audit.evidence import evidence_table
from automedeval.audit.fairness import fairness_table
from automedeval.audit.perturbations import CONTROL
from automedeval.audit.thresholds import FAILED
from automedeval.reports import charts
from automedeval.reports.charts import BLUE, GREY, ORANGE, Figure
from automedeval.reports.page import Table, render_report
from automedeval.reports.text import UNDEFINED, estimates_in, percent, shown

LABELS = {  # short enough to stand beside a figure whole
    "flips": "order decides who is better",
    "changes": "… with ties counted",
    "flips_expected": "… from expected scores",
    "first_wins": "the one shown first wins",
    "prefers_longer": "longer is put first",
    "longer_wins": "longer wins, all equal",
    "identical": "the same answer twice",
    "paraphrase": "an answer and its paraphrase",
    "repeat": "the same case twice",
}


def illustrate(result: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield every figure there is data for."""
    for decoding, tree in result["decodings"].items():
        several = f", {decoding}" if len(result["decodings"]) > 1 else ""
        figures = _checklist(tree) if "read_rate" in tree["clean"] else _figures(tree, tree["clean"]["unit"])
        for figure in figures:
            yield replace(figure, title=figure.title + several)


def _figures(tree: Mapping[str, Any], unit: str) -> Iterator[Figure]:
    yield from _order(tree.get("order", {}), unit)
    yield from _length(tree.get("length", {}))
    if planting := tree.get("planting"):
        title = "Effect of planted texts on the score"
        text = "How much the worst answer's score rises above its clean one."
        yield from _planting(planting, title, text, "rise", unit)
    yield from _sameness(tree)
    if harm := tree.get("harm"):
        rows = [("all harms", harm["lowered"], ORANGE)]
        rows += [(kind, each["lowered"], BLUE) for kind, each in harm["kinds"].items()]
        rows.append(("control: other words", harm["control"]["lowered"], GREY))
        text = f"Share of good answers that lose half a step (of {unit}) to a dangerous fact. Grey: only words change."
        yield from charts.estimates("Detection of dangerous facts", text, rows, "share lowered")
    contrasts = tree.get("fairness", {}).get("contrasts", {})
    rows = [(name, each["shift"], GREY if each["name"] == CONTROL else BLUE) for name, each in contrasts.items()]
    text = "Mean shift of the score of the same answers. Grey: words that say nothing of anybody. Dotted: no effect."
    yield from charts.estimates("Effect of who asks and who answers", text, rows, unit, 0.0)
    text = "Share of rationales with a sentence that repeats another doctor's answer."
    rows = [("credits another's words", tree.get("attribution", {}).get("marked"), BLUE)]
    yield from charts.estimates("Rationales", text, rows, "share")
    models = tree.get("self_preference", {}).get("models", {})
    text = "How much oftener than people the judge puts a model's answers first. Dotted: as often as people."
    rows = [(name, each["favour"], BLUE) for name, each in models.items()]
    yield from charts.estimates("Preference by who wrote the answer", text, rows, "share of pairs, above people's", 0.0)
    text = "Concordance with people over the pairs that a model's answer is part of. Dotted: chance."
    rows = [(name, each["concordance"], BLUE) for name, each in models.items()]
    yield from charts.estimates("Agreement by who wrote the answer", text, rows, "concordance", 0.5)


def _checklist(tree: Mapping[str, Any]) -> Iterator[Figure]:
    if planting := tree.get("planting"):
        title, text = "Effect of planted texts on the score", "How much a response's score rises."
        yield from _planting(planting, title, text, "rise", "score, of which 1 is all positive points")
        title = "Criteria gained by planted texts"
        text = "Share of the criteria that could change to the response's advantage, and did."
        yield from _planting(planting, title, text, "gained", "share gained")
    names = {"order": "criteria in the reverse order", "together": "one at a time and several at once"}
    rows = [(words, tree[name]["changed"], BLUE) for name, words in names.items() if name in tree]
    text = "Share of criteria that are met by one verdict and not by the other, on the same response."
    yield from charts.estimates("Effect of how criteria are asked", text, rows, "share of criteria", 0.0)


def _order(order: Mapping[str, Any], unit: str) -> Iterator[Figure]:
    names = ("flips", "changes", "flips_expected", "first_wins")
    rows = [(LABELS[name], order.get(name), BLUE) for name in names]
    text = "Share of pairs of answers whose result changes with the order. Dotted: how often the first wins without any effect."
    yield from charts.estimates("Effect of the order of answers", text, rows, "share of pairs", 0.5)
    text = "Mean score in a slot above the mean of the same verdict. Dotted: no effect."
    rows = [(f"slot {place}", each, BLUE) for place, each in enumerate(order.get("slots", []), 1)]
    yield from charts.estimates("Effect of the slot on the score", text, rows, unit, 0.0)


def _length(length: Mapping[str, Any]) -> Iterator[Figure]:
    names, people = ("prefers_longer", "longer_wins"), length.get("people", {})
    text = "Dotted: no effect of length. Second line: at equal models (logistic regression, one SD of length)."
    rows = [(LABELS[name], length.get(name), BLUE) for name in names]
    rows += [(f"people: {LABELS[name]}", people.get(name), GREY) for name in names]
    yield from charts.estimates("Effect of length", text, rows, "share of pairs", 0.5)
    rates = length.get("win_rates", {})
    rows = [
        (f"{name}, {label}", each[kind], colour)
        for name, each in rates.items()
        for kind, label, colour in (("raw", "as it is", GREY), ("controlled", "at equal length", BLUE))
    ]
    text = "Grey: as the judge has it."
    yield from charts.estimates("Win rates at equal length", text, rows, "win rate, ties counted half", 0.5)


def _planting(planting: Mapping[str, Any], title: str, text: str, figure: str, unit: str) -> Iterator[Figure]:
    """Yield one figure by the family of the planted text, beside that of harmless words."""
    rows = [(family, each[figure], BLUE) for family, each in planting["families"].items()]
    rows.append(("control: harmless words", planting["control"][figure], GREY))
    yield from charts.estimates(title, f"{text} Grey: harmless words in place of an attack.", rows, unit, 0.0)


def _sameness(tree: Mapping[str, Any]) -> Iterator[Figure]:
    rows = []
    for kind, each in tree.get("sameness", {}).items():
        rows.append((LABELS[kind], each["tied"], BLUE))
        rows.append(("clean: the two answers there", each.get("clean_tied"), GREY))
    rows.append(("two runs of a request", tree.get("repeats", {}).get("tied"), BLUE))
    text = "Share that the judge's own scores put level. Grey: the two answers that stand there in the clean case."
    yield from charts.estimates("Equal scores for equal answers", text, rows, "share level")


def summary(result: Mapping[str, Any]) -> list[str]:
    """Return sentences on whether the judge passes, what it fails, and what was not measured."""
    decided = result["thresholds"]
    failed = [each for each in decided if each["outcome"] == FAILED]
    measured = [each for each in decided if each["measured"] is not None and each["outcome"] != "not measured"]
    unknown = list(dict.fromkeys(each["name"] for each in decided if each["outcome"] == "not measured"))
    name = result["judge"]["name"]
    if result["passes"] is None:
        sentences = [f"{name} neither passes nor fails: no figure with a threshold was measured."]
    else:
        word = "passes" if result["passes"] else "does not pass"
        met = f"{len(measured) - len(failed)} of {len(measured)} measured thresholds are met"
        sentences = [f"{name} {word}: {met}{f', {len(unknown)} were not measured' if unknown else ''}."]
    for each in failed:
        where = f" ({each['decoding']})" if len(result["decodings"]) > 1 else ""
        what = f" ({each['measured']['contrast']})" if each["measured"].get("contrast") else ""
        figure = f"{shown(each['measured'], 3)}{what}"
        sentences.append(
            f"{each['name'][:1].upper()}{each['name'][1:]}{where}: {figure}, should be {each['bounds']}"
            f"{' (' * bool(each['why'])}{each['why']}{')' * bool(each['why'])}."
        )
    if unknown:
        sentences.append(f"Not measured: {'; '.join(unknown)}.")
    for decoding, tree in result["decodings"].items():
        rate = tree["clean"]["valid_rate"]["value"]
        if rate not in (None, 1.0):
            sentences.append(f"{percent(1 - rate)} of the clean verdicts ({decoding}) are invalid.")
    return sentences


def gaps(result: Mapping[str, Any]) -> list[str]:
    """Return what could not be measured, and why."""
    reasons = [
        f"{check.replace('_', ' ')}: {figures['reason']}"
        for tree in result["decodings"].values()
        for check, figures in tree.items()
        if "reason" in figures
    ]
    return list(dict.fromkeys(reasons))


def _thresholds(result: Mapping[str, Any]) -> Table:
    rows = [
        (each["name"], each["decoding"] or UNDEFINED, each["bounds"], shown(each["measured"], 3), each["outcome"])
        for each in result["thresholds"]
    ]
    return ("measure", "decoding", "should be", "measured", "outcome"), rows


def render(result: Mapping[str, Any]) -> dict[str, str]:
    """Render a result, what `audit.json` holds, as {"audit.html": text, "audit.md": text}."""
    trees = result["decodings"].values()
    evidence = [evidence_table(found) for tree in trees if (found := tree.get("harm", {}).get("evidence"))]
    fairness = [tree["fairness"] for tree in trees if "contrasts" in tree.get("fairness", {})]
    fairness_tables = [fairness_table(each) for each in fairness]
    return render_report(
        "automedeval.audit",
        "audit",
        f"Audit of {result['judge']['name']}",
        words=summary(result),
        notes=[*gaps(result), *result["notes"]],
        figures=illustrate(result),
        settings=result["settings"],
        main_table=_thresholds(result),
        more_tables=[*evidence, *fairness_tables],
        evidence=evidence,
        fairness=list(zip(fairness, fairness_tables)),
        result=result,
        lines=estimates_in,
    )
