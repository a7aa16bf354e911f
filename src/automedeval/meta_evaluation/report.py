"""The report: what `meta_evaluate` found, as one self-contained HTML page and its Markdown twin.

The templates lie in `templates/`. Candidates' texts are hostile: the HTML template escapes everything, and the page forbids
itself any outside call.
"""

import random
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import combinations
from typing import Any

import numpy as np
import yaml

from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People
from automedeval.meta_evaluation.report_text import gaps, summary
from automedeval.meta_evaluation.verdicts import JudgeEvidence
from automedeval.reports.page import fill
from automedeval.reports.text import percent, real_judges
from automedeval.stats.agreement import ACCURACIES, CORRELATIONS, LABELS

TEMPLATES = resources.files("automedeval.meta_evaluation") / "templates"


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
    return yaml.safe_load((TEMPLATES / "paper_table2.yaml").read_text(encoding="utf-8"))


def paper_rounds() -> dict[str, Any]:
    """Return the paper's own rounds (Tables 3 and 5) and its curve (Appendix F), for a labelled comparison."""
    return yaml.safe_load((TEMPLATES / "paper_rounds.yaml").read_text(encoding="utf-8"))


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
    result: dict[str, Any], cases: Cases, judges: Sequence[JudgeEvidence], people: People | None, numbers: Iterable[int]
) -> list[dict[str, Any]]:
    """Lay out cases with responses, scores, choices, ratings and rationales side by side."""
    worst: dict[str, list[str]] = {}
    for name, record in real_judges(result).items():
        for case_id in record.get("worst", []):
            worst.setdefault(case_id, []).append(name)
    judges = [evidence for evidence in judges if evidence.kind == "judge"]
    records = []
    for number in numbers:
        case, start = cases.records[number], int(cases.start[number])
        places = range(start, start + len(case.responses))
        responses = [
            {
                "model": response.model,
                "text": response.text,
                "scores": [(each.name, float(each.mixed[place])) for each in judges if not np.isnan(each.mixed[place])],
                "people": _ratings(people, place),
                "comments": people.comments.get(place, []) if people is not None else [],
            }
            for place, response in zip(places, case.responses)
        ]
        choices = []
        for evidence in judges:
            for one, two in combinations(range(len(case.responses)), 2):
                pair = cases.pair_index[start + one, start + two]
                said = [(name, int(codes[pair])) for name, codes in evidence.choices.items() if codes[pair] >= 0]
                names = [case.models[one], case.models[two], "tie", "neither"]
                if said:
                    answers = ", ".join(f"{criterion}: {names[code]}" for criterion, code in said)
                    choices.append((f"{evidence.name}, {names[0]} : {names[1]}", answers))
        question = case.question
        if not isinstance(question, str):
            question = "\n\n".join(f"{message['role']}: {message['content']}" for message in question)
        records.append(
            {
                "id": case.id,
                "topic": case.topic,
                "question": question,
                "reference": case.reference,
                "responses": responses,
                "choices": choices,
                "rationales": [(each.name, each.rationales[number]) for each in judges if number in each.rationales],
                "worst": worst.get(case.id, []),
            }
        )
    return records


def _ratings(people: People | None, place: int) -> str | None:
    """Return people's mean score of a response, and each rater's."""
    if people is None or np.isnan(people.scores[place]):
        return None
    each = [
        f"{name} {score:g}"
        for name, score in zip(people.annotators, people.by_annotator[place].round(2))
        if score == score
    ]
    return f"{people.scores[place]:.2f} ({', '.join(each[:8])}{', …' if len(each) > 8 else ''})"


def render(template: str, result: dict[str, Any], **context: Any) -> str:
    """Render `report.html.jinja` or `report.md.jinja` of this room."""
    rows = agreement_table(result) if "people" in result else []
    return fill(
        TEMPLATES / template,
        {"percent": percent, "chance": _chance, "most": _most},
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


def _most(judges: dict[str, dict], kind: str, key: str) -> int:
    """Return the most pairs that a judge was compared on; judges that were asked about less have fewer."""
    return max(record[kind][key]["n"] for record in judges.values())


def _chance(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
