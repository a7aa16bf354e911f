"""Compare candidates by judges' verdicts, and compare the verdicts with people's ratings.

    automedeval report --verdicts verdicts --cases cases.jsonl --ratings ratings.jsonl --output report
    automedeval report --verdicts verdicts/old verdicts/new --cases v1=old.csv v2=new.csv --output report
    automedeval report --verdicts r0=v0.jsonl r1=v1.jsonl r2=v2.jsonl --rounds r0,r1,r2 \\
      --cases cases.jsonl --ratings ratings.jsonl --output report
    automedeval report --verdicts verdicts --cases cases.jsonl --fail_if_worse NEW OLD --by 0.1

Writes OUTPUT/agreement.json, report.md and report.html, a page that loads nothing from the network. Ratings or labels of some
cases, drawn at random, correct the verdicts on all. --rounds adds a forecast for further rounds. --fail_if_worse fails a
build: exit status 3 if NEW scores lower than OLD, 4 if too few cases tell (95 %, by one judge).
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from automedeval.meta_evaluation.page import write_report
from automedeval.meta_evaluation.report.arguments import ReportArguments
from automedeval.meta_evaluation.report.gate import compare_two
from automedeval.meta_evaluation.report.report import make_report, read_judged
from automedeval.models.arguments import EncoderArguments
from automedeval.records import JsonObject, foreign_errors_at
from automedeval.records.command_line import parse
from automedeval.records.extras import install
from automedeval.records.journal import write_json
from automedeval.records.text import printable


def main(words: Sequence[str] | None = None) -> Path:
    """Make the report, write its files, print the difference, its trust and what to do next; return the page's file.

    Args:
        words: the options; by default those of the command line.
    """
    words = sys.argv[1:] if words is None else words
    first = ("verdicts", "cases", "baseline", "ratings", "output")
    args, encoder_args = parse((ReportArguments, EncoderArguments), __doc__, words, first)
    if args.fail_if_worse:
        sys.exit(pass_gate(args))
    report = make_report(args, encoder_args.load_if_there, words, rationale_metric)
    folder = Path(args.output)
    page = folder / report.page
    lines = [*report.lines, f"report: {page}"]
    write_report(folder, report.texts, report.data, report.result, lines)
    return page


def pass_gate(args: ReportArguments) -> int:
    """Compare two candidates by verdicts alone; print the result, write it if there is a folder, return the exit status."""
    file = Path(args.output or "") / "gate.json"
    if args.output:
        file.unlink(missing_ok=True)  # what an earlier run found, should this one fail
    cases, judges, notes = read_judged(args)
    record, lines = compare_two(
        cases, judges, notes, args.fail_if_worse, args.by or 0.0, args.audits
    )
    print("\n".join(map(printable, lines)))
    if args.output:
        write_json(file, record)
    return record["status"]


def rationale_metric() -> Callable[..., JsonObject]:
    """Return the metric of rationales, which loads torch; raise RecordError if what it needs is not installed."""
    with foreign_errors_at("--teacher_verdicts", ImportError, advice=f"; {install('metric')}"):
        from automedeval.metrics.rationale_score.rationale_score import rationale_score
    return rationale_score
