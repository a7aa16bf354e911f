"""What the checked responses say of each model: a table, a page of the answers with the places to look at, a CSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from automedeval.evidence.findings import CONTRADICTED, LABELS, UNREAD
from automedeval.evidence.run import LANGUAGE, NO_EVIDENCE, NUMBERS, in_words
from automedeval.meta_evaluation.facts import AGAINST
from automedeval.meta_evaluation.page import Bars, PageTable, render_report
from automedeval.records import Case, CheckedResponse, JsonObject, question_text
from automedeval.records.text import no_formula, percent, several, span
from automedeval.stats.bootstrap import estimate, mean_of, plain

SHOWN = 3  # places that the terminal shows
COLUMNS = (
    "case_id", "row", "question", "model", "factor", "kind", "number", "beside", "label", "probability", "statement",
    "passage", "source", "reason",
)  # fmt: skip


def measure(
    cases: Sequence[Case], checked: Sequence[CheckedResponse], resamples: int = 2000
) -> JsonObject:
    """Return the figures of each model, with intervals by bootstrap over cases.

    Returns:
        model → {"answers", "compared" (whose numbers could be), "differing_answers"}, and by a model also "statements", the
        counts of each label and "contradicted_answers"; the shares are of the answers that could be read.
    """
    numbers = {case.id: number for number, case in enumerate(cases)}
    tree: JsonObject = {}
    for model in dict.fromkeys(each.model for each in checked):
        of_model = [each for each in checked if each.model == model]
        case = np.array([numbers[each.case_id] for each in of_model])

        def share(marked: Sequence[float], case: np.ndarray = case) -> Any:
            nothing = "no answer that could be read"
            return mean_of(np.array(marked), case, len(cases), nothing, (0.0, 1.0))

        differing = [np.nan if each.unread else float(bool(each.differs)) for each in of_model]
        compared = sum(each.unread is None for each in of_model)
        tree[model] = {"answers": len(of_model), "compared": compared}
        tree[model]["differing_answers"] = share(differing)
        if of_model[0].checker == NUMBERS:
            continue
        labels = [Counter(line["label"] for line in each.statements) for each in of_model]
        counts = sum(labels, Counter[str]())
        wrong = [
            float(each[CONTRADICTED] > 0) if any(each[label] for label in LABELS) else np.nan
            for each in labels
        ]
        tree[model] |= {"statements": counts.total(), "contradicted_answers": share(wrong)}
        tree[model] |= {label: counts[label] for label in (*LABELS, UNREAD)}
    return plain(estimate(tree, len(cases), resamples))


def _shares(figures: JsonObject) -> list[tuple[str, JsonObject]]:
    """Return (model, share of answers with a number that differs), the model with most of them first."""
    shares = [(model, figures[model]["differing_answers"]) for model in sorted(figures)]
    return sorted(shares, key=lambda entry: -(entry[1]["value"] or 0))


def check_rows(figures: JsonObject) -> list[dict[str, str | float | int]]:
    """Return the table of the figures, the model with most numbers that differ first."""
    rows = []
    for model, share in _shares(figures):
        each = figures[model]
        row = {"model": model, "answers": each["answers"], "a number differs": span(share)}
        if "statements" in each:
            row["contradicted by the model"] = span(each["contradicted_answers"])
            row |= {label.replace("_", " "): each[label] for label in (*LABELS, UNREAD)}
        rows.append(row)
    return rows


def check_sentences(
    figures: JsonObject, checked: Sequence[CheckedResponse], evidence: str
) -> list[str]:
    """Return the result in sentences: the models with marked answers, and what was not looked at."""
    lines = []
    for model, share in _shares(figures):
        each = figures[model]
        if each["compared"]:
            count = f"{round(share['value'] * share['n'])} of {share['n']} answers ({percent(share['value'])})"
            lines.append(f"{model}: in {count} a number differs from {AGAINST[evidence]}.")
        wrong = each.get("contradicted_answers", {"n": 0})
        if wrong["n"]:
            count = f"{round(wrong['value'] * wrong['n'])} of {wrong['n']} answers"
            lines.append(f"{model}: {count} hold a statement that the model calls contradicted.")
    unread = Counter(each.unread for each in checked)
    if without := unread[NO_EVIDENCE]:
        lines.append(f"{several(without, 'answer')} had nothing to be checked against.")
    if foreign := unread[LANGUAGE]:
        lines.append(
            f"{several(foreign, 'answer')} or references are not English: no number of theirs is marked."
        )
    left = "what an answer leaves out" if any("statements" in each for each in figures.values()) else (
        "whether words are right, and what an answer leaves out (words: --checker MODEL)"
    )  # fmt: skip
    return [
        *lines,
        f"Not looked at: {left}. A mark is a place to look at, and no mark is no proof.",
    ]


def marked_answers(cases: Sequence[Case], checked: Sequence[CheckedResponse]) -> list[JsonObject]:
    """Return the answers with something to look at: the largest factor first, then what a model is surest of."""
    by_id = {case.id: case for case in cases}
    answers = []
    for each in checked:
        wrong = [line for line in each.statements if line["label"] == CONTRADICTED]
        if not (each.differs or wrong):
            continue
        case = by_id[each.case_id]
        places = sorted([*each.differs, *wrong], key=lambda place: place["start"])
        answers.append(
            {
                "case_id": case.id,
                "row": case.row_of(case.models.index(each.model)),
                "model": each.model,
                "question": question_text(case.question),
                "text": marked(_text(case, each.model), places),
                "numbers": each.differs,
                "contradicted": sorted(wrong, key=_unsure),
            }
        )
    return sorted(answers, key=_urgency)


def _urgency(answer: JsonObject) -> tuple[float, float]:
    return (
        -max((mark["factor"] for mark in answer["numbers"]), default=0.0),
        min(map(_unsure, answer["contradicted"]), default=0.0),
    )


def _unsure(statement: JsonObject) -> float:
    return -statement.get("probability", 0.0)


def _text(case: Case, model: str) -> str:
    return next(response.text for response in case.responses if response.model == model)


def places_in_words(answers: Sequence[JsonObject]) -> list[str]:
    """Return the first places to look at, each with both sentences, for the terminal."""
    lines = []
    for answer in answers[:SHOWN]:
        for mark in answer["numbers"][:1]:
            lines += [
                f"\n{in_words(mark)}  ({answer['model']}, {answer['case_id']})",
                f"  answer:    {_shown(mark['sentence'])}",
                f"  {mark['source'] + ':':<10} {_shown(mark['passage'])}",
            ]
    return lines


def _shown(parts: Sequence[str]) -> str:
    before, number, behind = (" ".join(f"|{part}|".split())[1:-1] for part in parts)
    return f"{before}[{number}]{behind}"


def marked(text: str, passages: Sequence[JsonObject]) -> Markup:
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
    figures: JsonObject,
    settings: JsonObject,
) -> dict[str, str]:
    """Return check.html, check.md and claims.csv by name."""
    rows, against = check_rows(figures), AGAINST[settings["evidence"]]
    table = PageTable(
        list(rows[0]) if rows else [], [list(row.values()) for row in rows], "Answers by model"
    )
    bars = [(model, share, f"{share['n']} could be read") for model, share in _shares(figures)]
    pages = render_report(
        "check", "Answers checked",
        words=check_sentences(figures, checked, settings["evidence"]), notes=settings["notes"],
        bars=Bars(f"Share of answers with a number that differs from {against}, with 95 % intervals", bars),
        tables=[table], settings=settings, answers=marked_answers(cases, checked),
    )  # fmt: skip
    return pages | {"claims.csv": _csv(cases, checked)}


def _csv(cases: Sequence[Case], checked: Sequence[CheckedResponse]) -> str:
    """Return a row for each number that differs, for each statement that a model read, and for each answer without either."""
    file, by_id = io.StringIO(), {case.id: case for case in cases}
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for each in checked:
        case = by_id[each.case_id]
        row = case.row_of(case.models.index(each.model))
        about = {"case_id": case.id, "model": each.model, "row": row}
        about["question"] = question_text(case.question)
        for line in _lines(each):
            cells = about | line
            writer.writerow({name: no_formula(cells.get(name, "")) for name in COLUMNS})
    return file.getvalue()


def _lines(checked: CheckedResponse) -> Iterator[JsonObject]:
    for mark in checked.differs:
        words = {
            name: "".join(mark[key])
            for name, key in (("statement", "sentence"), ("passage", "passage"))
        }
        yield (
            mark
            | words
            | {"number": mark["sentence"][1], "beside": mark["passage"][1], "label": "differs"}
        )
    for statement in checked.statements:
        yield statement | {"statement": statement["text"]}
    if not checked.differs and not checked.statements:
        yield {"label": UNREAD if checked.unread else "", "reason": checked.unread or ""}
