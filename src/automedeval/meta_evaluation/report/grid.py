"""The grid of the report's page: a row per case and a column per model, packed for the browser, with the flags of readers.

What is sorted and filtered by is one block, the texts are another, which the browser unpacks when a case is opened or searched.
"""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import contradicted
from automedeval.meta_evaluation.table import Row, VerdictTable
from automedeval.records import RecordError, digest, read_lines

GRID_CASES = 20_000  # of more cases the file would be too large to send
FLAGS = "flags.jsonl"  # what the page writes, and the report reads again from its folder
QUESTION = 200  # letters of a question that a row has


def fingerprint(cases: Cases) -> str:
    """Return what a reader's flags belong to: the cases with their texts and models, whoever judges them."""
    return digest([[case.id, case.digest] for case in cases.records])


def read_flags(file: Path, cases: Cases) -> dict[str, dict[str, Any]]:
    """Return case id → {"flagged", "comment"} of a file that the page wrote; empty if there is none.

    Raises:
        RecordError: a line is no flag, or a flag of another report.
    """
    flags, expected = {}, fingerprint(cases)
    for place, line in read_lines(file) if file.exists() else ():
        if line.get("report") != expected:
            raise RecordError(f"{place}: a flag of another report, of other cases; remove the file from this folder")
        if not isinstance(line.get("case_id"), str) or not isinstance(line.get("comment", ""), str):
            raise RecordError(f"{place}: 'case_id' and 'comment' must be texts")
        flags[line["case_id"]] = {"flagged": bool(line.get("flagged")), "comment": line.get("comment", "")}
    return flags


def marks_of(cases: Cases, judge: VerdictTable) -> dict[str, np.ndarray]:
    """Return mark → whether each response has it by a judge: bool [responses]."""
    valid, due = judge.valid_by_response
    statements = contradicted(judge)
    wrong = [bool(statements.get((case.id, model))) for case in cases.records for model in case.models]
    invalid = (valid < due) & ~judge.unread
    return {"contradicted": np.array(wrong, bool), "empty": cases.empty, "unread": judge.unread, "invalid": invalid}


def pack_grid(
    cases: Cases,
    records: Sequence[Mapping[str, Any]],
    main: Row,
    marks: Mapping[str, str],
    flags: Mapping[str, Any],
    *,
    models: Sequence[str] = (),
    marked: Mapping[str, np.ndarray] | None = None,
    before: Sequence[np.ndarray] = (),
    **head: str,
) -> dict[str, str]:
    """Return {"rows", "texts"}: two gzip streams in base64, JSON and JSON Lines, of the cases in the order of the records.

    Args:
        records: the cases as `page.case_records` lays them out.
        marks: list of cases to look at → its mark in words.
        flags: what readers flagged, see `read_flags`.
        models: the columns; by default all models.
        marked: further marks → whether each response has it: bool [responses].
        before: the scores that stand below the main judge's in place of the lengths: one float [responses], or none.
        head: "gap", the name of the measure `models_differ`, and "base", the model with which answers are compared first.
    """
    models = models or cases.models
    values = main.ranking_values
    marked = marks_of(cases, main.judge) | dict(marked or {})
    rows = []
    for record in records:
        number = cases.index[record["id"]]
        cells: dict[str, list[Any]] = {}
        for place, response in enumerate(record["responses"], int(cases.start[number])):
            names = [name for name in marked if marked[name][place]]
            scores = [None if np.isnan(each[place]) else round(float(each[place]), 4) for each in (values, *before)]
            cells[response["model"]] = [scores[0], len(response["text"]), names, *scores[1:]]
        question = " ".join(record["question"].split())
        question = question if len(question) <= QUESTION else f"{question[:QUESTION]}…"
        in_row = [cells.get(model) for model in models]
        rows.append([record["id"], record["topic"] or "", question, in_row, record["reasons"], record["measures"]])
    scored = values[~np.isnan(values)]
    scale = main.judge.scale if main.values is not None else None
    content: dict[str, Any] = {
        "report": fingerprint(cases),
        "models": models,
        "marks": marks,
        "flags": flags,
        "rows": rows,
    } | head
    content["scale"] = scale or ([float(scored.min()), float(scored.max())] if len(scored) else [0, 1])
    return {"rows": _pack(_json(content)), "texts": _pack("\n".join(_json(_texts(each, models)) for each in records))}


def _texts(record: Mapping[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """Return what the page shows of an opened case."""
    names = ("question", "reference", "choices", "rationales")
    responses = [each for each in record["responses"] if each["model"] in models]
    responses = [each | {"wrong": _in_utf16(each["text"], each["wrong"])} for each in responses]
    return {name: record[name] for name in names} | {"responses": responses}


def _in_utf16(text: str, statements: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return statements with `start` and `end` as JavaScript counts them: a letter outside the first plane is two."""
    ends = ("start", "end")
    return [dict(each) | {end: len(text[: each[end]].encode("utf-16-le")) // 2 for end in ends} for each in statements]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pack(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
