"""Check answers: which numbers differ from a reference, or else from books.

    automedeval check answers.csv
    automedeval check two_bots
    automedeval check cases.jsonl --evidence stores/mine --output checks/mine

A number that is at least twice, or at most half, of every number of its kind in the reference is a place to look at. No model
is needed. Writes OUTPUT/claims.jsonl as it goes, then check.html (both sentences side by side, the largest factor first),
check.md, claims.csv and check.json; the same command again checks only what is missing. Not for clinical use.

The exit status is 0; 3 with --fail_if differs if a number differs; 1 if an input or argument is wrong, or nothing
could be checked.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from automedeval.evidence.arguments import EvidenceArguments
from automedeval.evidence.run import REFERENCE, check_cases
from automedeval.meta_evaluation import checked as report
from automedeval.meta_evaluation.page import write_report
from automedeval.models.arguments import EncoderArguments
from automedeval.records import CheckedResponse, RecordError, digest, option
from automedeval.records.arguments import TableArguments
from automedeval.records.command_line import parse
from automedeval.records.log import Log
from automedeval.records.processes import print_notes
from automedeval.records.run_record import default_folder, describe_result, record_run
from automedeval.records.tables.cases import read_cases
from automedeval.records.text import format_table
from automedeval.records.thoughts import note_on_thoughts

VERSION = 6  # of how numbers are read and passages are searched: with another one answers are compared again


@dataclass
class CheckArguments(TableArguments, EvidenceArguments):
    """Which answers are checked, and against what."""

    cases: str = option(
        "cases, or a table with the columns question, reference and one for each model; two_bots: the packaged "
        "twelve questions, six of whose answers are dangerous"
    )
    output: str | None = option("folder (default: checks/FILE)", None)
    fail_if: str | None = option("exit status 3 if a number differs", None, choices=["differs"])


def main() -> None:
    """Check what is missing, write the files, print the table of models."""
    args, encoder_args = parse(
        (CheckArguments, EncoderArguments), __doc__, first=("cases", "evidence", "output")
    )
    cases = list(read_cases(args.cases, **args.table))
    print_notes(note_on_thoughts(cases))
    books = args.books(encoder_args, "auto")
    search = books.get("search")
    evidence = "books" if search else REFERENCE
    output = Path(args.output or default_folder("checks", args.cases, "cases"))
    settings = digest([4, books.get("store")])  # 4: the version that stood here
    digests = {case.id: digest([VERSION, case.digest]) for case in cases}
    claims = output / "claims.jsonl"
    with Log(claims, CheckedResponse, (evidence,), settings, renewed=digests) as log:
        done = log.done(digests)
        print_notes(log.notes("texts, or how they are read, changed"))
        record_run(output / "run.json", args, encoder_args)
        missing = sum(len(case.responses) for case in cases) - len(done)
        log.fill(
            check_cases(cases, done, digests, evidence, settings, search), missing, unit="answer"
        )
        checked = [response for response in log.records() if response.case_id in digests]
    if all(response.unread for response in checked):
        raise RecordError(
            f"{args.cases}: nothing could be checked: no answer, clearly in English, has such a reference; "
            "--evidence names books"
        )
    figures = report.measure(cases, checked)
    facts = describe_result("check", evidence=evidence)
    lines = [
        *report.places_in_words(report.marked_answers(cases, checked)),
        "",
        *report.check_sentences(figures, checked, evidence),
        "",
        *format_table(report.check_rows(figures)).split("\n"),
        "",
        f"The marked answers: {output / 'check.html'}",
    ]
    texts = report.check_page(cases, checked, figures, facts)
    write_report(output, texts, "check.json", {"settings": facts, "models": figures}, lines)
    if args.fail_if and any(response.differs for response in checked):
        sys.exit(3)
