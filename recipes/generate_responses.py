"""Let candidate models answer the questions of a file of cases (paper section 3.1, Appendix C).

    python recipes/generate_responses.py --candidates models/SmolLM2-135M-Instruct --cases cases.jsonl --output responses
    accelerate launch --config_file accelerate_configs/single.yaml recipes/generate_responses.py --candidates A B …
    python recipes/generate_responses.py --candidates openai:MODEL --base_url http://localhost:8000/v1 --cases F --output DIR

Appends to OUTPUT/responses.jsonl as answers come and writes OUTPUT/cases.jsonl, the cases with their responses, in the end;
the same command again does only what is missing. Several processes share the cases, and change no answer.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from automedeval.cli import join_processes, parse, record_run, run
from automedeval.dataset.responses import (
    Generated,
    ResponseLog,
    candidate_names,
    question_messages,
    read_questions,
    refuse_overlong,
    respond,
    set_up,
    summary,
    windows,
    write_cases,
)
from automedeval.models.arguments import ChatArguments
from automedeval.records import Case, RecordError
from automedeval.records.journal import Journal


@dataclass
class GenerationArguments:
    """Who answers what."""

    candidates: list[str] = field(metadata={"help": "checkpoint folders, Hub ids, or openai:MODEL (see --base_url)"})
    cases: str = field(metadata={"help": "cases, responses not needed: .jsonl, .parquet or a Hub dataset id"})
    output: str = field(metadata={"help": "folder for responses.jsonl and cases.jsonl"})
    names: list[str] = field(
        default_factory=list, metadata={"help": "what responses record as their models; default: as the checkpoints"}
    )
    system: str | None = field(default=None, metadata={"help": "system message in front of every question"})
    top_k: int = field(  # Paper: App. C
        default=50, metadata={"help": "checkpoints sample among so many tokens, 0: all; not sent to endpoints"}
    )
    top_p: float = field(  # Paper: App. C
        default=1.0, metadata={"help": "checkpoints sample among the likeliest that reach this; endpoints take 1 only"}
    )
    seed: int = field(default=0, metadata={"help": "with case and candidate it decides an answer"})
    keep_existing: bool = field(
        default=False, metadata={"help": "pass a case over that has a response of the candidate's name; else an error"}
    )
    window: int = field(
        default=128, metadata={"help": "so many cases are sorted by length and batched; processes take turns by window"}
    )
    limit: int | None = field(default=None, metadata={"help": "only the first so many cases"})

    def __post_init__(self) -> None:
        for name in ("candidates", "names"):  # a list in YAML arrives joined by commas
            words = [word.strip() for text in getattr(self, name) for word in text.split(",")]
            setattr(self, name, [word for word in words if word])
        if not self.candidates:
            raise RecordError("--candidates names no model")
        for name, least in (("top_k", 0), ("window", 1), ("limit", 1)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise RecordError(f"--{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 < self.top_p <= 1:
            raise RecordError(f"--top_p must be above 0 and at most 1, not {self.top_p}")
        if self.top_p < 1 and any(model.startswith("openai:") for model in self.candidates):
            raise RecordError(f"--top_p {self.top_p}: an endpoint is asked with its temperature alone")


@dataclass
class SamplingArguments(ChatArguments):
    """How candidates sample, and where they run."""

    base_url: str | None = field(default=None, metadata={"help": "endpoint of the openai:MODEL candidates"})
    max_new_tokens: int = field(default=200, metadata={"help": "most tokens of an answer"})  # Paper: App. C
    temperature: float = field(default=0.5, metadata={"help": "0 decodes greedily"})  # Paper: App. C
    top_logprobs: int = field(default=0, metadata={"help": "endpoint: alternatives per token; answers need none"})


def main() -> None:
    """Let every candidate answer what is missing, then write the cases with all responses."""
    args, chat_args = parse((GenerationArguments, SamplingArguments), __doc__)
    folder = Path(args.output)
    if (folder / "cases.jsonl").resolve() == Path(args.cases).resolve():
        raise RecordError(f"--output {args.output}: its cases.jsonl is what is read; choose another folder")
    names = candidate_names(args.candidates, args.names)
    cases = read_questions(args.cases, names, args.keep_existing, args.limit)
    for case in cases:  # bad input is told at once
        question_messages(case, args.system)
    rank, processes, wait = join_processes()
    log, answered, missing, failures = ResponseLog(folder, rank, processes), [], 0, []
    for model, name in zip(args.candidates, names):
        asked = [case for case in cases if name not in case.models]
        if rank == 0 and len(asked) < len(cases):
            print(
                f"{name}: {len(cases):,} cases → {len(asked):,} to answer, {len(cases) - len(asked):,} have its response"
            )
        found, failed = generate(model, name, asked, args, chat_args, log, wait)
        answered.append(found)
        missing += len(asked) - len(found)
        failures += failed
    if rank == 0 and not missing:
        log.sort(cases, names)
        write_cases(folder / "cases.jsonl", cases, answered)
        print(f"{len(cases):,} cases, {sum(map(len, answered)):,} responses added: {folder / 'cases.jsonl'}")
    wait()  # a process that ends with an error takes the others with it
    if missing:
        last = f", the last: {failures[-1]}" if failures else ""
        raise RecordError(f"{missing} not answered{last}; the same command tries them again")


def generate(
    model: str,
    name: str,
    cases: list[Case],
    args: GenerationArguments,
    chat_args: SamplingArguments,
    log: ResponseLog,
    wait: Callable[[], None],
) -> tuple[dict[str, Generated], list[str]]:
    """Let one candidate answer what is missing; return its answers, old and new, by case id, and what failed."""
    chat = chat_args.load(model, args.seed, log.processes)
    settings = set_up(chat, not model.startswith("openai:"), args.top_k, args.top_p, args.system)
    mine = list(windows(cases, args.window, log.rank, log.processes))
    for window in mine:
        refuse_overlong(chat, name, window, args.system)
    run_file = log.folder / f"run-{settings}.json"
    if log.rank == 0:
        log.join_parts()
        record_run(run_file, args, chat_args)
    wait()
    started = time.monotonic()
    with Journal(log.part) as journal:  # what is done is read under the lock: nobody adds to it meanwhile
        done = set(log.done(name, settings, cases))
        total = sum(case.id not in done for window in mine for case in window)
        with tqdm(total=total, unit="response", desc=name, disable=log.rank > 0) as bar:
            for window in mine:
                for response in respond(chat, name, settings, window, done, args.system):
                    journal.append(response.to_dict())
                    bar.update()
                journal.sync()
    wait()
    if log.rank == 0:
        log.join_parts()
    wait()
    found, failures = log.done(name, settings, cases), list(getattr(chat, "failures", ()))
    if log.rank == 0:
        timing = {"responses": len(found) - len(done), "seconds": round(time.monotonic() - started, 1)}
        record_run(run_file, args, chat_args, timing=timing)
        print(summary(name, list(found.values()), **timing))
    del chat
    gc.collect()  # the next candidate needs the room
    return found, failures


if __name__ == "__main__":
    run(main)
