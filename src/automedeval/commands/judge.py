"""Judge the responses of a file of cases: scores or choices for all answers and, by a judge that writes, a rationale.

    automedeval judge --cases cases.jsonl --output verdicts
    automedeval judge --judge models/SmolLM2-135M-Instruct --cases cases.jsonl --output verdicts
    accelerate launch --config_file accelerate_configs/single.yaml recipes/judge.py --judge MODEL --cases F --output DIR
    automedeval judge --judge openai:MODEL --base_url http://localhost:8000/v1 --cases cases.jsonl --output verdicts

Writes OUTPUT/verdicts.jsonl as it goes; the same command again does only what is missing. Several processes share the cases.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from automedeval.cli import join_processes, parse, print_notes, record_run
from automedeval.introspection.mistakes import read_recorded
from automedeval.judges.judge import judge_rubric, load_judge, planner
from automedeval.judges.requests import Request, Requests
from automedeval.judges.run import (
    collect_or_submit,
    dry_run,
    judge_by_files,
    judge_missing,
    refuse_failures,
    summary,
    verdict_log,
)
from automedeval.models.arguments import ChatArguments, EncoderArguments, parse_model
from automedeval.records import Case, RecordError, check_least, read_cases
from automedeval.rubrics import Rubric


@dataclass
class JudgeArguments:
    """Which judge judges which cases, and how."""

    cases: str = field(metadata={"help": "cases: .jsonl, .parquet or a Hub dataset id"})
    output: str = field(metadata={"help": "folder for verdicts.jsonl"})
    judge: str = field(
        default="small",
        metadata={
            "help": "small (the packaged small judge), checkpoint (folder or Hub id), openai:MODEL (an endpoint, see "
            "--base_url), likelihood:CHECKPOINT (how likely a response makes the question), channel:CHECKPOINT (trained by "
            "recipes/build_channel_dataset.py), small:FOLDER (of recipes/fit_small_judge.py), or baseline:NAME (a baseline, "
            "named as in automedeval report)"
        },
    )
    dataset: str | None = field(
        default=None,
        metadata={
            "help": "folder of a data set of recipes/build_dataset.py: judge the prompts of its training rows, with their "
            "responses and slots, as a round of introspection needs them"
        },
    )
    rubric: str | None = field(
        default=None,
        metadata={
            "help": "a packaged rubric, or the path of your own .yaml; default: the one that the judge was published with, "
            "else automedeval"
        },
    )
    rationale: bool = field(default=True, metadata={"help": "false asks for scores or choices alone"})
    score_decoding: str = field(
        default="auto",
        metadata={
            "help": "constrained: each score is chosen among the allowed values, the likeliest one or with --temperature a "
            "sampled one (needs a checkpoint, or a server that constrains); free: scores are parsed from the text that the "
            "judge writes; auto: constrained where the judge can",
            "choices": ["auto", "constrained", "free"],
        },
    )
    orders: str = field(
        default="1",
        metadata={
            "help": "orders in which the responses are shown: 1 (drawn by --seed), all permutations, or a latin square",
            "choices": ["1", "all", "latin"],
        },
    )
    runs: int = field(default=1, metadata={"help": "judge every prompt so many times (useful with --temperature)"})
    seed: int = field(default=0, metadata={"help": "seed of the orders and of sampling"})
    models: str | None = field(default=None, metadata={"help": "judge only these models' responses: A,B,C"})
    baseline: str | None = field(default=None, metadata={"help": "pairwise rubrics: only pairs with this model"})
    on_overlong: str = field(
        default="error",
        metadata={
            "help": "prompt longer than the context window: error stops before anything is judged, skip records an invalid "
            "verdict, clip shortens the longest responses",
            "choices": ["error", "skip", "clip"],
        },
    )
    limit: int | None = field(default=None, metadata={"help": "judge only so many cases, the first ones"})
    judge_name: str | None = field(default=None, metadata={"help": "name that verdicts record; default: the model's"})
    dry_run: bool = field(default=False, metadata={"help": "count cases, prompts, tokens and cost; judge nothing"})
    batch: bool = field(default=False, metadata={"help": "endpoint: submit one batch; the same command collects it"})
    batch_file: str | None = field(
        default=None,
        metadata={
            "help": "openai:MODEL: ask no server, but write the requests to this file, for `vllm run-batch` on a machine "
            "without a network, or for OpenAI's batches with --score_decoding free"
        },
    )
    batch_answers: str | None = field(
        default=None,
        metadata={"help": "with --batch_file: the files of answers so far, A,B; what they lack is asked next"},
    )

    def __post_init__(self) -> None:
        check_least(self, 1, "runs", "limit")
        if self.batch and parse_model(self.judge)[0] != "openai":
            raise RecordError("--batch needs an endpoint: --judge openai:MODEL")
        if self.batch and self.score_decoding == "auto":
            self.score_decoding = "free"  # OpenAI's batches have no constraint but a JSON schema
        if self.batch and self.score_decoding == "constrained":
            raise RecordError(
                "--batch asks once for each verdict, without a constraint: no --score_decoding constrained"
            )
        if self.batch_answers and not self.batch_file:
            raise RecordError("--batch_answers needs --batch_file, for the requests that are still to be answered")
        if self.batch_file and (self.batch or parse_model(self.judge)[0] != "openai"):
            raise RecordError(
                "--batch_file needs --judge openai:MODEL, the name that the model will be served by, and no --batch"
            )
        if self.dataset and (self.orders != "1" or self.models is not None or self.baseline is not None):
            raise RecordError("--dataset: its rows say what is judged: no --orders, --models or --baseline")


def main() -> None:
    """Judge what is missing, then print the standings of the models."""
    args, encoder_args, chat_args = parse((JudgeArguments, EncoderArguments, ChatArguments), __doc__)
    rubric = judge_rubric(args.judge, args.rubric)
    models = [name.strip() for name in args.models.split(",")] if args.models is not None else None
    plan = {"orders": args.orders, "seed": args.seed, "runs": args.runs, "baseline": args.baseline, "models": models}
    planned = planner(args.judge, rubric, **plan)
    requests = Requests(args.cases, args.limit, of_rows(args, rubric) if args.dataset else planned)
    if not len(requests):
        raise RecordError(
            f"{args.cases}: nothing to judge: {rubric.name} compares pairs, and no case has two responses"
        )
    ours = join_processes()
    if (args.batch or args.batch_file) and ours.count > 1:
        raise RecordError("a batch is made by one process; start the recipe without accelerate")
    if args.batch_file:
        chat_args.batch_file = "free" if args.score_decoding == "free" else "constrained"
    judge = load_judge(
        args.judge, rubric, chat_args, rationale=args.rationale, score_decoding=args.score_decoding, **plan,
        on_overlong=args.on_overlong, name=args.judge_name, cases=requests.cases(), processes=ours.count,
        encoder=encoder_args,
    )  # fmt: skip
    args.score_decoding = getattr(judge, "score_decoding", args.score_decoding)
    log = verdict_log(Path(args.output), judge, processes=ours)
    if args.dry_run:
        log.join_parts()
        print(dry_run(judge, requests, log.done(requests.digests)))
        return
    started, awaited = time.monotonic(), None
    with log:
        if ours.rank == 0:
            record_run(log.run_file, args, encoder_args, chat_args)
        done = log.done(requests.digests)
        if args.batch:
            missing = {request.id: request for request in requests if request.key not in done}
            awaited = collect_or_submit(judge, missing, log, judge.prompt, judge.verdict)
        elif args.batch_file:
            answers = [Path(name.strip()) for name in (args.batch_answers or "").split(",") if name.strip()]
            missing = (request for request in requests if request.key not in done)
            awaited = judge_by_files(judge, missing, len(requests) - len(done), log, Path(args.batch_file), answers)
        else:
            judge_missing(judge, requests, len(requests), log, done)
    if ours.rank == 0:
        seconds = time.monotonic() - started
        record_run(
            log.run_file, args, encoder_args, chat_args, timing={"verdicts": log.new, "seconds": round(seconds, 1)}
        )
        if log.new or not awaited:
            print(summary(log, None if judge.apart else rubric, requests, seconds))
        if awaited:
            print(awaited)
    if judge.chat is not None:
        print_notes(judge.chat.notes(), ours)
    ours.wait()  # a process that ends with an error stops the others
    refuse_failures(judge)


def of_rows(args: JudgeArguments, rubric: Rubric) -> Callable[[Case], list[Request]]:
    """Return the plan that judges the prompts of a data set's training rows, those by this rubric.

    Raises:
        RecordError: no row by this rubric, or a row whose case is not in --cases or has changed.
    """
    from automedeval.dataset.folder import read_dataset  # pyarrow takes its time, and only rows need it

    rows = [row for row in read_dataset(args.dataset).training if row["rubric"] == rubric.name]
    wanted = {row["case_id"] for row in rows}
    cases = {case.id: case for case in read_cases(args.cases) if case.id in wanted}
    recorded = {each.case.id: each for each in read_recorded(rows, cases, {rubric.name: rubric}, args.dataset)}
    return lambda case: recorded[case.id].requests(args.runs) if case.id in recorded else []
