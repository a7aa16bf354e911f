"""Judge the responses of a file of cases: for every case a rationale, and scores or choices for all answers.

    python recipes/judge.py --judge models/SmolLM2-135M-Instruct --cases cases.jsonl --output verdicts
    accelerate launch --config_file accelerate_configs/single.yaml recipes/judge.py --judge MODEL --cases F --output DIR
    python recipes/judge.py --judge openai:MODEL --base_url http://localhost:8000/v1 --cases cases.jsonl --output verdicts

Writes OUTPUT/verdicts.jsonl as it goes; the same command again does only what is missing. Several processes share the cases.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from automedeval.cli import join_processes, parse, record_run, run
from automedeval.judges.base import WINDOW, BaseJudge
from automedeval.judges.baseline import BaselineJudge
from automedeval.judges.judge import Judge
from automedeval.judges.leaderboard import Standings
from automedeval.judges.likelihood import DTYPES, LIKELIHOODS, LikelihoodJudge
from automedeval.judges.requests import Request, plan_requests, selected_responses
from automedeval.judges.verdict_log import VerdictLog
from automedeval.metrics.lexical import Collection
from automedeval.models.arguments import ChatArguments
from automedeval.records import Case, RecordError, read_cases
from automedeval.records.journal import Journal, write_whole
from automedeval.reports.text import format_table
from automedeval.rubrics import Rubric, read_rubric


@dataclass
class JudgeArguments:
    """What is judged, by whom, and how."""

    judge: str = field(
        metadata={
            "help": "checkpoint folder or Hub id, likelihood:CHECKPOINT, channel:CHECKPOINT, openai:MODEL (see --base_url), "
            "or baseline:NAME, as recipes/meta_evaluate.py names them"
        }
    )
    cases: str = field(metadata={"help": "cases: .jsonl, .parquet or a Hub dataset id"})
    output: str = field(metadata={"help": "folder for verdicts.jsonl"})
    rubric: str = field(default="automedeval", metadata={"help": "a packaged rubric, or the path of your own .yaml"})
    rationale: bool = field(default=True, metadata={"help": "false asks for scores or choices alone"})
    score_decoding: str = field(
        default="constrained",
        metadata={
            "help": "constrained: only allowed values compete; free: the judge's own text is parsed",
            "choices": ["constrained", "free"],
        },
    )
    orders: str = field(
        default="1",
        metadata={"help": "1 seeded order, all permutations, or a latin square", "choices": ["1", "all", "latin"]},
    )
    runs: int = field(default=1, metadata={"help": "judge everything so many times (with a temperature)"})
    seed: int = field(default=0, metadata={"help": "of the orders, and of sampling"})
    models: str | None = field(default=None, metadata={"help": "judge only these models' responses: A,B,C"})
    baseline: str | None = field(default=None, metadata={"help": "pairwise rubrics: only pairs with this model"})
    on_overlong: str = field(
        default="error",
        metadata={
            "help": "prompt beyond the context window: refuse, record as invalid, or shorten the responses",
            "choices": ["error", "skip", "clip"],
        },
    )
    limit: int | None = field(default=None, metadata={"help": "judge only the first so many cases"})
    judge_name: str | None = field(default=None, metadata={"help": "what verdicts record as their judge"})
    dry_run: bool = field(default=False, metadata={"help": "count cases, prompts, tokens and cost; judge nothing"})
    batch: bool = field(default=False, metadata={"help": "endpoint: submit as one batch; again to collect it"})

    def __post_init__(self) -> None:
        for name in ("runs", "limit"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise RecordError(f"--{name} must be at least 1, not {getattr(self, name)}")


def main() -> None:
    """Judge what is missing, then print how the models stand."""
    args, chat_args = parse((JudgeArguments, ChatArguments), __doc__)
    kind, _, checkpoint = args.judge.partition(":")
    apart = kind in (*LIKELIHOODS, "baseline")
    rubric = read_rubric(args.rubric)
    if apart and (args.orders != "1" or args.runs > 1 or args.baseline):
        raise RecordError(
            f"--judge {args.judge}: sees each response once, by itself: no --orders, --runs or --baseline"
        )
    rubric = None if kind in ("likelihood", "baseline") else rubric
    if kind == "channel" and not rubric.scale:
        raise RecordError(f"--rubric {args.rubric}: gives choices, and a channel judge reads a scale")
    plan = {"models": [name.strip() for name in args.models.split(",")] if args.models is not None else None}
    if not apart:
        plan |= {"orders": args.orders, "seed": args.seed, "runs": args.runs, "baseline": args.baseline}
    # Every case is read and planned once before a model is loaded: bad input is told at once, not after an hour.
    expected, digests = {}, {}
    for case in cases_of(args):
        planned = selected_responses(case, **plan)[:1] if apart else plan_requests(case, rubric, **plan)
        expected[case.id], digests[case.id] = len(planned), case.digest
    if not any(expected.values()):
        raise RecordError(
            f"{args.cases}: nothing to judge: {rubric.name} compares pairs, and no case has two responses"
        )

    rank, processes, wait = join_processes()
    options = {"name": args.judge_name, **plan}
    if kind == "baseline":
        judge = BaselineJudge(checkpoint, Collection.of(cases_of(args)), **options)
    else:
        model, auto = checkpoint if apart else args.judge, DTYPES.get(kind, "auto")
        chat = chat_args.load(model, args.seed, processes, auto)
        options |= {"on_overlong": args.on_overlong}
        judge = LikelihoodJudge(chat, rubric, **options) if apart else Judge(
            chat, rubric, args.rationale, args.score_decoding, **options
        )  # fmt: skip
    log = VerdictLog(Path(args.output), judge.name, judge.rubric_name, judge.fingerprint, rank, processes)
    if args.dry_run:
        log.join_parts()
        print(dry_run(judge, args, log.done(digests)))
        return
    if rank == 0:
        log.join_parts()
        record_run(log.run_file, args, chat_args)
    wait()
    started, waiting = time.monotonic(), None
    with Journal(log.part) as journal:  # what is done is read under the lock: nobody adds to it meanwhile
        done = log.done(digests)
        if args.batch:
            waiting = collect_or_submit(judge, args, log, journal, done)
        else:
            judge_missing(judge, args, log, journal, done, sum(expected.values()))
    wait()
    if rank == 0:
        judged, seconds = log.join_parts() if processes > 1 else journal.appended, time.monotonic() - started
        record_run(log.run_file, args, chat_args, timing={"verdicts": judged, "seconds": round(seconds, 1)})
        if judged or not waiting:
            print(summary(log, None if apart else rubric, expected, judged, seconds))
        if waiting:
            print(waiting)
    wait()  # a process that ends with an error takes the others with it
    failures = getattr(judge.chat, "failures", ())
    if failures:
        raise RecordError(f"{len(failures)} not judged, the last: {failures[-1]}; the same command tries them again")


def cases_of(args: JudgeArguments) -> Iterator[Case]:
    """Yield the cases, the first `limit` of them."""
    return itertools.islice(read_cases(args.cases), args.limit)


def windows_of(args: JudgeArguments, judge: BaseJudge, size: int) -> Iterator[list[Request]]:
    """Yield the requests of all cases in windows; each is sorted and batched as a whole, whatever of it is done."""
    requests = (request for case in cases_of(args) for request in judge.plan(case))
    while window := list(itertools.islice(requests, size)):
        yield window


def judge_missing(
    judge: BaseJudge,
    args: JudgeArguments,
    log: VerdictLog,
    journal: Journal,
    done: set[tuple],
    total: int,
) -> None:
    """Judge this process's windows but for what is done, appending every verdict as it comes."""
    size = min(WINDOW, -(-total // log.processes))
    missing = 0
    for number, window in enumerate(windows_of(args, judge, size)):
        if number % log.processes == log.rank:
            missing += sum(request.key not in done for request in window)
            judge.refuse_overlong(window)
    with tqdm(total=missing, unit="verdict", disable=log.rank > 0) as bar:
        for number, window in enumerate(windows_of(args, judge, size)):
            if number % log.processes == log.rank:
                for _, verdict in judge.judge(window, [request.key not in done for request in window]):
                    journal.append(verdict.to_dict())
                    bar.update()
                journal.sync()


def collect_or_submit(
    judge: Judge, args: JudgeArguments, log: VerdictLog, journal: Journal, done: set[tuple]
) -> str | None:
    """Collect the batch that this folder waits for, or submit what is missing; return what is still awaited, if anything."""
    if judge.apart or judge.chat.constrains:
        raise RecordError("--batch needs an endpoint: --judge openai:MODEL")
    if log.processes > 1:
        raise RecordError("--batch is handed over by one process")
    requests = {}
    for window in windows_of(args, judge, WINDOW):
        requests |= {request.id: request for request in window if request.key not in done}
    if not requests:
        return None
    state = log.path.with_name(f"batch-{judge.fingerprint}.txt")
    if not state.exists():
        prompts = {name: judge.prompt(request) for name, request in requests.items()}
        batch = judge.chat.submit_batch(prompts, judge.fingerprint)
        write_whole(state, batch)  # a batch whose id is lost would be paid for twice
        return f"batch {batch} submitted with {len(prompts)} requests; the same command collects it"
    batch = state.read_text()
    status, answers = judge.chat.collect_batch(batch)
    for name, answer in answers:
        if name in requests:
            journal.append(judge.verdict(requests.pop(name), answer).to_dict())
    journal.sync()
    if status in ("completed", "failed", "expired", "cancelled"):
        state.unlink()
        return f"batch {batch} {status}: {len(requests)} not answered" if requests else None
    return f"batch {batch}: {status}; the same command collects it"


def dry_run(judge: BaseJudge, args: JudgeArguments, done: set[tuple]) -> str:
    """Count what a run would do: cases, prompts, tokens and, with prices, what it would cost."""
    cases = prompts = tokens = 0
    worst = 0.0
    for window in windows_of(args, judge, WINDOW):
        missing = [request for request in window if request.key not in done]
        cases += len({request.case.id for request in missing})
        prompts += len(missing)
        if missing:
            count, cost = judge.estimate(missing)
            tokens, worst = tokens + count, worst + cost
    text = f"{cases} cases, {prompts} prompts, {len(done)} judged already, about {tokens:,} prompt tokens"
    return text + (f", at most {worst:.2f} in cost" if worst else "")


def summary(log: VerdictLog, rubric: Rubric | None, expected: dict[str, int], judged: int, seconds: float) -> str:
    """Lay out how the models stand by this judge's verdicts, old and new."""
    standings = Standings(rubric)
    there = Counter(verdict.case_id for verdict in log.mine())  # other orders and pairs of earlier runs among them
    for verdict in log.mine():
        if verdict.case_id in expected:
            standings.add(verdict, there[verdict.case_id])
    lines = [f"\n{log.judge} by {log.rubric}", format_table(standings.table())]
    lines += [f"  invalid, {count}: {error}" for error, count in sorted(standings.errors.items())[:8]]
    per_case = sum(expected.values()) / len(expected)
    rate = f"{judged / per_case / seconds:.2f} cases/s, " if judged and seconds else ""
    counts = f"{standings.cases} cases, {standings.verdicts} verdicts ({judged} new), {rate}"
    for count, what in ((standings.clipped, "clipped to fit"), (standings.truncated, "cut off at --max_new_tokens")):
        counts += f"{count} {what}, " if count else ""
    lines.append(f"{counts}valid rate {standings.valid_rate:.3f}")
    return "\n".join([*lines, f"verdicts: {log.path}"])


if __name__ == "__main__":
    run(main)
