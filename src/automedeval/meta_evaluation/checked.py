"""What the checked responses say of each model: a table, a page of the answers with the contradicted words marked, a CSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from automedeval.evidence.checker import CONTRADICTED, LABELS, NOT_FOUND, SUPPORTED, UNREAD
from automedeval.meta_evaluation.facts import AGAINST
from automedeval.meta_evaluation.page import Bars, PageTable, render_report
from automedeval.records import Case, CheckedResponse, question_text
from automedeval.records.text import no_formula, percent, span
from automedeval.stats.bootstrap import estimate, mean_of, plain

# What a clinician should read first. After the rules comes what the model saw, the surest first.
ORDER = ("dose", "frequency", "duration", None)
COLUMNS = (
    "case_id", "row", "question", "model", "statement", "label", "probability", "rule", "passage", "source", "reason",
)  # fmt: skip


def measure(
    cases: Sequence[Case], checked: Sequence[CheckedResponse], resamples: int = 2000
) -> dict[str, Any]:
    """Return the figures of each model, with intervals by bootstrap over cases.

    Returns:
        model → {"answers", "statements", counts of each label, "contradicted_answers"}; the last is a share with its interval,
        of the answers that have a statement that could be read.
    """
    numbers = {case.id: number for number, case in enumerate(cases)}
    tree: dict[str, Any] = {}
    for model in dict.fromkeys(each.model for each in checked):
        of_model = [each for each in checked if each.model == model]
        labels = [Counter(statement["label"] for statement in each.statements) for each in of_model]
        counts = sum(labels, Counter[str]())
        wrong = [
            float(each[CONTRADICTED] > 0) if any(each[label] for label in LABELS) else np.nan
            for each in labels
        ]
        case = np.array([numbers[each.case_id] for each in of_model])
        share = mean_of(
            np.array(wrong), case, len(cases), "no answer that could be read", (0.0, 1.0)
        )
        tree[model] = {"answers": len(of_model), "statements": counts.total()}
        tree[model] |= {label: counts[label] for label in (*LABELS, UNREAD)} | {
            "contradicted_answers": share
        }
    return plain(estimate(tree, len(cases), resamples))


def _shares(figures: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return (model, share of contradicted answers), the model with most of them first."""
    shares = [(model, figures[model]["contradicted_answers"]) for model in sorted(figures)]
    return sorted(shares, key=lambda entry: -(entry[1]["value"] or 0))


def check_rows(figures: Mapping[str, Any]) -> list[dict[str, str | float | int]]:
    """Return the table of the figures, the model with most contradicted answers first."""
    rows = []
    for model, share in _shares(figures):
        each = figures[model]
        row = {"model": model, "answers": each["answers"], "contradicted answers": span(share)}
        labels = {
            label.replace("_", " "): each[label]
            for label in (CONTRADICTED, SUPPORTED, NOT_FOUND, UNREAD)
        }
        rows.append(row | {"statements": each["statements"]} | labels)
    return rows


def check_sentences(figures: Mapping[str, Any], evidence: str, without: int) -> list[str]:
    """Return the result in sentences: the models with contradicted answers, and what could not be checked.

    Args:
        without: responses without any evidence.
    """
    lines = []
    for model, share in _shares(figures):
        if not share["n"]:
            lines.append(f"{model}: no statement could be read.")
            continue
        count = f"{round(share['value'] * share['n'])} of {share['n']} answers ({percent(share['value'])})"
        lines.append(f"{model}: {count} hold a statement that contradicts {AGAINST[evidence]}.")
    if without:
        lines.append(
            f"{without} answers had nothing to be checked against: of them nothing is known."
        )
    unknown = "What the model is unsure of" if evidence == "none" else "What no passage speaks of"
    lines.append(
        f"{unknown} is not found, which is neither right nor wrong. What answers leave out is not looked for."
    )
    return lines


def contradictions(
    cases: Sequence[Case], checked: Sequence[CheckedResponse]
) -> Iterator[dict[str, Any]]:
    """Yield the answers that contradict their evidence, in the order for a clinician to read."""
    by_id = {case.id: case for case in cases}
    wrong_answers = []
    for each in checked:
        wrong = [statement for statement in each.statements if statement["label"] == CONTRADICTED]
        if wrong:
            wrong_answers.append((min(map(_urgency, wrong)), each, sorted(wrong, key=_urgency)))
    for _, each, wrong in sorted(wrong_answers, key=lambda entry: entry[0]):
        case = by_id[each.case_id]
        text = next(response.text for response in case.responses if response.model == each.model)
        yield {
            "case_id": case.id,
            "model": each.model,
            "question": question_text(case.question),
            "text": marked(text, [s for s in each.statements if s["label"] == CONTRADICTED]),
            "wrong": wrong,
        }


def _urgency(statement: Mapping[str, Any]) -> tuple[int, float]:
    return ORDER.index(statement.get("rule")), -statement.get("probability", 0.0)


def marked(text: str, passages: Sequence[Mapping[str, Any]]) -> Markup:
    """Return an answer as HTML with passages of it marked, from `start` to `end`, in their order; they may overlap."""
    parts, position = [], 0
    for each in passages:
        start, end = max(each["start"], position), each["end"]
        if start < end:
            parts += [
                escape(text[position:start]),
                Markup("<mark>"),
                escape(text[start:end]),
                Markup("</mark>"),
            ]
            position = end
    return Markup("").join([*parts, escape(text[position:])])


def check_page(
    cases: Sequence[Case],
    checked: Sequence[CheckedResponse],
    figures: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """Return check.html, check.md and claims.csv by name."""
    rows, against = check_rows(figures), AGAINST[settings["evidence"]]
    table = PageTable(
        list(rows[0]) if rows else [], [list(row.values()) for row in rows], "Statements by model"
    )
    bars = [(model, share, f"{share['n']} could be read") for model, share in _shares(figures)]
    pages = render_report(
        "check", "Statements checked",
        words=check_sentences(figures, settings["evidence"], settings["without_evidence"]), notes=settings["notes"],
        bars=Bars(f"Share of answers that contradict {against}, with 95 % intervals", bars), tables=[table],
        settings=settings, answers=list(contradictions(cases, checked)),
    )  # fmt: skip
    return pages | {"claims.csv": _csv(cases, checked)}


def _csv(cases: Sequence[Case], checked: Sequence[CheckedResponse]) -> str:
    file, by_id = io.StringIO(), {case.id: case for case in cases}
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in checked:
        case = by_id[each.case_id]
        index = case.models.index(each.model)
        for statement in each.statements:
            row = {
                "case_id": each.case_id,
                "model": each.model,
                "statement": statement["text"],
                **statement,
            }
            row |= {"row": case.row_of(index), "question": question_text(case.question)}
            writer.writerow({name: no_formula(row.get(name, "")) for name in COLUMNS})
    return file.getvalue()
