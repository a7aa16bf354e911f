"""Write verdicts in a form that a table program or a trainer reads.

    automedeval export --verdicts verdicts/run --to csv --output verdicts.csv
    automedeval export --verdicts verdicts/run --cases cases.jsonl --to preferences --least_gap 0.5 --output pairs/train.jsonl

An invalid verdict is never a score: a table has an empty cell and `valid` false. A text that a spreadsheet would run as a
formula has an apostrophe in front.

A preference pair has the response that the judge puts highest and the one that it puts lowest. A case makes none where the two
lie --least_gap or less apart, or where two verdicts disagree about them.
"""

import csv
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from automedeval.harness.preferences import preference_pairs
from automedeval.judges.tables import Verdicts
from automedeval.meta_evaluation.agreement.judge_facts import known_of_judge
from automedeval.meta_evaluation.facts import lines_of
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.files import read_verdicts
from automedeval.meta_evaluation.verdicts.table import rows_of
from automedeval.records import (
    Case,
    RecordError,
    Verdict,
    check_least,
    option,
    placed_verdicts,
    read_records,
    verdicts_file,
)
from automedeval.records.arguments import TableArguments
from automedeval.records.command_line import parse
from automedeval.records.journal import arithmetic, write_lines, write_whole
from automedeval.records.readers import is_one_of
from automedeval.records.tables.cases import read_cases
from automedeval.records.text import no_formula, printable


@dataclass
class ExportArguments(TableArguments):
    """Which verdicts are written, and in which form."""

    to: str = option(
        "csv: a table: a row for each verdict and response, with question and answer if --cases has them; "
        "preferences: prompt, chosen and rejected of each case, for TRL's DPOTrainer and RewardTrainer",
        choices=["csv", "preferences"],
    )
    output: str = option("the file to write")
    verdicts: str = option("verdicts.jsonl of a judge, or its folder")
    cases: str | None = option(
        "the cases that were judged (default: those beside the verdicts, of several files)",
        None,
    )
    least_gap: float | None = option(
        "preferences: the two scores of a pair differ by more than this (default: 0)", None
    )

    def __post_init__(self) -> None:
        self.cases = self.cases or joined_cases(self.verdicts)
        if self.to == "preferences" and self.cases is None:
            raise RecordError("--to preferences needs --cases, which has the answers")
        if self.to == "csv" and self.least_gap is not None:
            raise RecordError("--least_gap is not for --to csv")
        check_least(self, 0, "least_gap")


def joined_cases(path: str) -> str | None:
    """Return the file of cases that `judge` made of several tables or logs; None where no verdict is on a case of the file."""
    verdicts = verdicts_file(path)
    file = verdicts.with_name("cases.jsonl")
    cases = dict[str, Case]()
    with suppress(RecordError):  # a file of another kind, or none
        cases = {case.id: case for case in read_cases(file)}
    for verdict in read_records(verdicts, Verdict) if cases else ():
        case = cases.get(verdict.case_id)
        if case and not verdict.has_changed(case.digest, case.checklist_digest):
            return str(file)
    return None


def main() -> None:
    """Read the verdicts, check that the cases are those that were judged, and write the file."""
    (args,) = parse((ExportArguments,), __doc__)
    cases = {}
    if args.cases is not None:
        table = args.judged_table([args.verdicts], args.cases)
        cases = {case.id: case for case in read_cases(args.cases, **table)}
    verdicts, left_out = read_checked(args.verdicts, cases)
    output = Path(args.output)
    inputs = (verdicts_file(args.verdicts), args.cases or args.verdicts)
    if is_one_of(output, inputs):
        raise RecordError(f"--output {output}: this is an input")
    if args.to == "preferences":
        judged = {verdict.case_id: cases[verdict.case_id] for verdict in verdicts}
        return export_preferences(args, Cases(list(judged.values()), args.cases), output)
    rows = verdicts.to_pandas(cases.values()).map(no_formula)
    # without quotation marks a carriage return would end a row
    write_whole(output, rows.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC))
    invalid = sum(not verdict.valid for verdict in verdicts)
    if left_out:
        print(f"verdicts: {left_out:,} left out, of cases that are not in {args.cases}")
    counts = f"verdicts: {len(verdicts):,}, invalid: {invalid:,}, rows: {len(rows):,}"
    print(f"{counts}, in {printable(args.output)}")


def export_preferences(args: ExportArguments, cases: Cases, output: Path) -> None:
    """Write the pairs, and print what was left out and what is known of the judge that a model will learn from."""
    judges, notes = read_verdicts([args.verdicts], cases)
    pairs, reasons = preference_pairs(judges[0], args.least_gap or 0.0)
    print(
        arithmetic("judged cases", len(pairs) + reasons.total(), reasons, "with a pair", "without")
    )
    if not pairs:
        raise RecordError(f"{args.verdicts}: no pair is left")
    write_lines(output, pairs)
    known = lines_of(known_of_judge(rows_of(judges)[0]))
    lines = [*known, *(f"note: {note}" for note in notes), f"pairs: {len(pairs):,}, in {output}"]
    print("\n".join(map(printable, lines)))


def read_checked(path: str, cases: dict[str, Case]) -> tuple[Verdicts, int]:
    """Return the verdicts of one judge and, if there are cases, how many were left out as on none of them.

    RecordError for verdicts of two judges, none, or one on a case that has changed since.
    """
    verdicts = Verdicts()
    left_out = 0
    for place, verdict in placed_verdicts([path], cases):
        if cases and verdict.case_id not in cases:
            left_out += 1
            continue
        if verdicts and verdict.author != verdicts[0].author:
            raise RecordError(
                f"{place}: a second judge: {', '.join(verdict.author)}; export the verdicts of one judge"
            )
        verdicts.append(verdict)
    if not verdicts:
        raise RecordError(f"{path}: no verdict{' on these cases' if left_out else ''}")
    return verdicts, left_out
