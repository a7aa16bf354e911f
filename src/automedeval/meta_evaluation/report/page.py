"""Write the report of a meta-evaluation, a self-contained HTML page with its tables and cases, and a short Markdown summary."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.candidates import standing
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import contradicted
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.worth_reading import measures_of_cases
from automedeval.meta_evaluation.facts import called
from automedeval.meta_evaluation.page import render_report
from automedeval.meta_evaluation.report import paper_table_text, text
from automedeval.meta_evaluation.report.figures import illustrate
from automedeval.meta_evaluation.report.grid import GRID_CASES
from automedeval.meta_evaluation.table import Row, VerdictTable
from automedeval.records import question_text
from automedeval.records.text import by_reason
from automedeval.stats.agreement import LABELS

RAW = 10_000  # letters of an invalid verdict's text
MARKS = {  # list of cases in agreement.json → mark of a case
    "contradicted": "contradicted",
    "models_differ": "models differ",
    "people_disagree": "people disagree",
    "least_sure": "judge unsure",
}


def undefined(records: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return why figures of the agreement table are undefined → which judge's which."""
    return by_reason(
        (estimate["reason"], f"{name}{whose}", LABELS[measure])
        for name, record in records.items()
        for half, whose in (("", ""), ("_expected", "'s expected scores"))
        for measure in LABELS
        if (estimate := record.get(f"{measure}{half}")) is not None and estimate["value"] is None
    )


def case_records(
    cases: Cases,
    judges: Sequence[VerdictTable],
    people: People | None,
    main: Row,
    lists: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """Lay out the cases of the page with responses, scores, choices, ratings and rationales side by side.

    "reasons" are the lists of `MARKS` that a case is in, and "measures" what sorts the cases, by the main judge's line.

    Args:
        lists: the ids of the cases to look at, by list.
    """
    measures = measures_of_cases(cases, main, people)
    judges = [judge for judge in judges if judge.kind == "judge"]
    statements_of = contradicted(main.judge)
    invalid = defaultdict(list)
    for judge in judges:
        for number, verdict in zip(judge.case_of.tolist(), judge.verdicts):
            if not verdict.valid and verdict.raw:
                invalid[number].append((f"Invalid verdict of {judge.name}: {verdict.error}", verdict.raw[:RAW]))
    records = []
    for number in _shown_cases(cases, [case_id for ids in lists.values() for case_id in ids]):
        case, start = cases.records[number], int(cases.start[number])
        responses = []
        for place, response in enumerate(case.responses, start):
            shown_response: dict[str, Any] = {
                "model": response.model,
                "text": response.text,
                "scores": _scores(judges, place),
            }
            shown_response["wrong"] = statements_of.get((case.id, response.model), [])
            comments = people.comments.get(place, []) if people is not None else []
            responses.append(shown_response | {"people": _ratings(people, place), "comments": comments})
        sure = {name: float(values[number]) for name, values in measures.items() if not np.isnan(values[number])}
        record: dict[str, Any] = {"id": case.id, "topic": case.topic, "reference": case.reference}
        record |= {"question": question_text(case.question), "responses": responses}
        record |= {"choices": _choices(cases, judges, number), "measures": sure}
        record["reasons"] = [name for name, ids in lists.items() if case.id in ids]
        record["rationales"] = [
            (f"Rationale of {each.name}", each.rationales[number]) for each in judges if number in each.rationales
        ]
        record["rationales"] += invalid[number]
        records.append(record)
    return records


def _shown_cases(cases: Cases, first: Sequence[str]) -> list[int]:
    """Return the numbers of the cases to show, in the order of the file: all, or the ids `first` and others drawn."""
    chosen = set(cases.file_order)
    if len(cases) > GRID_CASES:
        drawn = random.Random(0).sample(range(len(cases)), len(cases))
        chosen = set(list(dict.fromkeys([*(cases.index[case_id] for case_id in first), *drawn]))[:GRID_CASES])
    return [number for number in cases.file_order if number in chosen]


def _choices(cases: Cases, judges: Sequence[VerdictTable], number: int) -> list[tuple[str, str]]:
    """Return the choices of each judge of pairs on each pair of a case, in words."""
    case, start, lines = cases.records[number], int(cases.start[number]), []
    for judge, (first, second) in product(judges, combinations(range(len(case.responses)), 2)):
        pair = cases.pair_index[start + first, start + second]
        names = [case.models[first], case.models[second], "tie", "neither"]
        choices = [f"{name}: {names[codes[pair]]}" for name, codes in judge.choices.items() if codes[pair] >= 0]
        lines += [(f"{judge.name}, {names[0]} : {names[1]}", ", ".join(choices))] if choices else []
    return lines


def _scores(judges: Sequence[VerdictTable], place: int) -> list[tuple[str, float]]:
    """Return the scores that a response has: by judge, and by criterion where a judge scores criteria by themselves."""
    scores_of = []
    for judge in judges:
        scores_of.append((judge.name, judge.mixed[place]))
        scores_of += [(f"{judge.name}: {name}", scores[place]) for name, scores in judge.criterion_scores.items()]
    return [(name, float(score)) for name, score in scores_of if not np.isnan(score)]


def _ratings(people: People | None, place: int) -> str | None:
    """Return people's mean score of a response, and each rater's."""
    if people is None or np.isnan(people.scores[place]):
        return None
    scores = zip(people.annotators, people.by_annotator[place].round(2))
    each = [f"{name} {score:g}" for name, score in scores if not np.isnan(score)]
    return f"{people.scores[place]:.2f} ({', '.join(each[:8])}{', …' if len(each) > 8 else ''})"


def render(
    result: dict[str, Any],
    title: str,
    in_grid: int,
    grid: dict[str, str],
    rate: Sequence[str] = (),
    scale: tuple[float, float] | None = None,
    harm: Sequence[str] = (),
) -> dict[str, str]:
    """Render a result as {"report.html": text, "report.md": text}.

    Args:
        result: what `agreement.json` holds.
        in_grid: the number of cases in the grid.
        grid: the cases as `pack_grid` packs them.
        rate: the commands with which people rate cases; empty where enough are rated.
        scale: that of the main judge's scores.
        harm: the sentences on harm but the first, which the facts have.
    """
    records = dict(result["judges"]) if "people" in result else {}
    if ceiling := result.get("people", {}).get("ceiling"):
        records["one rater against the others"] = ceiling | {"kind": "people", "valid_rate": None}
    judges, table2 = text.real_judges(result), None
    if table := result.get("table2"):
        table2 = {"lines": paper_table_text.lines_of(table), "reasons": paper_table_text.reasons(table)}
        table2["head"] = [paper_table_text.COLUMNS[name].label for name in table["columns"]]
    return render_report(
        "automedeval.meta_evaluation", "report", title, words=text.words(result, scale),
        facts=text.answer(result), further=[*text.further(result), *harm], commands=rate, bars=text.bars(result, scale),
        links=text.read_first(result), tables=text.tables(result), notes=result["notes"], figures=illustrate(result),
        settings=result["settings"], scripts=("report.js", "grid.js"), result=result, judges=judges,
        standing=standing(result["models"][result["main_judge"]["name"]]),
        main=called(result["main_judge"]["name"]), in_grid=in_grid, grid=grid, table2=table2,
        gaps=text.gaps(result), records=records, reasons=undefined(records), labels=LABELS,
    )  # fmt: skip
