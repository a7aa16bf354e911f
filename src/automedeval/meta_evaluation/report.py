"""Write the report of a meta-evaluation, a self-contained HTML page and its Markdown twin: its tables and its cases."""

import random
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import combinations, product
from typing import Any

import numpy as np
import yaml

from automedeval.meta_evaluation import paper_table_text
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People
from automedeval.meta_evaluation.report_figures import illustrate
from automedeval.meta_evaluation.report_text import gaps, real_judges, summary
from automedeval.meta_evaluation.verdicts import JudgeVerdicts
from automedeval.reports.page import render_twins
from automedeval.stats.agreement import LABELS

TEMPLATES = resources.files("automedeval.meta_evaluation") / "templates"


def agreement_table(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per judge and baseline, and one rater's ceiling: name, kind, measure → (own scores, expected scores)."""
    rows = []
    for name, record in result["judges"].items():
        cells = {m: (record.get(m), record.get(f"{m}_expected")) for m in LABELS}
        rows.append({"name": name, "kind": record["kind"], "cells": cells, "valid_rate": record["valid_rate"]})
    ceiling = result["people"].get("ceiling")
    if ceiling:
        cells = {m: (ceiling[m], None) for m in LABELS}
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


def published(name: str) -> dict[str, Any]:
    """Return the paper's own figures: "table2", or "rounds" (Tables 3 and 5, and the curve of Appendix F)."""
    return yaml.safe_load((TEMPLATES / f"paper_{name}.yaml").read_text(encoding="utf-8"))


def pick_cases(result: dict[str, Any], cases: Cases, most: int, seed: int = 0) -> list[int]:
    """Return the numbers of the cases to show, in the order of the file: all, or the worst disagreements and others drawn."""
    chosen = list(cases.file_order)
    if len(cases) > most:
        worst = [cases.index[case] for record in real_judges(result).values() for case in record.get("worst", [])]
        drawn = random.Random(seed).sample(range(len(cases)), len(cases))
        chosen = list(dict.fromkeys([*worst, *drawn]))[:most]
    place = {number: place for place, number in enumerate(cases.file_order)}
    return sorted(chosen, key=place.get)


def case_records(
    result: dict[str, Any], cases: Cases, judges: Sequence[JudgeVerdicts], people: People | None, numbers: Iterable[int]
) -> list[dict[str, Any]]:
    """Lay out cases with responses, scores, choices, ratings and rationales side by side."""
    worst: dict[str, list[str]] = {}
    for name, record in real_judges(result).items():
        for case_id in record.get("worst", []):
            worst.setdefault(case_id, []).append(name)
    judges = [judge for judge in judges if judge.kind == "judge"]
    records = []
    for number in numbers:
        case, start = cases.records[number], int(cases.start[number])
        responses = [
            {
                "model": response.model,
                "text": response.text,
                "scores": [(each.name, float(each.mixed[place])) for each in judges if not np.isnan(each.mixed[place])],
                "people": _ratings(people, place),
                "comments": people.comments.get(place, []) if people is not None else [],
            }
            for place, response in enumerate(case.responses, start)
        ]
        choices = []
        for judge, (one, two) in product(judges, combinations(range(len(case.responses)), 2)):
            pair = cases.pair_index[start + one, start + two]
            names = [case.models[one], case.models[two], "tie", "neither"]
            given = [f"{name}: {names[codes[pair]]}" for name, codes in judge.choices.items() if codes[pair] >= 0]
            choices += [(f"{judge.name}, {names[0]} : {names[1]}", ", ".join(given))] if given else []
        question = case.question
        if not isinstance(question, str):
            question = "\n\n".join(f"{message['role']}: {message['content']}" for message in question)
        record = {"id": case.id, "topic": case.topic, "question": question, "reference": case.reference}
        record |= {"responses": responses, "choices": choices, "worst": worst.get(case.id, [])}
        record["rationales"] = [(each.name, each.rationales[number]) for each in judges if number in each.rationales]
        records.append(record)
    return records


def _ratings(people: People | None, place: int) -> str | None:
    """Return people's mean score of a response, and each rater's."""
    if people is None or np.isnan(people.scores[place]):
        return None
    scores = zip(people.annotators, people.by_annotator[place].round(2))
    each = [f"{name} {score:g}" for name, score in scores if not np.isnan(score)]
    return f"{people.scores[place]:.2f} ({', '.join(each[:8])}{', …' if len(each) > 8 else ''})"


def _table2(result: dict[str, Any], paper: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the templates show of the table in the form of the paper's Table 2."""
    columns = result["table2"]["columns"]
    return {
        "head": [paper_table_text.COLUMNS[name].label for name in columns],
        "places": [paper["columns"].index(name) for name in columns] if paper else [],
        "lines": paper_table_text.lines_of(result, paper),
        "legend": paper_table_text.legend(result, result.get("similarity", {}).get("teacher")),
        "reasons": paper_table_text.reasons(result),
        "fewer": paper_table_text.fewer(result),
    }


def render(
    result: dict[str, Any],
    title: str,
    cases: list[dict[str, Any]],
    in_series: bool = False,
    beside_paper: bool = False,
) -> dict[str, str]:
    """Render a result as {"report.html": text, "report.md": text}.

    Args:
        result: what `agreement.json` holds.
        cases: the cases to show, as `case_records` lays them out.
        in_series: whether the judges are a series, over which curves are drawn.
        beside_paper: whether the paper's own figures are shown, labelled as such.
    """
    rows = agreement_table(result) if "people" in result else []
    rounds = published("rounds") if beside_paper else None
    paper = published("table2") if beside_paper else None
    return render_twins(
        "automedeval.meta_evaluation",
        "report",
        title,
        words=summary(result),
        notes=result["notes"],
        figures=illustrate(result, in_series, rounds),
        settings=result["settings"],
        script="report.js",
        result=result,
        judges=real_judges(result),
        cases=cases,
        paper=paper,
        table2=_table2(result, paper) if "table2" in result else None,
        paper_rounds=rounds,
        gaps=gaps(result),
        rows=rows,
        reasons=undefined(rows),
        labels=LABELS,
        # Judges that were asked about less have fewer pairs.
        most=lambda judges, kind, key: max(record[kind][key]["n"] for record in judges.values()),
    )
