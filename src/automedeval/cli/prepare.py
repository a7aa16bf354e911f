"""Turn public question-answer sets into cases; exclude rows by patterns and duplicate questions, and count them.

    automedeval prepare answers.csv
    automedeval prepare answers.csv --columns question=Prompt reference=Gold model-a model-b
    automedeval prepare --input cases.jsonl --ids instructions/test.parquet --output test

Writes OUTPUT/cases.jsonl, OUTPUT/dropped.jsonl and OUTPUT/run.json; OUTPUT/criterion_labels.jsonl where physicians labelled
criteria. The same input gives the same files.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    check_least,
    errors_at,
    option,
    patient_question,
    read_lines,
)
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.command_line import parse
from automedeval.records.journal import arithmetic, write_lines
from automedeval.records.language import normalise
from automedeval.records.readers import is_one_of, located
from automedeval.records.run_record import BESIDE, default_folder, record_run
from automedeval.records.tables.cases import read_table
from automedeval.records.tables.columns import without_blanks
from automedeval.records.tables.rows import filled, read_rows
from automedeval.study.dataset.criteria_sources import joined
from automedeval.study.dataset.decontamination import near_duplicates
from automedeval.study.dataset.sources import (
    LAYOUTS,
    Layout,
    SourceRow,
    excluded,
    identified,
    recognised,
    rows_as_cases,
    table_as_cases,
)

Faults = dict[
    str, JsonObject
]  # id of a case → the reason why it is dropped, and the case `of` which it is a repeat


@dataclass
class PrepareCasesArguments(TableArguments):
    """The input, its layout, and the filters."""

    input: list[str] = option(
        "rows: .csv, .tsv, .xlsx, .json array, .jsonl, .parquet, or a Hub dataset id"
    )
    output: str | None = option(
        "folder for cases.jsonl, dropped.jsonl and run.json (default: cases/NAME of the input; of a split, cases/SPLIT/NAME)",
        None,
    )
    layout: str | None = option(
        "layout of the rows (default: recognised by the first row's keys, else a table of answers, see --columns)",
        None,
        choices=list(LAYOUTS),
    )
    split: str = option("split of a Hub dataset", "train")
    near_duplicates: str | None = option(
        "questions that repeat an earlier one (default: drop cases without responses, keep the others)",
        None,
        choices=["keep"],
    )
    ids: list[str] = option(
        "keep only the cases that these files name by id or case_id: .jsonl, or a split's .parquet",
        [],
    )
    sample: int | None = option("number of cases to draw, with seed 0", None)

    def __post_init__(self) -> None:
        self.input = comma_list(self.input)  # a YAML list arrives joined
        self.ids = comma_list(self.ids)
        check_least(self, 1, "sample")
        if not self.input:
            raise RecordError("--input names no file")
        if self.columns and self.layout:
            raise RecordError(
                "--columns are those of a table of answers, and no --layout takes them"
            )


def main() -> None:
    """Read, filter, draw, and write."""
    (args,) = parse((PrepareCasesArguments,), __doc__, first=("input", "columns", "output"))
    parent = f"cases/{args.split}".removesuffix("/train")
    output = Path(args.output or default_folder(parent, BESIDE.join(args.input), "input"))
    if is_one_of(output / "cases.jsonl", [*args.input, *args.ids]):
        raise RecordError(f"--output {output}: its cases.jsonl is an input")
    dropped: list[JsonObject] = []
    rows = list(identified(tqdm(rows_of(args), unit="row")))
    rows = sifted(rows, exclusions(rows), dropped)
    for row in rows:
        with errors_at(row.place):
            Case.from_dict(row.case.to_dict(), least_responses=0)
    if args.ids:
        rows = sifted(rows, unnamed(rows, args.ids), dropped)
    rows = sifted(rows, repeats(rows, args.near_duplicates == "keep"), dropped)
    if args.sample is not None and args.sample < len(rows):
        drawn = sorted(random.Random(0).sample(range(len(rows)), args.sample))
        print(f"{len(rows):,} cases → {args.sample:,} drawn")
        rows = [rows[place] for place in drawn]
    cases = [row.case for row in rows]
    if not cases:
        raise RecordError(f"{', '.join(args.input)}: no case is left")
    files = {"dropped": dropped, "cases": [case.to_dict() for case in cases]}
    if labels := list(chain.from_iterable(row.labels for row in rows)):
        files["criterion_labels"] = labels
    elif (output / "criterion_labels.jsonl").exists():
        print(f"{output / 'criterion_labels.jsonl'} was there before, and is not of these cases")
    record_run(output / "run.json", args)
    for name, records in files.items():
        write_lines(output / f"{name}.jsonl", records)
    print(summary(cases))
    for name, records in sorted(files.items()):
        print(f"{name}: {output / name}.jsonl, lines: {len(records):,}")


def sifted(rows: list[SourceRow], faults: Faults, dropped: list[JsonObject]) -> list[SourceRow]:
    """Return the rows without a fault; count the others, and add them to `dropped`."""
    dropped += [{"id": row.case.id} | faults[row.case.id] for row in rows if row.case.id in faults]
    reasons = Counter(fault["reason"] for fault in faults.values())
    print(arithmetic("cases", len(rows), reasons))
    return [row for row in rows if row.case.id not in faults]


def exclusions(rows: Iterable[SourceRow]) -> Faults:
    """Return the cases that an exclusion pattern fits."""
    reasons = {row.case.id: excluded(row.case) for row in rows}
    return {name: {"reason": reason} for name, reason in reasons.items() if reason}


def unnamed(rows: Iterable[SourceRow], files: Iterable[str]) -> Faults:
    """Return the cases whose ids the files do not name; RecordError for an id that no row has."""
    known = {row.case.id for row in rows}
    wanted = set()
    for path in files:
        for place, record in read_lines(path):
            name = record.get("id", record.get("case_id"))
            if not isinstance(name, str) or name not in known:
                raise RecordError(f"{place}: no case of --input has the id {name!r}")
            wanted.add(name)
    return {name: {"reason": "not in --ids"} for name in known - wanted}


def repeats(rows: list[SourceRow], keep: bool) -> Faults:
    """Return the cases to drop because their question repeats an earlier one; count those that stay all the same."""
    questions = [patient_question(row.case.question) for row in rows]
    faults = {}
    staying = 0
    for row, question, earlier in zip(rows, questions, near_duplicates(questions)):
        if earlier is None:
            continue
        # People may have judged responses to one question in several cases, so these are kept.
        if keep or row.case.responses:
            staying += 1
            continue
        equal = normalise(questions[earlier]) == normalise(question)
        reason = "equal question" if equal else "near question"
        faults[row.case.id] = {"reason": reason, "of": rows[earlier].case.id}
    if staying:
        print(f"cases that repeat an earlier question and are kept: {staying:,}")
    return faults


def rows_of(args: PrepareCasesArguments) -> Iterator[SourceRow]:
    """Yield the rows of all inputs as cases; print the layout of each, or what the columns of a table hold."""
    for path in args.input:
        rows = list(read_rows(located(path), args.split))
        if not rows:
            raise RecordError(f"{path}: the file has no rows")
        layout = None
        if not args.columns:
            layout = LAYOUTS[args.layout] if args.layout else recognised(rows[0][1])
        if layout is None:
            table = read_table(path, rows, args.blank, args.columns, least_responses=0)
            tqdm.write(table.line)
            yield from table_as_cases(table, Path(path).stem if len(args.input) > 1 else None)
            continue
        tqdm.write(f"{path}: layout {layout.name}{'' if args.layout else ', by its keys'}")
        yield from rows_of_layout(path, rows, layout, args)


def rows_of_layout(
    path: str, rows: list[tuple[str, dict]], layout: Layout, args: PrepareCasesArguments
) -> Iterator[SourceRow]:
    """Yield the rows of one input as cases; RecordError for other columns than the layout's, unless --layout names it."""
    unread = Counter[str]()
    if layout.beside is not None:  # the set's columns are known
        known = {*layout.keys, *layout.beside}
        for _, row in rows:
            unread.update(str(name) for name in row if name not in known and filled(row[name]))
    if unread and not args.layout:
        others = ", ".join(map(repr, unread))
        raise RecordError(
            f"{path}: has the columns of {layout.name}, and {others}: --layout {layout.name} leaves these out, and "
            "--columns question=NAME reference=NAME CANDIDATE … reads a table of answers"
        )
    cased: Iterable[SourceRow] = rows_as_cases(rows, layout)
    if layout.parts:
        cased = joined(cased)
    if layout.cells:
        cased = list(cased)
        placed = [(row.place, row.case) for row in cased]
        cases, notes = without_blanks(path, placed, args.blank)
        cased = [row._replace(case=case) for row, (_, case) in zip(cased, cases)]
        for line in notes:
            tqdm.write(f"{path}: {line}")
    yield from cased
    for name, cells in unread.items():
        tqdm.write(f"{path}: not read: {name!r}, cells: {cells:,}")


def summary(cases: list[Case]) -> str:
    """Return the numbers of cases, references, responses and topics."""
    responses = sum(len(case.responses) for case in cases)
    references = sum(case.reference is not None for case in cases)
    topics = len({case.topic for case in cases if case.topic})
    criteria = sum(len(case.criteria) for case in cases)
    counts = f"with a reference: {references:,}, responses: {responses:,}, topics: {topics:,}"
    return f"cases: {len(cases):,}, {counts}, criteria: {criteria:,}"
