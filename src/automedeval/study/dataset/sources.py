"""Read rows of public question-answer sets as cases, and exclude cases by patterns.

A layout says which columns of a row hold the question, the trusted answer, the topic and the responses. Exclusion patterns are
named regular expressions over one field of a case, in templates/exclusions.yaml.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import NamedTuple

from automedeval.records import Case, JsonObject, RecordError, errors_at, question_text
from automedeval.records.package_data import packaged
from automedeval.records.tables.cases import Table
from automedeval.records.types import take
from automedeval.study.dataset import criteria_sources

# Instructions that only announce a question; any other one is part of the question.
GENERIC_INSTRUCTION = re.compile(
    r"(?i)(?:please )?answer (?:this|the(?: following)?|these) (?:medical )?questions?(?: truthfully)?"
    r"|if you are a doctor, please answer the medical questions based on the patient's description",
)


class SourceRow(NamedTuple):
    """One row of a public set: its place in the file and its unchecked case.

    With `own_id` the id comes from the source: ratings may refer to it, so it is kept. `labels` are people's labels of the
    case's criteria.
    """

    place: str
    case: Case
    own_id: bool = False
    labels: tuple[JsonObject, ...] = ()


class Layout(NamedTuple):
    """How a row with these `keys` becomes a case; templates/layouts.yaml says what the others mean."""

    name: str
    case: Callable[[dict], Case]
    keys: tuple[str, ...]
    beside: tuple[str, ...] | None = ()
    labels: bool = False
    parts: bool = False
    cells: bool = False


def _text(row: dict, key: str) -> str:
    """Return a column's text, empty where it is missing or null; anything but text is a RecordError."""
    return take(row, key, (str, NoneType), None) or ""


def _pair(row: dict, question: str, answer: str) -> Case:
    name = row.get("id")
    return Case(str(name) if isinstance(name, str | int) else "", question, (), _text(row, answer))


def _wikidoc(row: dict) -> Case:
    instruction = _text(row, "instruction").strip()
    if GENERIC_INSTRUCTION.fullmatch(instruction.rstrip(" .:")):
        instruction = ""
    asked = (instruction, _text(row, "input").strip())
    return _pair(row, "\n\n".join(filter(None, asked)), "output")


_own = partial(Case.from_dict, least_responses=0)
READERS: dict[str, Callable[[dict], Case]] = {
    "healthbench_meta": criteria_sources.meta_evaluation,
    "healthbench": criteria_sources.healthbench,
    "healthbench_professional": criteria_sources.professional,
    "wikidoc": _wikidoc,
    "medtext": lambda row: _pair(row, _text(row, "Prompt"), "Completion"),
    "cases": _own,
    "criteria": _own,
    "criteria_table": criteria_sources.table,
}
EXCLUSIONS = [
    (rule["name"], rule["field"], re.compile(rule["pattern"], re.IGNORECASE))
    for rule in packaged("study/dataset", "exclusions")
]
LAYOUTS = {
    name: Layout(name, READERS[name], **about)
    for name, about in packaged("study/dataset", "layouts").items()
}


def recognised(row: dict) -> Layout | None:
    """Return the first layout whose keys a row has, None if there is none."""
    return next((layout for layout in LAYOUTS.values() if set(layout.keys) <= row.keys()), None)


def rows_as_cases(rows: Iterable[tuple[str, dict]], layout: Layout) -> Iterator[SourceRow]:
    """Yield each row as a case with a stable id: LAYOUT-ROWID, or LAYOUT- and twelve digits over the row's content.

    The user's own cases keep their ids, and so do tables of criteria, of which two may number from 1.

    RecordError if a row lacks a key, or has a value that is not text.
    """
    for place, row in rows:
        with errors_at(place):
            for key in layout.keys:
                if key not in row:
                    found = ", ".join(map(str, row))
                    raise RecordError(f"{key!r} is missing; found the keys {found}")
            case = layout.case(row)
            if layout.beside is not None and not (layout.cells and "id" in row):
                case = replace(case, id=_source_id(layout.name, case))
            labels = criteria_sources.physicians(row, case) if layout.labels else ()
        yield SourceRow(place, case, layout.beside is None, labels)


def table_as_cases(table: Table, source: str | None) -> Iterator[SourceRow]:
    """Yield the cases of a table of answers with the ids of `read_cases`, which begin with `source` if there is one.

    Where there are neither responses nor a trusted answer, although the table has a column for it, that answer is empty.
    """
    for place, case in table.cases:
        if "reference" in table.columns.roles and case.reference is None and not case.responses:
            case = replace(case, reference="")
        yield SourceRow(place, replace(case, id=_source_id(source, case) if source else case.id))


def _source_id(source: str, case: Case) -> str:
    return f"{source}-{case.id.removeprefix(f'{source}-') or case.digest}"


def identified(rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
    """Yield the rows with unique ids: a number is appended to one that came before. An `own_id` twice is a RecordError."""
    places: dict[str, str] = {}
    for row in rows:
        name = row.case.id
        number = 1
        if row.own_id and name in places:
            raise RecordError(f"{row.place}: the id {name!r} stands at {places[name]} already")
        while name in places:
            number += 1
            name = f"{row.case.id}-{number}"
        places[name] = row.place
        labels = tuple(label | {"case_id": name} for label in row.labels)
        yield row._replace(case=replace(row.case, id=name), labels=labels)


def excluded(case: Case) -> str | None:
    """Return the name of the first packaged exclusion pattern that fits a case, None if none does; null fits none."""
    for name, field, pattern in EXCLUSIONS:
        value = getattr(case, field)
        if value is not None and pattern.search(question_text(value)):
            return name
    return None
