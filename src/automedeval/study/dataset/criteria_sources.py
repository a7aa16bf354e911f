"""Read public sets that have criteria for each case: HealthBench, HealthBench Professional, its meta-evaluation, tables.

The layouts of HealthBench were read from public loaders, not from its records, so whatever is unexpected is an error that says
what was found.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import NoneType
from typing import Any

from automedeval.records import (
    Case,
    CaseCriterion,
    JsonObject,
    RecordError,
    Response,
    digest,
    foreign_errors_at,
    key_of,
)
from automedeval.records.messages import read_conversation
from automedeval.records.tables.columns import fault_of_reference
from automedeval.records.tables.rows import filled
from automedeval.records.types import criteria_of, take, without_none

UNKNOWN_POINTS = 1.0  # HealthBench's meta-evaluation does not say them
THEME = "theme:"  # how HealthBench begins the tag of a topic


def _messages(row: dict, name: str) -> list[dict[str, str]]:
    return read_conversation(take(row, name, (list,)), name)


def _criteria(items: list[dict], text: str) -> tuple[CaseCriterion, ...]:
    """Return the criteria of a list that has them under the key `text`, beside `points` and perhaps `tags`."""
    entries = []
    for item in items:
        said = take(item, text, (str,))
        points = item.get("points")
        entries.append({"criterion": said, "points": points, "tags": item.get("tags") or []})
    return criteria_of(entries)


def healthbench(row: dict) -> Case:
    """Return the case of a record of HealthBench; its theme is the topic, its ideal completion the reference."""
    ideal = take(row, "ideal_completions_data", (dict, NoneType), None)
    reference = take(ideal, "ideal_completion", (str, NoneType)) if ideal else None
    tags = row.get("example_tags") or []
    themes = [tag for tag in map(str, tags) if tag.startswith(THEME)]
    topic = themes[0].removeprefix(THEME) if themes else None
    extra = {"example_tags": tags} if tags else {}
    criteria = _criteria(take(row, "rubrics", (list,)), "criterion")
    name = str(row.get("prompt_id") or "")
    return Case(name, _messages(row, "prompt"), (), reference, topic, extra, criteria)


def professional(row: dict) -> Case:
    """Return the case of a record of HealthBench Professional; its specialty is the topic."""
    names = ("use_case", "type", "difficulty", "specialty")
    extra = without_none({name: row.get(name) for name in names})
    messages = _messages(take(row, "conversation", (dict,)), "messages")
    criteria = _criteria(take(row, "rubric_items", (list,)), "criterion_text")
    return Case(str(row.get("id") or ""), messages, (), None, row.get("specialty"), extra, criteria)


def meta_evaluation(row: dict) -> Case:
    """Return the part of a case that a record of HealthBench's meta-evaluation holds: one completion and one criterion.

    Records of the same completion are joined to one case. The records do not say the criteria's points: each has one.
    """
    tags = [f"category:{row['category']}"] if row.get("category") else []
    criterion = {"criterion": take(row, "rubric", (str,)), "points": UNKNOWN_POINTS, "tags": tags}
    response = Response(
        str(row.get("completion_id") or "completion"), take(row, "completion", (str,))
    )
    name = "-".join(str(row[key]) for key in ("prompt_id", "completion_id") if row.get(key))
    return Case(name, _messages(row, "prompt"), (response,), criteria=criteria_of([criterion]))


def physicians(row: dict, case: Case) -> tuple[JsonObject, ...]:
    """Return the labels that physicians gave in a record of HealthBench's meta-evaluation."""
    labels = take(row, "binary_labels", (list,))
    names = take(row, "anonymized_physician_ids", (list,))
    if len(labels) != len(names):
        raise RecordError(
            f"{len(labels)} 'binary_labels' of {len(names)} 'anonymized_physician_ids'"
        )
    about = {"case_id": case.id, "model": case.models[0], "criterion": case.criteria[0].criterion}
    records = []
    for label, name in zip(labels, names):
        is_met = take({"binary_labels": label}, "binary_labels", (bool,))
        records.append(about | {"annotator": str(name), "label": "met" if is_met else "not_met"})
    return tuple(records)


def table(row: dict) -> Case:
    """Return the part of a case in a row of a table: one criterion, with its points and perhaps a model's response.

    Columns: question, criterion, points; perhaps id, tags (separated by ";"), reference, topic, model and response. A blank
    response of a model has an empty text.
    """
    with foreign_errors_at("'points' must be a number", TypeError, ValueError):
        points = float(take(row, "points", (str, int, float)))
    names = ("tags", "reference", "topic", "model", "response")
    cells = {name: row[name] if filled(row.get(name)) else None for name in names}
    if fault := fault_of_reference(cells["reference"]):
        raise RecordError(fault)
    tags = (take(cells, "tags", (str, NoneType)) or "").split(";")
    own_tags = list(filter(None, map(str.strip, tags)))
    criterion = {"criterion": row.get("criterion"), "points": points, "tags": own_tags}
    criteria = criteria_of([criterion])
    answer = {"model": cells["model"] or "", "text": cells["response"] or ""}
    responses = (Response.from_dict(answer),) if any(answer.values()) else ()
    question = take(row, "question", (str,))
    if "id" in row and not filled(row["id"]):
        raise RecordError("'id' is blank, and the table has ids: fill it in, or remove the column")
    name = str(row["id"]) if "id" in row else digest(key_of(question))
    return Case(name, question, responses, cells["reference"], cells["topic"], criteria=criteria)


def joined(parts: Iterable[Any]) -> Iterator[Any]:
    """Join rows that are parts of one case: the same id, and the criteria and responses of all of them.

    RecordError if the parts differ in question, reference or topic.
    """
    wholes: dict[str, Any] = {}
    for row in parts:
        whole = wholes.get(row.case.id)
        if whole is not None:
            texts = {}
            for name in ("question", "reference", "topic"):
                first = getattr(whole.case, name)
                other = getattr(row.case, name)
                if first and other and key_of(first) != key_of(other):
                    raise RecordError(
                        f"{row.place}: another {name} than at {whole.place}, which has the same id"
                    )
                texts[name] = first or other
            criteria = _once(whole.case.criteria + row.case.criteria)
            responses = _once(whole.case.responses + row.case.responses)
            case = replace(whole.case, criteria=criteria, responses=responses, **texts)
            row = whole._replace(case=case, labels=whole.labels + row.labels)
        wholes[row.case.id] = row
    yield from wholes.values()


def _once(records: Iterable[Any]) -> tuple[Any, ...]:
    """Return the records, each once; `Case.from_dict` refuses two of one criterion or model."""
    once = []
    for record in records:
        if record not in once:
            once.append(record)
    return tuple(once)
