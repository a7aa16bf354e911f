"""Rows of public question-answer sets as cases: the layouts they come in, and what is left out of them.

A layout says how one row becomes a case: which columns hold the question, the trusted answer, the topic and the responses.
Exclusion patterns are data: named regular expressions over one field of a case, each with its reason.
"""

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from automedeval.records import Case, Choice, RecordError, Response, question_text, read_lines

EXCLUSIONS = resources.files("automedeval.dataset") / "templates" / "exclusions.yaml"
FIELDS = ("question", "reference", "topic")
# Instructions that say no more than that a question follows; any other one is part of the question.
GENERIC_INSTRUCTION = re.compile(
    r"(?:please )?answer (?:this|the(?: following)?|these) (?:medical )?questions?(?: truthfully)?"
    r"|if you are a doctor, please answer the medical questions based on the patient's description",
    re.I,
)


class Row(NamedTuple):
    """One row of a public set: where it stands, its case, not yet checked, and people's choices about its responses.

    `own_id` says that the case's id is its source's: ratings may name it, so it stays as it is.
    """

    place: str
    case: Case
    choices: tuple[dict[str, Any], ...] = ()
    own_id: bool = False


@dataclass(frozen=True)
class Layout:
    """How one row becomes a case.

    `keys` are what a row of this layout has; `case` makes the case, with the row's own id or none; `choices` lists what
    people chose about the case's responses. Where `keeps_id`, the rows are cases already, and ratings name their ids.
    """

    name: str
    keys: tuple[str, ...]
    case: Callable[[dict], Case]
    choices: Callable[[dict, Case], tuple[dict[str, Any], ...]] = lambda row, case: ()
    keeps_id: bool = False


def _text(row: dict, key: str) -> str:
    """Return a column's text, empty where it is missing or null.

    Raises:
        RecordError: the column holds something else than text.
    """
    value = row.get(key)
    if not isinstance(value, str | None):
        raise RecordError(f"{key!r} must be text, not {json.dumps(value, default=str)[:80]}")
    return value or ""


def _row_id(row: dict) -> str:
    value = row.get("id")
    return str(value) if isinstance(value, str | int) else ""


def _instruction(row: dict) -> Case:
    instruction, given = _text(row, "instruction").strip(), _text(row, "input").strip()
    parts = ["" if GENERIC_INSTRUCTION.fullmatch(instruction.rstrip(" .:")) else instruction, given]
    return Case(_row_id(row), "\n\n".join(part for part in parts if part), (), _text(row, "output"))


def _medtext(row: dict) -> Case:
    return Case(_row_id(row), _text(row, "Prompt"), (), _text(row, "Completion"))


def _medquad(row: dict) -> Case:
    # The page's address stays with the case: the licence asks for it.
    kept = {key: row[key] for key in ("qtype", "collection", "url") if row.get(key) is not None}
    topic = _text(row, "focus") or _text(row, "qtype") or None
    return Case(_row_id(row), _text(row, "question"), (), _text(row, "answer"), topic, kept)


def _pandalm(row: dict) -> Case:
    asked = [_text(row, "question").strip(), _text(row, "input").strip()]
    try:
        responses = tuple(Response(response["id"], response["text"]) for response in row["responses"])
    except (TypeError, KeyError):
        raise RecordError("'responses' must be a list of objects with 'id' and 'text'") from None
    return Case(_row_id(row), "\n\n".join(part for part in asked if part), responses)


def _pandalm_choices(row: dict, case: Case) -> tuple[dict[str, Any], ...]:
    words = {0: "tie", **dict(enumerate(case.models, 1))}
    found = []
    if not isinstance(row["annotators"], list):
        raise RecordError(f"'annotators' must be a list of 0 (tie), 1 or 2, not {json.dumps(row['annotators'])}")
    for number, code in enumerate(row["annotators"], 1):
        if not isinstance(code, int | float) or code not in words:
            raise RecordError(f"'annotators' must hold 0 (tie), 1 or 2, not {code!r}")
        names = {"annotator": f"annotator-{number}", "criterion": "overall", "choice": words[code]}
        found.append({"case_id": case.id, "pair": case.models, **names})
        Choice.from_dict(found[-1])
    return tuple(found)


def _case(row: dict) -> Case:
    return Case.from_dict(row, least_responses=0)


# In the order in which they are recognised: what asks for more comes first.
LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("wikidoc", ("instruction", "input", "output"), _instruction),
        Layout("medtext", ("Prompt", "Completion"), _medtext),
        Layout("pandalm", ("question", "responses", "annotators"), _pandalm, _pandalm_choices),
        Layout("cases", ("id", "question", "responses"), _case, keeps_id=True),
        Layout("feedbackqa", ("id", "question", "responses"), _case, keeps_id=True),
        Layout("alpacare", ("id", "question", "responses"), _case, keeps_id=True),
        Layout("medquad", ("question", "answer"), _medquad),
    )
}


def table_layout(question: str, reference: str | None, responses: Sequence[str], topic: str | None) -> Layout:
    """Return the layout of a table whose columns are named; each response column is a candidate of that name."""

    def case(row: dict) -> Case:
        given = tuple(Response(name, _text(row, name)) for name in responses if row.get(name) is not None)
        answer = _text(row, reference) if reference else None
        return Case(_row_id(row), _text(row, question), given, answer, (topic and _text(row, topic)) or None)

    columns = (question, reference, topic, *responses)
    return Layout("table", tuple(column for column in columns if column), case)


def recognised(row: dict, place: str) -> Layout:
    """Return the layout that a row's keys tell.

    Raises:
        RecordError: none of them.
    """
    for layout in LAYOUTS.values():
        if set(layout.keys) <= row.keys():
            return layout
    raise RecordError(
        f"{place}: no known layout has the keys {', '.join(map(str, row))}; --layout table takes any, by its columns' names"
    )


