"""What the checked responses say of each model: a table, a page of the answers with the places to look at, a CSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np
from markupsafe import Markup

from automedeval.evidence.run import LANGUAGE, NO_EVIDENCE, in_words
from automedeval.meta_evaluation.facts import AGAINST
from automedeval.meta_evaluation.page import Bars, Pages, PageTable, Said, render_report, say
from automedeval.meta_evaluation.verdicts.cases import clusters_of, units_of
from automedeval.records import Case, CheckedResponse, JsonObject, question_text
from automedeval.records.text import no_formula, span
from automedeval.stats.bootstrap import RESAMPLES, SHARE, estimate, mean_of, plain

Checked = Sequence[CheckedResponse]
SHOWN = 3  # places that the terminal shows
COLUMNS = (
    "case_id", "row", "question", "model", "factor", "kind", "number", "beside", "statement", "passage", "source",
)  # fmt: skip


def measure(cases: Sequence[Case], checked: Checked) -> JsonObject:
    """Return the figures of each model, with intervals by bootstrap over clusters of cases.

    Returns:
        model → {"answers", "compared" (whose numbers could be), "differing_answers" (of those)}.
    """
    numbers = {case.id: number for number, case in enumerate(cases)}
    tree: JsonObject = {}
    for model in dict.fromkeys(response.model for response in checked):
        responses = [response for response in checked if response.model == model]
        case = np.array([numbers[response.case_id] for response in responses])
        marked = [None if response.unread else bool(response.differs) for response in responses]
        share = mean_of(
            np.array(marked, float), case, len(cases), "no answer that could be read", SHARE
        )
        tree[model] = {
            "answers": len(responses),
            "compared": share.n,
            "differing_answers": share,
        }
    return plain(estimate(tree, clusters_of(cases)))


def _shares(figures: JsonObject) -> list[tuple[str, JsonObject]]:
    """Return (model, share of answers with a number that differs), the model with most of them first."""
    shares = [(model, figures[model]["differing_answers"]) for model in sorted(figures)]
    return sorted(shares, key=lambda model: -(model[1]["value"] or 0))


def check_rows(figures: JsonObject) -> list[dict[str, str | float | int]]:
    """Return the table of the figures, the model with most numbers that differ first."""
    rows = []
    for model, share in _shares(figures):
        count = f"{share['n'] * (share['value'] or 0):.0f} of {share['n']}"
        rows.append(
            {
                "model": model,
                "answers": figures[model]["answers"],
                "a number differs": f"{count}: {span(share)}",
            }
        )
    return rows


def check_sentences(figures: JsonObject, checked: Checked, evidence: str) -> list[str]:
    """Return the result in sentences: the models with marked answers, and what was not looked at."""
    unread = Counter(response.unread for response in checked)
    return say(
        "check",
        shares=_shares(figures),
        against=AGAINST[evidence],
        without=unread[NO_EVIDENCE],
        foreign=unread[LANGUAGE],
    )


def _with_answers(cases: Sequence[Case], checked: Checked) -> Iterator[JsonObject]:
    """Yield which answer each is, with the `numbers` that differ."""
    by_id = {case.id: case for case in cases}
    for response in checked:
        case = by_id[response.case_id]
        index = case.models.index(response.model)
        yield {
            "case_id": case.id,
            "row": case.row_of(index),
            "model": response.model,
            "question": question_text(case.question),
            "text": case.responses[index].text,
            "numbers": response.differs,
        }


def marked_answers(cases: Sequence[Case], checked: Checked) -> list[JsonObject]:
    """Return the answers with something to look at, the largest factor first."""
    answers = []
    for answer in _with_answers(cases, checked):
        if answer["numbers"]:
            places = sorted(answer["numbers"], key=itemgetter("start"))
            answers.append(answer | {"text": marked(answer["text"], places)})
    return sorted(answers, key=lambda answer: -answer["numbers"][0]["factor"])


def places_in_words(answers: Sequence[JsonObject]) -> list[str]:
    """Return the first places to look at, each with both sentences, for the terminal."""
    lines = []
    for answer in answers[:SHOWN]:
        mark = answer["numbers"][0]
        source = mark["source"] + ":"
        lines += [
            f"\n{in_words(mark)}  ({answer['model']}, {answer['case_id']})",
            f"  answer:    {_in_brackets(mark['sentence'])}",
            f"  {source:<10} {_in_brackets(mark['passage'])}",
        ]
    return lines


def _in_brackets(parts: Sequence[str]) -> str:
    before, number, behind = (" ".join(f"|{part}|".split())[1:-1] for part in parts)
    return f"{before}[{number}]{behind}"


def marked(text: str, passages: Sequence[JsonObject]) -> Markup:
    """Return an answer as HTML with passages of it marked, from `start` to `end`, in their order; they may overlap."""
    page = Markup()
    position = 0
    for passage in passages:
        start = max(passage["start"], position)
        end = passage["end"]
        if start < end:
            page += text[position:start]
            page += Markup("<mark>{}</mark>").format(text[start:end])
            position = end
    return page + text[position:]


def check_page(
    cases: Sequence[Case],
    checked: Checked,
    figures: JsonObject,
    settings: JsonObject,
) -> Pages:
    """Return check.html, check.md and claims.csv by name."""
    rows = check_rows(figures)
    head = list(rows[0]) if rows else []
    table = PageTable(head, [list(row.values()) for row in rows], "Answers by model")
    bars = [(model, share, f"{share['n']} could be read") for model, share in _shares(figures)]
    pages = render_report(
        "check", "Answers checked", Said(check_sentences(figures, checked, settings["evidence"]), []),
        bars=Bars(
            f"Share of answers with a number that differs from {AGAINST[settings['evidence']]}, with 95 % intervals",
            bars,
        ),
        settings=settings | {"resamples": RESAMPLES, "units": units_of(cases)},
        tables=[table], answers=marked_answers(cases, checked),
    )  # fmt: skip
    return pages | {"claims.csv": _csv(cases, checked)}


def _csv(cases: Sequence[Case], checked: Checked) -> str:
    """Return a row for each number that differs."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for answer in _with_answers(cases, checked):
        for mark in answer["numbers"]:
            sentence = mark["sentence"]
            passage = mark["passage"]
            cells = answer | mark | {
                "number": sentence[1], "beside": passage[1],
                "statement": "".join(sentence), "passage": "".join(passage),
            }  # fmt: skip
            writer.writerow({name: no_formula(cells[name]) for name in COLUMNS})
    return file.getvalue()
