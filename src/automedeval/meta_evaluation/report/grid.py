"""The grid of a page: a row per case and a column per model, packed for the browser.

What is sorted and filtered by is one block, the texts are another, which the browser unpacks when a case is opened or searched.
"""

import base64
import gzip
import json
from collections import defaultdict
from itertools import combinations, product
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from automedeval.evidence.numbers import numbers
from automedeval.meta_evaluation.agreement.judge_facts import blind_to, differing
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People
from automedeval.meta_evaluation.verdicts.table import Judges, Row, VerdictTable
from automedeval.records import JsonObject, digest, question_text
from automedeval.stats.bootstrap import Arrays, is_known, only

GRID_CASES = 20_000  # of more cases the file would be too large to send
QUESTION = 200  # letters of a question that a row has
RAW = 10_000  # letters of an invalid verdict's text
NEWLY = (
    "differs",
    "empty",
    "failing",
)  # of an answer beside the baseline's; failing: without a score
Texts = dict[str, list[tuple[str, str]]]  # id of a case → texts with their titles
CHANGES = ("won", "lost", *(f"newly_{name}" for name in NEWLY))  # marks of what changed


class Changed(NamedTuple):
    """What changed from the answers of a baseline to all others."""

    baseline: str
    gap: ndarray  # the score less that of the old answer: float [responses], NaN where not both have one
    marks: Arrays  # by `CHANGES`: bool [responses]


def _marks_by_response(judge: VerdictTable) -> list[list[JsonObject] | None]:
    """Return the numbers that differ in each response of all cases, None where nothing was compared."""
    marks = differing(judge)
    by_response = list[list[JsonObject] | None]()
    for case in judge.cases.records:
        by_response += [marks.get((case.id, model)) for model in case.models]
    return by_response


def marks_of(judge: VerdictTable) -> Arrays:
    """Return mark → whether each response has it by a judge: bool [responses]."""
    # Without positive points a response whose criteria were read has no score.
    is_said = judge.is_valid[judge.panel.group] if judge.on_criteria else is_known(judge.best)
    valid, due = judge.valid_by_response(is_said)
    return {
        "differs": np.array([bool(marks) for marks in _marks_by_response(judge)], bool),
        "empty": judge.cases.empty,
        "unread": judge.unread,
        "invalid": (valid < due) & ~judge.unread,
    }


def numbers_of(judge: VerdictTable) -> ndarray:
    """Return the numbers that differ in each response, as a set: object [responses]."""
    found = [set(map(_value_of, marks or ())) for marks in _marks_by_response(judge)]
    return np.array(found, object)


def _value_of(mark: JsonObject) -> tuple:
    """Return the kind of a number that differs and its value; its words where they say none by themselves."""
    kind = mark["kind"]
    words = mark["sentence"][1]
    values = [(number.low, number.high) for number in numbers(words) if number.kind == kind]
    return (kind, *(values or [words]))


def _largest(cases: Cases, values: ndarray) -> ndarray:
    """Return the largest of the values [responses] of each case, NaN without one: float [cases]."""
    largest = np.full(len(cases), np.nan)
    np.fmax.at(largest, cases.panel.case, values)
    return largest


def measures_of_cases(cases: Cases, row: Row, people: People | None) -> Arrays:
    """Return what makes cases worth reading: measure → float [cases], the higher the more; NaN where it is not known.

    - differs: the largest factor by which a number differs from the reference; only where there is one.
    - models_differ: the largest less the smallest score of a case; of a judge of pairs, pairs won less lost.
    - people_disagree: the pairs in another order than people's, weighted by how much higher people rate the one.
    - least_sure: minus the mean gap between the expected scores of two responses.
    """
    panel, values, measures = cases.panel, row.ranking_values, {}
    of_all = _marks_by_response(row.judge)
    factors = [max((mark["factor"] for mark in marks or ()), default=0.0) for marks in of_all]
    compared = np.array([marks is not None for marks in of_all], bool)
    if compared.any():
        measures["differs"] = _largest(cases, only(np.array(factors), compared))
    measures["models_differ"] = _largest(cases, values) + _largest(cases, -values)
    if people is not None:
        relation = row.people_relations(people)
        lost = np.nan_to_num(np.abs(people.gaps(*panel.pairs)) * np.abs(relation - row.relations))
        is_rated = panel.per_case(is_known(relation)) > 0
        measures["people_disagree"] = only(panel.per_case(lost), is_rated)
    if row.expected is not None:
        measures["least_sure"] = -row.gaps
    return measures


