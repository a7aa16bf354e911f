"""Distill a teacher: it judges every case and may first ask reference books (paper section 3.1, Algorithm 1).

Reads cases with responses and the store of recipes/build_store.py. Writes OUTPUT/verdicts.jsonl as verdicts come, and
OUTPUT/run-*.json; the same command again does only the cases that are missing.

    python recipes/distill.py --teacher strong --judge openai:MODEL --cases cases.jsonl --store DIR --output verdicts/strong
    python recipes/distill.py --teacher weak --judge recording:teacher.jsonl --cases F --store DIR --output O
    python recipes/distill.py --teacher weak --judge openai:MODEL --store none --cases cases.jsonl --output verdicts/none
"""

from dataclasses import dataclass
from pathlib import Path

from automedeval.evidence.arguments import KnowledgeArguments
from automedeval.judges.judge import Judge
from automedeval.judges.requests import Requests
from automedeval.judges.run import first_unread, refuse_failures, verdict_log
from automedeval.models.arguments import ChatArguments, EncoderArguments, parse_model
from automedeval.models.replay import RecordedChat
from automedeval.records import RecordError, Verdict, check_least, option, read_records
from automedeval.records.arguments import TableArguments
from automedeval.records.command_line import parse, run
from automedeval.records.log import Log
from automedeval.records.processes import print_notes
from automedeval.records.run_record import record_run
from automedeval.records.tables.cases import CaseFile
from automedeval.study.distillation.completion_chain import CompletionChain, overview


@dataclass
class DistillArguments(TableArguments):
    """Which teacher judges which cases, and what it is shown."""

    teacher: str = option("which of the paper's two teachers this is", choices=["strong", "weak"])
    judge: str = option(
        "openai:MODEL (see --base_url), or recording:FILE, which plays back answers"
    )
    cases: str = option(
        "cases, or a table of answers: .jsonl, .csv, .json, .parquet, or a Hub dataset id"
    )
    output: str = option("folder for verdicts.jsonl")
    reference_as_response: bool = option("show the reference as one more response", False)
    rubric: str = option("a rubric with a score line, packaged or your .yaml", "automedeval")
    seed: int = option("seed of the orders and of sampling", 0)
    limit: int | None = option("judge only so many cases, the first ones", None)
    dry_run: bool = option("count cases and tokens; ask nothing", False)

    def __post_init__(self) -> None:
        check_least(self, 1, "limit")
        if parse_model(self.judge)[0] not in ("openai", "recording"):
            raise RecordError(
                f"{self.judge}: a teacher is openai:MODEL or recording:FILE; serve a checkpoint as an endpoint"
            )


def main() -> None:
    """Let the teacher judge what is missing, then count how its chains ended."""
    kinds = (DistillArguments, KnowledgeArguments, EncoderArguments, ChatArguments)
    args, books, encoder_args, chat_args = parse(kinds, __doc__)
    # --- 1. Load the teacher and its books, and plan a request for each case -----------------------
    if args.dry_run and not any(Path(args.output).glob("verdicts*.jsonl")):  # no server is asked
        chat_args.unasked, chat_args.loads = True, False
    chain = chain_of(args, books, encoder_args, chat_args)
    content = CaseFile(args.cases, **args.table)
    print_notes(content.notes)
    requests = Requests(content.first(args.limit), lambda case: [chain.plan(case)])
    log = verdict_log(Path(args.output), chain.judge, chain.fingerprint)
    if args.dry_run:
        log.join_parts()
        print(chain.dry_run(requests, log.done(requests.digests)))
        return
    # --- 2. Ask for the verdicts that are missing --------------------------------------------------
    with log:
        done = log.done(requests.digests)
        refuse_others(log, args.teacher)
        record_run(log.run_file, args, books, encoder_args, chat_args)
        log.fill(chain.verdicts(requests, done), len(requests) - len(done))
    # --- 3. Tell how the chains ended --------------------------------------------------------------
    judged = [verdict for verdict in log.records() if verdict.case_id in requests.digests]
    ended = overview(judged, len(requests), log.new)
    print(f"{args.teacher} teacher, {' by '.join(log.author)}: {ended}")
    print("\n".join([*first_unread(judged), f"verdicts: {log.path}"]))
    print_notes(chain.judge.chat.notes())
    refuse_failures(chain.judge, log.path, judged)


def refuse_others(log: Log, teacher: str) -> None:
    """Raise RecordError if the log holds another model's verdicts as this teacher's: the data set takes the first of a case."""
    for verdict in read_records(log.path, Verdict) if log.path.exists() else ():
        if verdict.author != log.author and verdict.teacher == teacher:
            by = f"{teacher} teacher's verdicts by {' by '.join(verdict.author)}"
            raise RecordError(f"{log.path} holds the {by}: choose another --output")


def chain_of(
    args: DistillArguments,
    books: KnowledgeArguments,
    encoder_args: EncoderArguments,
    chat_args: ChatArguments,
) -> CompletionChain:
    """Return the teacher, with the books that it may ask."""
    kind, file = parse_model(args.judge)
    is_recorded = kind == "recording"  # its answers number the responses in the file's order
    chat = (
        RecordedChat(file, args.teacher, books.knowledge)
        if is_recorded
        else chat_args.load(args.judge, args.seed)
    )
    judge = Judge(chat, args.rubric, seed=args.seed, score_decoding="free")
    search, store = books.open(encoder_args, chat_args.device)
    return CompletionChain(
        judge,
        args.teacher,
        search,
        books.questions,
        args.reference_as_response,
        shuffle=not is_recorded,
        store=store,
    )


if __name__ == "__main__":
    run(main)
