"""The grid of a page: a row per case and a column per model, packed for the browser.

What is sorted and filtered by is one block, the texts are another, which the browser unpacks when a case is opened or searched.
"""

import base64
import gzip
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import differing
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.table import Row, VerdictTable
from automedeval.records import JsonObject, digest, question_text

GRID_CASES = 20_000  # of more cases the file would be too large to send
QUESTION = 200  # letters of a question that a row has
RAW = 10_000  # letters of an invalid verdict's text
SIZES = {  # what cases are sorted by, see `measures_of_cases` → its words
    "differs": "a number differs",
    "models_differ": "models differ",
    "people_disagree": "people disagree",
    "least_sure": "judge unsure first",
}
MET = {
    None: "unread",
    0.0: "not met",
    1.0: "met",
}  # share of the runs that call a criterion met → words
NEWLY = {"differs": ("differs",), "empty": ("empty",), "failing": ("unread", "invalid")}
# Mark of a change → its words.
WORDS = {"won": "better", "lost": "worse", **{f"newly_{name}": f"newly {name}" for name in NEWLY}}


@lru_cache(maxsize=4)  # every model is compared by the marks of the same judges
def marks_of(judge: VerdictTable) -> dict[str, np.ndarray]:
    """Return mark → whether each response has it by a judge: bool [responses]."""
    cases, (valid, due) = judge.cases, judge.valid_by_response
    marks = differing(judge)
    wrong = [bool(marks.get((case.id, model))) for case in cases.records for model in case.models]
    invalid = (valid < due) & ~judge.unread
    return {
        "differs": np.array(wrong, bool),
        "empty": cases.empty,
        "unread": judge.unread,
        "invalid": invalid,
    }


def measures_of_cases(cases: Cases, row: Row, people: People | None) -> dict[str, np.ndarray]:
    """Return what makes cases worth reading: measure → float [cases], the higher the more; NaN where it is not known.

    - differs: the largest factor by which a number differs from the reference; only where there is one.
    - models_differ: the largest less the smallest score of a case; of a judge of pairs, pairs won less lost.
    - people_disagree: the pairs in another order than people's, weighted by how much higher people rate the one.
    - least_sure: minus the mean gap between the expected scores of two responses.
    """
    panel, values, measures = cases.panel, row.ranking_values, {}
    low, high = np.full((2, len(cases)), np.nan)
    np.fmin.at(low, panel.case, values)
    np.fmax.at(high, panel.case, values)
    if marks_of_answers := differing(row.judge):
        measures["differs"] = largest = np.full(len(cases), np.nan)
        for (case_id, _), marks in marks_of_answers.items():
            number, factor = cases.index[case_id], max([0.0, *(mark["factor"] for mark in marks)])
            largest[number] = np.fmax(largest[number], factor)
    measures["models_differ"] = high - low
    if people is not None:
        relation = row.people_relations(people)
        lost = np.nan_to_num(np.abs(people.gaps(*panel.pairs)) * np.abs(relation - row.relations))
        measures["people_disagree"] = np.where(
            panel.per_case(~np.isnan(relation)) > 0, panel.per_case(lost), np.nan
        )
    if row.expected is not None:
        measures["least_sure"] = -row.gaps
    return measures


def grid_of(
    cases: Cases,
    judges: Sequence[VerdictTable],
    people: People | None,
    main: Row,
    *,
    changed: tuple[np.ndarray, Mapping[str, np.ndarray]] | None = None,
    **head: str,
) -> JsonObject:
    """Return what `grid.html.jinja` needs: "grid", {"rows", "texts"} as gzip in base64, and "in_grid", how many cases it has.

    Args:
        main: the line whose scores the cells have.
        changed: the gap and the marks of `changes.beside_baseline`; its size sorts the cases then.
        head: "base", the model with which answers are compared first; "sort", the first order.
    """
    judges = [judge for judge in judges if judge.kind == "judge"]
    values = main.ranking_values
    measures, marks, marked = measures_of_cases(cases, main, people), SIZES, marks_of(main.judge)
    if changed is not None:
        gap, more = changed
        for name, size in {"won": gap, "lost": -gap, "models_differ": np.abs(gap)}.items():
            measures[name] = np.full(len(cases), np.nan)
            np.fmax.at(measures[name], cases.panel.case, size)
        marks, marked = WORDS | SIZES, marked | dict(more)
        head["gap"] = "size of the change"
    differs, rationales = differing(main.judge), _rationales(judges)
    rows, texts = [], []
    for number in cases.file_order[:GRID_CASES]:
        case, cells, responses = cases.records[number], {}, []
        for place, response in enumerate(case.responses, int(cases.start[number])):
            score = None if np.isnan(values[place]) else round(float(values[place]), 4)
            names = [name for name in marked if marked[name][place]]
            cells[response.model] = [score, len(response.text), names]
            marks_of_answer = differs.get((case.id, response.model), [])
            response_content = {
                "model": response.model,
                "text": response.text,
                "scores": _scores(judges, place),
                "people": _ratings(people, place),
                "criteria": _criteria(cases, judges, place),
                "comments": people.comments.get(place, []) if people is not None else [],
                "wrong": _in_utf16(response.text, marks_of_answer),
            }
            responses.append(response_content)
        question = question_text(case.question)
        short = " ".join(question.split())
        short = short if len(short) <= QUESTION else f"{short[:QUESTION]}…"
        sizes = {
            name: float(each[number])
            for name, each in measures.items()
            if not np.isnan(each[number])
        }
        rows.append(
            [case.id, case.topic or "", short, [cells.get(model) for model in cases.models], sizes]
        )
        case_content = {
            "question": question,
            "reference": case.reference,
            "choices": _choices(cases, judges, number),
            "rationales": rationales[number],
            "responses": responses,
        }
        texts.append(case_content)
    scored = values[~np.isnan(values)]
    scale = main.judge.scale if main.best is not None else None
    # What a reader's flags belong to: the cases with their texts and models, whoever judges them.
    report = digest([[case.id, case.digest] for case in cases.records])
    content: JsonObject = {"report": report, "models": cases.models, "marks": marks} | head
    content["rows"] = rows
    content["scale"] = scale or (
        [float(scored.min()), float(scored.max())] if len(scored) else [0, 1]
    )
    packed = {"rows": _pack(_json(content)), "texts": _pack("\n".join(map(_json, texts)))}
    return {"grid": packed, "in_grid": len(rows)}