def grid_of(
    cases: Cases,
    judges: Judges,
    people: People | None,
    main: Row,
    changed: Changed | None,
    worst: ndarray,
) -> JsonObject:
    """Return what `grid.html.jinja` needs: "grid", {"rows", "texts"} as gzip in base64, and "in_grid", how many cases it has.

    Args:
        main: the line whose scores the cells have.
        changed: what `changes.against_baseline` returns; its size sorts the cases then.
        worst: which responses have the worst rating of a person: bool [responses].
    """
    values = main.ranking_values
    by_judge = _scores(judges)
    met = {judge.name: judge.met for judge in judges if judge.on_criteria}
    rated, by_rater, comments = np.full(cases.responses, np.nan), {}, {}
    if people is not None:
        rated = people.scores
        comments = people.comments
        by_rater = dict(zip(people.annotators, people.by_annotator().T))
    measures = measures_of_cases(cases, main, people)
    marked = marks_of(main.judge) | {"worst": worst}
    head: JsonObject = {}
    if changed is not None:
        head = {"base": changed.baseline, "sort": "lost"}
        gap = changed.gap
        marked |= changed.marks
        for name, size in {"won": gap, "lost": -gap, "models_differ": np.abs(gap)}.items():
            measures[name] = _largest(cases, size)
    differs = _marks_by_response(main.judge)
    rationales = _rationales(judges)
    rows = []
    texts = []
    for number in cases.file_order[:GRID_CASES]:
        case = cases.records[number]
        question = question_text(case.question)
        cells: dict[str, list[object]] = {}
        responses = []
        for place, response in enumerate(case.responses, int(cases.start[number])):
            score = _number(values[place])
            people_score = _number(rated[place])
            names = [name for name, is_marked in marked.items() if is_marked[place]]
            cells[response.model] = [score, len(response.text), names, people_score]
            content = {
                "model": response.model,
                "text": response.text,
                "scores": _known(by_judge, place),
                "people": _known(by_rater, place),
                "criteria": _criteria(cases, met, place),
                "comments": comments.get(place, []),
                "wrong": differs[place] or [],
            }
            responses.append(content)
        sizes = {name: _number(of_cases[number]) for name, of_cases in measures.items()}
        by_model = [cells.get(model) for model in cases.models]
        rows.append([case.id, case.topic or "", question[: QUESTION + 1], by_model, sizes])
        opened = {
            "question": question,
            "reference": case.reference,
            "choices": _choices(cases, judges, number),
            "rationales": rationales[case.id],
            "responses": responses,
        }
        texts.append(opened)
    content = {
        # What a reader's flags belong to: the cases with their texts and models, whoever judges them.
        "report": digest([[case.id, case.digest] for case in cases.records]),
        "models": cases.models,
        **head,
        "rows": rows,
        "blind": bool(blind_to(main.judge)),
        "scale": main.judge.scale if main.best is not None else None,  # None: what the scores take
    }
    packed = {"rows": _pack(_json(content)), "texts": _pack("\n".join(map(_json, texts)))}
    return {"grid": packed, "in_grid": len(rows)}


def _rationales(judges: Judges) -> Texts:
    """Return every judge's rationales, and the texts of invalid verdicts, with their titles.

    Of the verdicts on the same responses of a case, in several orders or runs, the first one's rationale stands for all.
    """
    texts: Texts = defaultdict(list)
    for judge in judges:
        shown = set()
        for verdict in sorted(judge.verdicts, key=attrgetter("run", "order")):
            case = judge.cases.case(verdict.case_id)
            if not verdict.valid and verdict.raw:
                texts[case.id].append(
                    (f"Invalid verdict of {judge.name}: {verdict.error}", verdict.raw[:RAW])
                )
            responses = (case.id, frozenset(verdict.order))
            if verdict.valid and verdict.rationale and responses not in shown:
                shown.add(responses)
                names = [
                    f"{slot} is {case.models[index]}" for slot, index in enumerate(verdict.order, 1)
                ]
                title = f"Rationale of {judge.name} ({', '.join(names)})"
                texts[case.id].append((title, verdict.rationale))
    return texts


def _choices(cases: Cases, judges: Judges, number: int) -> list[tuple]:
    """Return a judge's name, the slots of two responses, and criterion → code of its choice."""
    start = int(cases.start[number])
    slots = range(len(cases.records[number].responses))
    lines = []
    for judge, (first, second) in product(judges, combinations(slots, 2)):
        pair = cases.pair_index[start + first, start + second]
        codes = {name: int(of_pairs[pair]) for name, of_pairs in judge.choices.items()}
        lines.append((judge.name, first, second, codes))
    return lines


def _scores(judges: Judges) -> Arrays:
    """Return the scores of every judge, and by criterion where it scores criteria by themselves: float [responses]."""
    scores = {}
    for judge in judges:
        scores[judge.name] = judge.whole_scores()
        for name, by_criterion in judge.criterion_scores.items():
            scores[f"{judge.name}: {name}"] = by_criterion
    return scores


def _known(scores: Arrays, place: int) -> list[tuple[str, float]]:
    """Return those scores that a response has, with their names."""
    return [
        (name, float(values[place])) for name, values in scores.items() if is_known(values[place])
    ]


def _criteria(cases: Cases, met: Arrays, place: int) -> list[tuple]:
    """Return points and text of each criterion of a response, and in what share of its runs each judge calls it met."""
    lines = []
    for index in range(*cases.first_item[place : place + 2]) if met else ():
        _, criterion = cases.items[index]
        shares = [(judge, _number(of_items[index])) for judge, of_items in met.items()]
        lines.append((criterion.points, criterion.criterion, shares))
    return lines


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pack(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
