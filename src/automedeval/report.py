"""The report: what `meta_evaluate` found, as one self-contained HTML page and its Markdown twin.

The templates lie in `assets/report/`. Candidates' texts are hostile: the HTML template escapes everything, and the page forbids
itself any outside call.
"""

import base64
import hashlib
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2
import yaml
from markupsafe import Markup

from automedeval import figures
from automedeval.cases import Cases
from automedeval.evidence import JudgeEvidence
from automedeval.meta_evaluation import ACCURACIES, CORRELATIONS
from automedeval.people import People
from automedeval.rubrics import ASSETS

LABELS = {
    "pairwise_accuracy": "Pairwise accuracy",
    "pairwise_accuracy_untied": "Pairwise accuracy, untied",
    "concordance": "Concordance",
    "listwise_accuracy": "Listwise accuracy",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "spearman_within_case": "Spearman within case",
    "pearson_within_case": "Pearson within case",
}
CONTEST = 6  # pairs of models that the summary puts into words


def percent(share: float) -> str:
    """Return a share in whole per cent."""
    return f"{100 * share:.0f} %"


def shown(estimate: dict[str, Any] | None, digits: int = 2, factor: float = 1.0) -> str:
    """Return a figure with its interval, "–" where it is undefined."""
    if not estimate or estimate["value"] is None:
        return "–"
    text = f"{factor * estimate['value']:.{digits}f}"
    if estimate["low"] is not None:
        text += f" [{factor * estimate['low']:.{digits}f}, {factor * estimate['high']:.{digits}f}]"
    return text + ("*" if estimate.get("approximate") else "")


def _interval_words(estimate: dict[str, Any]) -> str:
    if estimate["low"] is None:
        return "no interval"
    return f"95 % interval {100 * estimate['low']:.0f}–{100 * estimate['high']:.0f}"


def _real(result: dict[str, Any]) -> dict[str, dict]:
    return {name: record for name, record in result["judges"].items() if record["kind"] == "judge"}


def summary(result: dict[str, Any]) -> list[str]:
    """Say in words what a reader decides by: which model is better, how sure, and how far the judge can be believed."""
    sentences = []
    by_judge: dict[str, list[tuple[str, dict]]] = {}
    for name, record in _real(result).items():
        by_judge.setdefault(record["name"], []).append((name, record))
    for judge, rows in by_judge.items():
        if rows[0][1]["criterion"] is None:
            sentences += _contest(judge, result["models"][rows[0][0]])
        else:
            sentences += _winners(judge, [(record["criterion"], result["models"][name]) for name, record in rows])
    for gap, names in gaps(result).items():
        who = "" if len(names) == len(result["models"]) else f" by {', '.join(names)}"
        sentences.append(f"Which model is better cannot be said{who}: {gap}.")
    if "people" not in result:
        sentences.append("Nobody rated these responses here: how far a judge agrees with people is not known.")
        return sentences
    for judge, rows in by_judge.items():
        if rows[0][1]["criterion"] is None:
            sentences.append(_credit(judge, rows[0][1], result["people"].get("ceiling")))
        else:
            known = [(record["criterion"], record["concordance"]) for _, record in rows]
            parts = [
                f"{percent(e['value'])} by {name} ({_interval_words(e)})" for name, e in known if e["value"] is not None
            ]
            if parts:
                sentences.append(
                    f"Of the pairs of responses that people told apart, {judge} orders as people do "
                    f"{', '.join(parts)}; 50 % is chance."
                )
        valid = rows[0][1]["valid_rate"]["value"]
        if valid not in (None, 1.0):
            sentences.append(f"{percent(1 - valid)} of {judge}'s verdicts are invalid or missing, and count as wrong.")
    return sentences


def gaps(result: dict[str, Any]) -> dict[str, list[str]]:
    """Return why there are no figures per model → the judges of which that is so."""
    found: dict[str, list[str]] = {}
    for name, table in result["models"].items():
        if "gap" in table:
            found.setdefault(table["gap"], []).append(name)
    return found


def _contest(judge: str, table: dict[str, Any]) -> list[str]:
    """Say which of every two models is better, the clearest first."""
    if "gap" in table:
        return []
    sentences = []
    for pair in sorted(table["pairs"], key=lambda p: -abs(p["margin"]["value"]))[:CONTEST]:
        first, second = pair["pair"]
        win, loss = ("win", "loss") if pair["margin"]["value"] >= 0 else ("loss", "win")
        if win == "loss":
            first, second = second, first
        shares = f"{percent(pair[win]['value'])} of cases ({_interval_words(pair[win])})"
        shares += f", worse in {percent(pair[loss]['value'])}"
        shares += f", level in {percent(pair['tie']['value'])}" if pair["tie"]["value"] else ""
        low, high = pair["margin"]["low"], pair["margin"]["high"]
        if low is not None and (low > 0 or high < 0):
            sentences.append(f"By {judge}, {first} is better than {second} in {shares}.")
        else:
            sentences.append(
                f"By {judge}, {first} and {second} cannot be told apart with these cases: {first} is better in {shares}."
            )
    return sentences