def _rationales(judges: Sequence[VerdictTable]) -> dict[int, list[tuple[str, str]]]:
    """Return number of a case → every judge's first rationale, and the texts of invalid verdicts, with their titles."""
    said: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for judge in judges:
        rationales: dict[int, str] = {}
        for number, verdict in zip(judge.case_of.tolist(), judge.verdicts):
            if verdict.valid and verdict.rationale:
                rationales.setdefault(number, verdict.rationale)
            elif not verdict.valid and verdict.raw:
                said[number].append(
                    (f"Invalid verdict of {judge.name}: {verdict.error}", verdict.raw[:RAW])
                )
        for number, text in rationales.items():
            said[number].append((f"Rationale of {judge.name}", text))
    return said


def _choices(cases: Cases, judges: Sequence[VerdictTable], number: int) -> list[tuple[str, str]]:
    """Return the choices of each judge of pairs on each pair of a case, in words."""
    case, start, lines = cases.records[number], int(cases.start[number]), []
    for judge, (first, second) in product(judges, combinations(range(len(case.responses)), 2)):
        pair = cases.pair_index[start + first, start + second]
        names = [case.models[first], case.models[second], "tie", "neither"]
        choices = [
            f"{name}: {names[codes[pair]]}"
            for name, codes in judge.choices.items()
            if codes[pair] >= 0
        ]
        lines += [(f"{judge.name}, {names[0]} : {names[1]}", ", ".join(choices))] if choices else []
    return lines


def _scores(judges: Sequence[VerdictTable], place: int) -> list[tuple[str, float]]:
    """Return the scores that a response has: by judge, and by criterion where a judge scores criteria by themselves."""
    scores_of = []
    for judge in judges:
        scores_of.append((judge.name, judge.mixed[place]))
        scores_of += [
            (f"{judge.name}: {name}", scores[place])
            for name, scores in judge.criterion_scores.items()
        ]
    return [(name, float(score)) for name, score in scores_of if not np.isnan(score)]


def _criteria(cases: Cases, judges: Sequence[VerdictTable], place: int) -> list[tuple[str, str]]:
    """Return the criteria of a response with their points, and of each whether it is met by the judges of criteria."""
    reading, found = [judge for judge in judges if judge.on_criteria], []
    for item in range(cases.first_item[place], cases.first_item[place + 1]) if reading else ():
        shares = [
            None if np.isnan(judge.met[item]) else float(judge.met[item]) for judge in reading
        ]
        said = [MET.get(share) or f"met in {share:.2f} of the runs" for share in shares]
        named = (
            [f"{judge.name}: {words}" for judge, words in zip(reading, said)]
            if len(said) > 1
            else said
        )
        found.append(
            (f"{cases.items[item][1].points:+g} {cases.items[item][1].criterion}", "; ".join(named))
        )
    return found


def _ratings(people: People | None, place: int) -> str | None:
    """Return people's mean score of a response, and each rater's."""
    if people is None or np.isnan(people.scores[place]):
        return None
    scores = zip(people.annotators, people.by_annotator[place].round(2))
    each = [f"{name} {score:g}" for name, score in scores if not np.isnan(score)]
    return f"{people.scores[place]:.2f} ({', '.join(each[:8])}{', …' if len(each) > 8 else ''})"


def _in_utf16(text: str, marks: Sequence[JsonObject]) -> list[JsonObject]:
    """Return marks with `start` and `end` as JavaScript counts them: a letter outside the first plane is two."""
    ends = ("start", "end")
    return [
        dict(each) | {end: len(text[: each[end]].encode("utf-16-le")) // 2 for end in ends}
        for each in marks
    ]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pack(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
