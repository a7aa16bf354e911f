"""Check answers: which numbers differ from a reference or books, and by a language model which statements these contradict.

    automedeval check answers.csv
    automedeval check two_bots
    automedeval check cases.jsonl --evidence stores/mine --output checks/mine
    automedeval check answers.csv --checker openai:MODEL --base_url http://localhost:8000/v1
    automedeval check answers.csv --checker openai:MODEL --evidence none

A number that is at least twice, or at most half, of every number of its kind in the reference is a place to look at. No model
is needed; with --checker a language model reads the statements as well, and with --evidence none it says what it believes.
Writes OUTPUT/claims.jsonl as it goes, then check.html (both sentences side by side, the largest factor first), check.md,
claims.csv and check.json; the same command again checks only what is missing. Not for clinical use.

The exit status is 0; 3 with --fail_if differs or --fail_if contradicted if there is one; 1 if an input or argument is wrong.
"""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import automedeval
from automedeval.evidence.arguments import EvidenceArguments
from automedeval.evidence.chat_checker import ChatChecker, load_checker
from automedeval.evidence.findings import UNREAD
from automedeval.evidence.run import NO_EVIDENCE, NUMBERS, check_cases
from automedeval.evidence.statements import NOT_ASKED
from automedeval.meta_evaluation import checked as report
from automedeval.meta_evaluation.page import write_report
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import CheckedResponse, RecordError, digest, named_file, option
from automedeval.records.arguments import TableArguments
from automedeval.records.cases import read_cases
from automedeval.records.command_line import parse
from automedeval.records.log import Log
from automedeval.records.processes import print_notes
from automedeval.records.run_record import describe_result, record_run, run_date
from automedeval.records.text import format_table
from automedeval.records.thoughts import note_on_thoughts

VERSION = 1  # of how numbers are read, for the fingerprint
FAULTS = {"differs": "differing_answers", "contradicted": "contradicted_answers"}
TWO_BOTS = Path(automedeval.__file__).parent / "sample" / "two_bots.jsonl"


@dataclass
class CheckArguments(TableArguments, EvidenceArguments):
    """Which answers are checked, and against what."""

    cases: str = option(
        "cases, or a table with the columns question, reference and one for each model; two_bots: the packaged "
        "twelve questions, six of whose answers are dangerous"
    )
    output: str | None = option("folder (default: checks/FILE)", None)
    checker: str | None = option(
        "a language model that reads the statements as well: a checkpoint or openai:MODEL "
        "(default: none, numbers alone are compared)",
        None,
    )
    fail_if: list[str] = option(
        "exit status 3 if a number differs, or if the --checker calls a statement contradicted",
        [],
        choices=list(FAULTS),
    )

    def __post_init__(self) -> None:
        if self.checker is None and "contradicted" in self.fail_if:
            raise RecordError(
                "--fail_if contradicted needs --checker MODEL; of numbers there is --fail_if differs"
            )
        if self.checker is None and self.evidence == "none":
            raise RecordError(
                "--evidence none needs --checker MODEL: numbers are compared with a reference or books"
            )


def main() -> None:
    """Check what is missing, write the files, print the table of models."""
    kinds = (CheckArguments, EncoderArguments, ChatArguments)
    args, encoder_args, chat_args = parse(
        kinds, __doc__, first=("cases", "evidence", "output", "checker")
    )
    file = Path(named_file(args.cases)[1]).stem
    if args.cases == "two_bots" and not Path("two_bots").exists():
        args.cases = str(TWO_BOTS)
    cases = list(read_cases(args.cases, **args.table))
    print_notes(note_on_thoughts(cases))
    evidence = "none" if args.evidence == "none" else "books" if args.evidence else "reference"
    if not args.evidence and not any((case.reference or "").strip() for case in cases):
        raise RecordError(
            f"{args.cases}: nothing could be checked: no case has a reference; --evidence names books"
        )
    output = Path(args.output or f"checks/{file}")
    checker = None
    if args.checker:
        checker = load_checker(args.checker, encoder_args, chat_args, opinion=evidence == "none")
    digests = {case.id: case.digest for case in cases}
    total = sum(len(case.responses) for case in cases)
    books = args.books(encoder_args, chat_args.device) if evidence == "books" else {}
    settings = digest([VERSION, checker and checker.fingerprint, books.get("store")])
    output.mkdir(parents=True, exist_ok=True)
    name = checker.name if checker else NUMBERS
    claims = output / "claims.jsonl"
    with Log(claims, CheckedResponse, (name, evidence), settings, renewed=digests) as log:
        done = log.done(digests)  # refuses another checker's findings before anything is written
        print_notes(log.notes(cases))
        record_run(output / "run.json", args, encoder_args, chat_args)
        if checker:
            checker.chat.set_date(run_date(output / "run.json"))
        log.fill(
            check_cases(checker, cases, evidence, done, settings, books.get("search")),
            total - len(done),
            unit="answer",
        )
        checked = [response for response in log.records() if response.case_id in digests]
    figures = report.measure(cases, checked)
    facts = describe_result(
        "check", evidence=evidence, checker=name, notes=[checker.note] if checker else []
    )
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
    if checker:
        print_notes([checker.note, *checker.chat.notes()])
        refuse_failures(checker, checked)
    for fault in args.fail_if:
        if any(shares[FAULTS[fault]]["value"] for shares in figures.values()):
            sys.exit(3)


def refuse_failures(checker: ChatChecker, checked: Sequence[CheckedResponse]) -> None:
    """Raise RecordError if none of the model's answers can be read, or an endpoint did not answer requests."""
    read = list(itertools.chain(*(response.statements for response in checked)))
    reasons = [statement.get("reason") for statement in read]
    asked = [reason for reason in reasons if reason not in (*NOT_ASKED, NO_EVIDENCE)]
    if asked and all(statement["label"] == UNREAD for statement in read):
        raise RecordError(f"{checker.name} answered none of {len(asked)} questions: {asked[0]}")
    if failures := getattr(checker.chat, "failures", ()):
        raise RecordError(
            f"{len(failures)} requests not answered, the last: {failures[-1]}; the same command asks again"
        )
