"""Distill teachers: a strong or weak one judges every case, asking reference books first (paper section 3.1, Algorithm 1).

    python recipes/distill.py --teacher strong --judge openai:MODEL --cases cases.jsonl --store DIR --output verdicts/strong
    python recipes/distill.py --teacher weak --judge recording:teacher.jsonl --shuffle false --cases F --store DIR --output O
    python recipes/distill.py --teacher weak --judge openai:MODEL --knowledge none --cases cases.jsonl --output verdicts/none

Appends to OUTPUT/verdicts.jsonl as verdicts come; the same command again does only the cases that are missing.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from automedeval.cli import parse, record_run, run
from automedeval.distillation.arguments import KnowledgeArguments
from automedeval.distillation.completion_chain import CompletionChain, overview
from automedeval.judges.judge import Judge
from automedeval.judges.verdict_log import VerdictLog
from automedeval.models.arguments import ChatArguments
from automedeval.models.dialogue import WINDOW, conclude
from automedeval.models.replay import RecordedChat
from automedeval.records import Case, RecordError, read_cases
from automedeval.records.journal import Journal, write_whole


@dataclass
class DistillArguments:
    """Who teaches what, and what the teacher may look up."""

    teacher: str = field(metadata={"help": "which of the two this is", "choices": ["strong", "weak"]})
    judge: str = field(metadata={"help": "openai:MODEL (see --base_url), recording:FILE, or a checkpoint"})
    cases: str = field(metadata={"help": "cases with responses: .jsonl, .parquet or a Hub dataset id"})
    output: str = field(metadata={"help": "folder for verdicts.jsonl"})
    reference_as_response: bool = field(default=False, metadata={"help": "show the reference as one more response"})
    models: str | None = field(default=None, metadata={"help": "show only these models' responses: A,B,C"})
    shuffle: bool = field(
        default=True, metadata={"help": "show responses in a seeded order; a recording needs false: the file's order"}
    )
    score_decoding: str = field(
        default="free",
        metadata={
            "help": "free: the teacher's own text is parsed; constrained: a checkpoint's scores come from allowed values",
            "choices": ["free", "constrained"],
        },
    )
    rubric: str = field(default="automedeval", metadata={"help": "a rubric with a score line, packaged or your .yaml"})
    seed: int = field(default=0, metadata={"help": "of the orders, and of sampling"})
    limit: int | None = field(default=None, metadata={"help": "only the first so many cases"})
    judge_name: str | None = field(default=None, metadata={"help": "what verdicts record as their judge"})
    dry_run: bool = field(default=False, metadata={"help": "count cases, tokens and cost; ask nothing"})
    batch: bool = field(
        default=False, metadata={"help": "endpoint without knowledge: submit as one batch; again: collect"}
    )

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise RecordError(f"--limit must be at least 1, not {self.limit}")
        if self.judge.startswith("recording:") and self.shuffle:
            raise RecordError("a recording speaks of the responses in the file's order: --shuffle false")
        if self.score_decoding == "constrained" and self.judge.startswith(("openai:", "recording:")):
            raise RecordError("--score_decoding constrained needs a checkpoint")
        if self.batch and not self.judge.startswith("openai:"):
            raise RecordError("--batch needs an endpoint: --judge openai:MODEL")


def main() -> None:
    """Let the teacher judge what is missing, then count how its chains ended."""
    args, books, chat_args = parse((DistillArguments, KnowledgeArguments, ChatArguments), __doc__)
    if args.batch and books.knowledge == "chain":
        raise RecordError(
            "--batch needs --knowledge none: the steps of a chain follow one another, a batch is one step"
        )
    with ExitStack() as opened:
        chain = chain_of(args, books, chat_args, opened)
        # Every case is planned once before anything is asked: bad input is told at once, not after an hour.
        digests = {}
        for case in cases_of(args):
            chain.plan(case)
            digests[case.id] = case.digest
        log = VerdictLog(Path(args.output), chain.judge.name, chain.judge.rubric_name, chain.fingerprint)
        if args.dry_run:
            print(dry_run(chain, args, log.done(digests)))
            return
        record_run(log.run_file, args, books, chat_args)
        with Journal(log.path) as journal:  # what is done is read under the lock: nobody adds to it meanwhile
            done = log.done(digests)
            if args.batch:
                print(collect_or_submit(chain, args, log, journal, done))
            else:
                judge_missing(chain, args, journal, done, len(digests))
            journal.sync()
    mine = (verdict for verdict in log.mine() if verdict.case_id in digests)
    print(f"{args.teacher} teacher, {log.judge} by {log.rubric}: {overview(mine, len(digests), journal.appended)}")
    print(f"verdicts: {log.path}")
    failures = getattr(chain.judge.chat, "failures", ())
    if failures:
        raise RecordError(f"{len(failures)} not judged, the last: {failures[-1]}; the same command tries them again")


def chain_of(
    args: DistillArguments, books: KnowledgeArguments, chat_args: ChatArguments, opened: ExitStack
) -> CompletionChain:
    """Return the teacher, with the books that it may ask, which are closed with `opened`."""
    kind, _, file = args.judge.partition(":")
    recorded = kind == "recording"
    chat = RecordedChat(file, args.teacher, books.knowledge) if recorded else chat_args.load(args.judge, args.seed)
    models = [name.strip() for name in args.models.split(",")] if args.models is not None else None
    options = {"seed": args.seed, "models": models, "name": args.judge_name}
    judge = Judge(chat, args.rubric, score_decoding=args.score_decoding, **options)
    search, store = books.open(chat_args.device, opened)
    shown = {"reference_as_response": args.reference_as_response, "shuffle": args.shuffle}
    return CompletionChain(judge, args.teacher, search, books.questions, store=store, **shown)


def judge_missing(
    chain: CompletionChain, args: DistillArguments, journal: Journal, done: set[tuple], cases: int
) -> None:
    """Judge what is not done, appending every verdict as it comes."""
    with tqdm(total=cases - len(done), unit="verdict") as bar:
        for verdict in chain.verdicts(map(chain.plan, cases_of(args)), done):
            journal.append(verdict.to_dict())
            bar.update()
            if journal.appended % WINDOW == 0:
                journal.sync()


def cases_of(args: DistillArguments) -> Iterator[Case]:
    """Yield the cases, the first `limit` of them."""
    return itertools.islice(read_cases(args.cases), args.limit)


def collect_or_submit(
    chain: CompletionChain, args: DistillArguments, log: VerdictLog, journal: Journal, done: set[tuple]
) -> str:
    """Collect the batch that this folder waits for, or submit what is missing; return what became of it."""
    chat, requests = chain.judge.chat, {r.id: r for r in map(chain.plan, cases_of(args)) if r.key not in done}
    if not requests:
        return "nothing is missing"
    state = log.path.with_name(f"batch-{chain.fingerprint}.txt")
    if not state.exists():
        prompts = {name: next(chain.dialogue(request)) for name, request in requests.items()}
        write_whole(state, chat.submit_batch(prompts, chain.fingerprint))  # an id that is lost would be paid for twice
        return f"batch {state.read_text()} submitted with {len(prompts)} requests; the same command collects it"
    batch = state.read_text()
    status, answers = chat.collect_batch(batch)
    for name, answer in answers:
        if name in requests:
            journal.append(conclude(chain.dialogue(requests.pop(name)), answer).to_dict())
    journal.sync()
    if status in ("completed", "failed", "expired", "cancelled"):
        state.unlink()
        return f"batch {batch} {status}: {len(requests)} not answered"
    return f"batch {batch}: {status}; the same command collects it"


def dry_run(chain: CompletionChain, args: DistillArguments, done: set[tuple]) -> str:
    """Count what a run would do at least: a chain asks once and more, up to one call beyond its questions."""
    cases, tokens, cost = 0, 0, 0.0
    for request in map(chain.plan, cases_of(args)):
        if request.key not in done:
            count, worst = chain.judge.chat.estimate([next(chain.dialogue(request))])
            cases, tokens, cost = cases + 1, tokens + count, cost + worst
    text = f"{cases} cases, {len(done)} judged already, {cases} to {cases * (chain.questions + 1)} calls, about {tokens:,} "
    return text + "prompt tokens in the first ones" + (f", which cost at most {cost:.2f}" if cost else "")


if __name__ == "__main__":
    run(main)