def _winners(judge: str, tables: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Say which model wins most comparisons on each criterion."""
    parts = []
    for criterion, table in tables:
        if "gap" not in table:
            rates = {model: record["win_rate"] for model, record in table["models"].items()}
            best = max(rates, key=lambda model: rates[model]["value"])
            parts.append(f"{best} on {criterion} ({percent(rates[best]['value'])}, {_interval_words(rates[best])})")
    return (
        [f"By {judge}, the model that wins most comparisons, ties counted half, is {', '.join(parts)}."]
        if parts
        else []
    )


def _credit(judge: str, record: dict[str, Any], ceiling: dict[str, Any] | None) -> str:
    """Say how far one judge agrees with people, and how far they agree with each other."""
    headline = record[record["headline"]]
    if headline["value"] is None:
        return f"How far {judge} agrees with people is undefined: {headline['reason']}."
    text = (
        f"Of the pairs of responses that people told apart, {judge} orders {percent(headline['value'])} as people do "
        f"({_interval_words(headline)}; 50 % is chance)"
    )
    against = record.get("concordance_with_the_other_raters")
    if against and ceiling and ceiling["concordance"]["value"] is not None:
        text += (
            f"; against the mean of all raters but one it reaches {percent(against['value'])}, "
            f"where that one rater reaches {percent(ceiling['concordance']['value'])}"
        )
    return text + "."


def agreement_table(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per judge and baseline, and one rater's ceiling: name, kind, measure → (own scores, expected scores)."""
    rows = []
    for name, record in result["judges"].items():
        cells = {m: (record.get(m), record.get(f"{m}_expected")) for m in ACCURACIES + CORRELATIONS}
        rows.append({"name": name, "kind": record["kind"], "cells": cells, "valid_rate": record["valid_rate"]})
    ceiling = result["people"].get("ceiling")
    if ceiling:
        cells = {m: (ceiling[m], None) for m in ACCURACIES + CORRELATIONS}
        rows.append({"name": "one rater against the others", "kind": "people", "cells": cells, "valid_rate": None})
    return rows


def paper_table() -> dict[str, Any]:
    """Return the paper's own Table 2, for a labelled comparison."""
    return yaml.safe_load((ASSETS / "report" / "paper_table2.yaml").read_text(encoding="utf-8"))


def draw(result: dict[str, Any], in_series: bool = False) -> list[dict[str, str]]:
    """Draw every figure there is data for; return {"title", "text" for those who cannot see it, "svg"}."""
    drawn: list[dict[str, str]] = []

    def add(title: str, text: str, svg: str) -> None:
        drawn.append({"title": title, "text": text, "svg": Markup(svg)})  # matplotlib escapes the names in it

    def prefix() -> str:
        return f"f{len(drawn)}"

    colours = {"judge": figures.BLUE, "baseline": figures.GREY}
    judges = _real(result)
    if "people" in result:
        points = [
            (name, e["value"], e["low"], e["high"], colours[record["kind"]])
            for name, record in result["judges"].items()
            if (e := record[record["headline"]])["value"] is not None
        ]
        ceiling = (result["people"].get("ceiling") or {}).get("concordance")
        band = (ceiling["value"], ceiling["low"], ceiling["high"]) if ceiling and ceiling["value"] is not None else None
        if points:
            add(
                "Agreement with people",
                "Concordance of every judge with 95 % intervals; dotted: chance"
                + ("; dashed: one rater against the mean of the others." if band else "."),
                figures.intervals(points, "concordance with people", prefix(), band, 0.5),
            )
        if in_series and len(judges) > 1:
            lines = []
            for measure in ("concordance", "pairwise_accuracy", "listwise_accuracy"):
                found = [
                    record[measure] if record[measure]["value"] is not None else record[f"{measure}_expected"]
                    for record in judges.values()
                ]
                lines.append(
                    (
                        LABELS[measure],
                        [None if e["value"] is None else (e["value"], e["low"], e["high"]) for e in found],
                    )
                )
            add(
                "Agreement over the series",
                "Concordance, pairwise and listwise accuracy of the judges in the order of the files.",
                figures.series(list(judges), lines, prefix()),
            )
        histograms = [("people", result["people"]["scores"])]
        histograms += [(name, record["scores"]) for name, record in judges.items() if record.get("scores")]
        add(
            "Scores of judges and people",
            "Share of responses at every score, rounded to halves.",
            figures.distributions(histograms, "score", prefix()),
        )
        for name, record in judges.items():
            if len(record["reliability"]) > 1:
                add(
                    f"Reliability of {name}",
                    "People's mean score in bins of the judge's expected score: it should rise steadily.",
                    figures.reliability([(name, record["reliability"])], prefix()),
                )
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
        add(
            f"Win rates by {name}",
            "Share of cases in which the model of the row is better than that of the column, ties counted half.",
            figures.win_matrix(models, shares, prefix()),
        )
        if table["strengths"]:
            points = [
                (model, e["value"], e["low"], e["high"], figures.BLUE)
                for model, e in sorted(table["strengths"].items(), key=lambda item: -item[1]["value"])
            ]
            add(
                f"Strengths by {name}",
                "Bradley–Terry strengths in log odds against the average model, with 95 % intervals.",
                figures.intervals(points, "log odds against the average", prefix(), reference=0.0),
            )
    if outcomes:
        outcomes.sort(key=lambda each: each[0])
        add(
            "Wins, ties and losses",
            "For every pair of models, the share of cases that the first wins, ties and loses (the paper's Figure 4).",
            figures.stacked(outcomes, ("win", "tie", "loss"), prefix()),
        )
    for judge, criteria in result.get("verdict_ratings", {}).items():
        scores = sorted({float(score) for record in criteria.values() for score in record["counts"]})
        rows = []
        for criterion, record in criteria.items():
            total = sum(record["counts"].values())
            rows.append((criterion, [record["counts"].get(f"{score:g}", 0) / total for score in scores]))
        add(
            f"People's scores of {judge}'s verdicts",
            "Share of every score that people gave the verdicts, per criterion (the paper's Figure 5a).",
            figures.stacked(rows, [f"{score:g}" for score in scores], prefix()),
        )
    return drawn


def pick_cases(result: dict[str, Any], cases: Cases, most: int, seed: int = 0) -> list[int]:
    """Return the numbers of the cases to show: all if they are few, else the worst disagreements and a seeded sample."""
    if len(cases) <= most:
        return list(range(len(cases)))
    worst = [cases.index[case] for record in _real(result).values() for case in record.get("worst", [])]
    chosen = list(dict.fromkeys(worst))[:most]
    others = [number for number in range(len(cases)) if number not in set(chosen)]
    return sorted(chosen + random.Random(seed).sample(others, most - len(chosen)))


def case_records(
    result: dict[str, Any], cases: Cases, judges: Sequence[JudgeEvidence], people: People | None, numbers: Iterable[int]
) -> list[dict[str, Any]]:
    """Lay out cases with responses, scores, ratings and rationales side by side."""
    worst = {case for record in _real(result).values() for case in record.get("worst", [])}
    records = []
    for number in numbers:
        case = cases.records[number]
        responses = []
        for place, response in enumerate(case.responses, int(cases.start[number])):
            scores = [
                (evidence.name, float(evidence.mixed[place]))
                for evidence in judges
                if evidence.kind == "judge" and evidence.mixed[place] == evidence.mixed[place]
            ]
            rated = people is not None and people.scores[place] == people.scores[place]
            responses.append(
                {
                    "model": response.model,
                    "text": response.text,
                    "scores": scores,
                    "people": float(people.scores[place]) if rated else None,
                    "comments": people.comments.get(place, []) if people is not None else [],
                }
            )
        question = case.question
        if not isinstance(question, str):
            question = "\n\n".join(f"{message['role']}: {message['content']}" for message in question)
        rationales = [
            (evidence.name, evidence.rationales[number]) for evidence in judges if number in evidence.rationales
        ]
        records.append(
            {
                "id": case.id,
                "topic": case.topic,
                "question": question,
                "reference": case.reference,
                "responses": responses,
                "rationales": rationales,
                "worst": case.id in worst,
            }
        )
    return records


def page_script() -> dict[str, str]:
    """Return the page's own script, and the hash by which the page allows it and no other."""
    script = (ASSETS / "report" / "report.js").read_text(encoding="utf-8")
    return {
        "script": Markup(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }


def render(template: str, result: dict[str, Any], **context: Any) -> str:
    """Render `report.html.jinja` or `report.md.jinja` of assets/report."""
    environment = jinja2.Environment(
        autoescape=template.startswith("report.html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"shown": shown, "percent": percent, "chance": _chance, "cell": _cell}
    source = (ASSETS / "report" / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(
        result=result,
        judges=_real(result),
        summary=summary(result),
        gaps=gaps(result),
        rows=agreement_table(result) if "people" in result else [],
        labels=LABELS,
        accuracies=ACCURACIES,
        correlations=CORRELATIONS,
        **context,
    )


def _chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _cell(text: object) -> str:
    """Return text that cannot break a Markdown table, or become HTML, a link or code."""
    return re.sub(r"([|\[\]`*_\\])", r"\\\1", str(text)).replace("<", "&lt;").replace("\n", " ")
