"""Write verdicts in a form that a harness or a table program reads.

    automedeval export --verdicts verdicts/run --cases verdicts/run/cases.jsonl --to inspect --model model-b \\
      --output scores.json
    inspect score run.json --scorer inspect_ai/precomputed_scores -S scores=scores.json --action append
    automedeval export --verdicts verdicts/run --to csv --output verdicts.csv

An invalid verdict is never a score. inspect_ai leaves a sample without a valid verdict unscored, lm-evaluation-harness's lines
have NaN, and a table has an empty cell and `valid` false. In a CSV a text that a spreadsheet would run as a formula has an
apostrophe in front; parquet has the texts as they are.
"""

import csv
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.cli import TableArguments, parse
from automedeval.harness.writing import inspect_text, lm_eval_text, scored_answers
from automedeval.judges.tables import ROWS, Verdicts, beside_rows
from automedeval.records import Case, RecordError, Verdict, read_cases, read_placed, table_of, verdicts_file
from automedeval.records.journal import replacing, write_whole
from automedeval.records.rows import read_rows
from automedeval.reports.text import printable

FORMS = {
    "inspect": "the scores that inspect_ai's precomputed_scores reads",
    "lm_eval": "JSON lines with lm-evaluation-harness's doc_id and one metric",
    "csv": "a table: your own rows if --cases is one, else a row for each verdict and response (--rows)",
    "parquet": "the same table",
}
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # how cells begin that a spreadsheet runs; the last four do in some languages


@dataclass
class ExportArguments(TableArguments):
    """Which verdicts are written, and in which form."""

    verdicts: str = field(metadata={"help": "verdicts.jsonl of a judge, or its folder"})
    to: str = field(
        metadata={"help": "; ".join(f"{name}: {text}" for name, text in FORMS.items()), "choices": list(FORMS)}
    )
    output: str = field(metadata={"help": "the file to write"})
    cases: str | None = field(
        default=None,
        metadata={"help": "the cases that were judged; inspect and lm_eval need the cases.jsonl made of the logs"},
    )
    rows: str | None = field(
        default=None,
        metadata={
            "help": "csv, parquet: one row for each response, or for each criterion of its case, with its text and points if "
            "there are --cases (default: your own rows, with scores, flags and contradicted claims, if --cases is a table)",
            "choices": list(ROWS),
        },
    )
    model: str | None = field(
        default=None, metadata={"help": "inspect, lm_eval: whose answers the log has (default: the only model)"}
    )

    def __post_init__(self) -> None:
        if self.to in ("inspect", "lm_eval") and self.cases is None:
            raise RecordError(f"--to {self.to} needs --cases, which has the ids of the log")


def main() -> None:
    """Read the verdicts, check that the cases are those that were judged, and write the file."""
    (args,) = parse((ExportArguments,), __doc__)
    cases = None if args.cases is None else {case.id: case for case in read_cases(args.cases, blank=args.blank)}
    verdicts = Verdicts(read_checked(args.verdicts, cases))
    output = Path(args.output)
    if output.resolve() in (verdicts_file(args.verdicts).resolve(), Path(args.cases or args.verdicts).resolve()):
        raise RecordError(f"--output {output}: this is an input")
    output.parent.mkdir(parents=True, exist_ok=True)
    if args.to in ("inspect", "lm_eval"):
        records, answers = scored_answers((cases or {}).values(), verdicts, args.model)
        write_whole(output, (inspect_text if args.to == "inspect" else lm_eval_text)(records))
        reasons = Counter(record["explanation"] for record in records if not record["valid"])
        why = "".join(f"; {count:,} without: {reason}" for reason, count in reasons.most_common(8))
        judged = f"{len(records):,} judged, {answers - len(records):,} not judged"
        scored = f"{len(records) - reasons.total():,} with a score{printable(why)}"
        print(f"{answers:,} answers of the log: {judged}; {scored}: {printable(str(output))}")
        return
    own = table_of(args.cases, blank=args.blank) if args.cases and args.rows is None else None
    if own and cases and not verdicts[0].choices:
        table = beside_rows(
            [row for _, row in read_rows(args.cases or "", hub=True)], own.columns, cases.values(), verdicts
        )
    else:
        table = verdicts.to_pandas(args.rows or ROWS[0], (cases or {}).values())
    if args.to == "parquet":
        with replacing(output) as scratch:
            table.to_parquet(scratch, index=False)
    else:  # quoted, because a carriage return would end a row
        safe = table.apply(lambda column: column.map(no_formula))
        write_whole(output, safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC))
    invalid = sum(not verdict.valid for verdict in verdicts)
    print(f"{len(verdicts):,} verdicts, {invalid:,} invalid, {len(table):,} rows: {printable(str(output))}")


def no_formula(value: Any) -> Any:
    """Return a text with an apostrophe in front if a spreadsheet would run it (OWASP, "CSV Injection"), else the value."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def read_checked(path: str, cases: dict[str, Case] | None) -> list[Verdict]:
    """Return the verdicts of one judge, each on one of the cases as it was judged; else RecordError."""
    verdicts: list[Verdict] = []
    for place, verdict in read_placed(verdicts_file(path), Verdict):
        if verdicts and verdict.author != verdicts[0].author:
            raise RecordError(f"{place}: a second judge: {', '.join(verdict.author)}; export the verdicts of one judge")
        if cases is not None:
            if verdict.case_id not in cases:
                raise RecordError(f"{place}: --cases has no case {verdict.case_id!r}")
            case = cases[verdict.case_id]
            verdict.check(place, case.digest, case.checklist_digest)
        verdicts.append(verdict)
    if not verdicts:
        raise RecordError(f"{path}: no verdict")
    return verdicts
