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
from automedeval.summary import gaps, percent, real_judges, summary

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


def shown(estimate: dict[str, Any] | None, digits: int = 2, factor: float = 1.0) -> str:
    """Return a figure with its interval, "–" where it is undefined."""
    if not estimate or estimate["value"] is None:
        return "–"
    text = f"{factor * estimate['value']:.{digits}f}"
    if estimate["low"] is not None:
        text += f" [{factor * estimate['low']:.{digits}f}, {factor * estimate['high']:.{digits}f}]"
    return text + ("*" if estimate.get("approximate") else "")


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


def undefined(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return why figures of the agreement table are undefined → which judge's which."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for which, half in ((0, ""), (1, " from expected scores")):
            reasons: dict[str, list[str]] = {}
            for measure, pair in row["cells"].items():
                if pair[which] is not None and pair[which]["value"] is None:
                    reasons.setdefault(pair[which]["reason"], []).append(LABELS[measure])
            for reason, measures in reasons.items():
                what = "every figure" if len(measures) == len(LABELS) else ", ".join(measures)
                found.setdefault(reason, []).append(f"{row['name']}, {what}{half}")
    return found


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
    judges = real_judges(result)
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
    worst = [cases.index[case] for record in real_judges(result).values() for case in record.get("worst", [])]
    chosen = list(dict.fromkeys(worst))[:most]
    others = [number for number in range(len(cases)) if number not in set(chosen)]
    return sorted(chosen + random.Random(seed).sample(others, most - len(chosen)))


def case_records(
    result: dict[str, Any], cases: Cases, judges: Sequence[JudgeEvidence], people: People | None, numbers: Iterable[int]
) -> list[dict[str, Any]]:
    """Lay out cases with responses, scores, ratings and rationales side by side."""
    worst = {case for record in real_judges(result).values() for case in record.get("worst", [])}
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
    rows = agreement_table(result) if "people" in result else []
    return environment.from_string(source).render(
        result=result,
        judges=real_judges(result),
        summary=summary(result),
        gaps=gaps(result),
        rows=rows,
        reasons=undefined(rows),
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