def read_rows(path: str, split: str = "train") -> Iterator[tuple[str, dict]]:
    """Yield `(place, row)` of a .json array, .jsonl, .csv or .parquet file, or of a split of a Hub dataset.

    Raises:
        RecordError: the file cannot be read, or holds something else than rows.
    """
    file = Path(path)
    if file.suffix == ".csv":
        yield from _read_csv(file)
    elif file.suffix == ".json" and file.is_file():
        yield from _read_json(file)
    elif file.exists() or file.suffix or path.count("/") != 1 or path.startswith((".", "/")):
        yield from read_lines(path)
    else:
        yield from _read_hub(path, split)


def _read_csv(file: Path) -> Iterator[tuple[str, dict]]:
    csv.field_size_limit(2**31 - 1)  # an answer may be longer than the 128 KiB that csv expects
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            for row in reader:
                place = f"{file}:{reader.line_num}"
                if None in row or None in row.values():
                    raise RecordError(f"{place}: the row does not have the header's {len(reader.fieldnames)} columns")
                yield place, row
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RecordError(f"{file}: not UTF-8") from None
    except csv.Error as error:
        raise RecordError(f"{file}: not CSV after line {reader.line_num}: {error}") from None


def _read_json(file: Path) -> Iterator[tuple[str, dict]]:
    try:
        content = file.read_text(encoding="utf-8-sig")
        if not content.lstrip().startswith("["):  # JSON Lines under another name
            yield from read_lines(file)
            return
        rows = json.loads(content)
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RecordError(f"{file}: not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file}: not JSON: {error}") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise RecordError(f"{file}: row {number} is not an object: {json.dumps(row)[:80]}")
        yield f"{file}: row {number}", row


def _read_hub(name: str, split: str) -> Iterator[tuple[str, dict]]:
    import datasets  # heavy, and only the Hub needs it

    try:
        for number, row in enumerate(datasets.load_dataset(name, split=split, streaming=True), 1):
            yield f"{name}[{split}]:{number}", row
    except Exception as error:  # noqa: BLE001 - the library raises a dozen kinds, none of them ours
        raise RecordError(f"{name}: split {split!r} cannot be read: {' '.join(str(error).split())[:300]}") from None


def rows_as_cases(rows: Iterable[tuple[str, dict]], layout: Layout, source: str) -> Iterator[Row]:
    """Yield each row as a case with a stable id: SOURCE-ROWID, or SOURCE- and twelve digits over the row's content.

    Raises:
        RecordError: a row has not got the layout's keys, or something else than text in them.
    """
    for place, row in rows:
        missing = [key for key in layout.keys if key not in row]
        if missing:
            raise RecordError(f"{place}: {missing[0]!r} is missing; found the keys {', '.join(map(str, row))}")
        try:
            case = layout.case(row)
            if not layout.keeps_id:
                case = replace(case, id=f"{source}-{case.id.removeprefix(f'{source}-') or case.digest}")
            yield Row(place, case, layout.choices(row, case), layout.keeps_id)
        except RecordError as error:
            raise RecordError(f"{place}: {error}") from None


def identified(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, each under an id that no other one has.

    A set that numbers two different rows alike gets twelve digits over the second one's content behind its id, a row that
    stands there twice a number.

    Raises:
        RecordError: two cases with ids of their own have the same one.
    """
    seen: dict[str, Row] = {}
    for row in rows:
        name, first = row.case.id, seen.get(row.case.id)
        if first and row.own_id:
            raise RecordError(f"{row.place}: the id {name!r} stands at {first.place} already")
        if first and first.case.digest != row.case.digest:
            name = f"{name}-{row.case.digest}"
        free = next(
            free for free in itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2))) if free not in seen
        )
        seen[free] = row
        if free != row.case.id:
            choices = tuple({**choice, "case_id": free} for choice in row.choices)
            row = row._replace(case=replace(row.case, id=free), choices=choices)
        yield row


@dataclass(frozen=True)
class Exclusion:
    """A pattern that leaves a case out: its name, the field it is looked for in, and why."""

    name: str
    field: str
    pattern: re.Pattern
    why: str

    def fits(self, case: Case) -> bool:
        """Say whether the pattern is found; a field that is null is not looked at."""
        value = getattr(case, self.field)
        return value is not None and bool(self.pattern.search(question_text(value)))


def read_exclusions(path: str | Path | None = None) -> list[Exclusion]:
    """Read exclusion patterns from a YAML list of mappings with name, field, pattern and why; the packaged ones by default.

    Raises:
        RecordError: the file cannot be read, or an entry's key is missing, unknown or wrong.
    """
    file = EXCLUSIONS if path is None else Path(path)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(content, list):
        raise RecordError(f"{file}: must be a list of patterns")
    found: list[Exclusion] = []
    for number, entry in enumerate(content, 1):
        place = f"{file}: pattern {number}"
        if not isinstance(entry, dict) or set(entry) != {"name", "field", "pattern", "why"}:
            raise RecordError(f"{place}: must have the keys name, field, pattern and why")
        if entry["field"] not in FIELDS:
            raise RecordError(f"{place}: field must be one of {', '.join(FIELDS)}, not {entry['field']!r}")
        if entry["name"] in [exclusion.name for exclusion in found]:
            raise RecordError(f"{place}: the name {entry['name']!r} came before")
        try:
            pattern = re.compile(str(entry["pattern"]), re.IGNORECASE)
        except re.error as error:
            raise RecordError(f"{place}: {entry['pattern']!r} is no regular expression: {error}") from None
        found.append(Exclusion(str(entry["name"]), entry["field"], pattern, str(entry["why"])))
    return found
