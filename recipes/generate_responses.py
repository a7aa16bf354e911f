"""Have candidate models answer the questions of a file of cases (paper section 3.1, Appendix C).

Reads cases, which need no responses. Writes OUTPUT/responses.jsonl as answers come and, at the end, OUTPUT/cases.jsonl: the
cases with their responses. The same command again does only what is missing; a response that is there stays.

    python recipes/generate_responses.py --candidates models/SmolLM2-135M-Instruct --cases cases.jsonl --output responses
    accelerate launch --config_file accelerate_configs/single.yaml recipes/generate_responses.py --candidates A B …
    python recipes/generate_responses.py --candidates openai:MODEL --base_url http://localhost:8000/v1 --cases F --output DIR

Several processes share the cases; their number changes no answer.
"""

import gc
import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from automedeval.models.arguments import ChatArguments
from automedeval.records import Case, RecordError, check_least, option
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import Processes
from automedeval.records.log import Log
from automedeval.records.processes import join_processes, print_notes
from automedeval.records.run_record import record_run
from automedeval.records.tables.cases import CaseFile
from automedeval.study.dataset.responses import (
    Generated,
    answer_missing,
    answered,
    candidate_names,
    format_file,
    question_messages,
    set_up,
    summary,
    write_cases,
)


@dataclass
class GenerationArguments(TableArguments):
    """Which candidates answer which questions, and how they sample."""

    candidates: list[str] = option("checkpoint folders, Hub ids, or openai:MODEL (see --base_url)")
    cases: str = option(
        "cases, responses not needed: .jsonl, .csv, .json, .parquet or a Hub dataset id"
    )
    output: str = option("folder for responses.jsonl and cases.jsonl")
    candidates_per_case: int | None = option(
        "so many answer a case, each group of them in turn (default: all)", None
    )
    seed: int = option("seed of sampling; each answer also depends on case and candidate", 0)
    limit: int | None = option("answer only so many cases, the first ones", None)

    def __post_init__(self) -> None:
        self.candidates = comma_list(self.candidates)
        if not self.candidates:
            raise RecordError("--candidates names no model")
        check_least(self, 1, "limit", "candidates_per_case")
        if (self.candidates_per_case or 0) > len(self.candidates):
            named = f"--candidates names only {len(self.candidates)}"
            raise RecordError(f"--candidates_per_case {self.candidates_per_case}: {named}")


@dataclass
class SamplingArguments(ChatArguments):
    """How candidates sample, and where they run."""

    max_new_tokens: int = option("most tokens of an answer", 200)  # Paper: App. C
    temperature: float = option("0 decodes greedily", 0.5)  # Paper: App. C


def main() -> None:
    """Have every candidate answer what is missing, then write the cases with all responses."""
    args, chat_args = parse((GenerationArguments, SamplingArguments), __doc__)
    # --- 1. Read the cases; faults of the input are reported before a model is loaded ----------------------------------------
    folder = Path(args.output)
    if (folder / "cases.jsonl").resolve() == Path(args.cases).resolve():
        raise RecordError(
            f"--output {args.output}: its cases.jsonl is the input; choose another folder"
        )
    names = candidate_names(args.candidates)
    file = CaseFile(args.cases, 0, **args.table)
    cases = list(itertools.islice(file, args.limit))
    for case in cases:
        question_messages(case)
    groups = itertools.combinations(names, args.candidates_per_case or len(names))
    group_of = dict(zip((case.id for case in cases), itertools.cycle(groups)))
    if args.candidates_per_case:  # Paper: 4.4.2, responses are generated "separately for each case"
        cases = [replace(case, responses=()) for case in cases]
    files = [
        format_file(chat_args.chat_template_path, *candidate)
        for candidate in zip(args.candidates, names, strict=True)
    ]
    # --- 2. Have one candidate after the other answer what it has not answered yet -------------------------------------------
    processes, responses, missing, failures = join_processes(), [], 0, []
    for note in file.notes if processes.rank == 0 else ():
        print(note)
    for model, name, chat_args.chat_template_path in zip(args.candidates, names, files):
        asked = [case for case in cases if name in group_of[case.id] and name not in case.models]
        if processes.rank == 0 and len(asked) < len(cases):
            others = "are for other candidates" if args.candidates_per_case else "have its response"
            count = f"{len(asked):,} to answer, {len(cases) - len(asked):,} {others}"
            print(f"{name}: {len(cases):,} cases → {count}")
        generated, failed = generate(model, name, asked, args, chat_args, processes)
        responses.append(generated)
        missing += len(asked) - len(generated)
        failures += failed
    # --- 3. Write the cases, if nothing is missing ---------------------------------------------------------------------------
    if processes.rank == 0 and not missing:
        write_cases(folder / "cases.jsonl", cases, responses)
        print(
            f"{len(cases):,} cases, {sum(map(len, responses)):,} responses added: {folder / 'cases.jsonl'}"
        )
    processes.wait()  # a process that ends with an error stops the others
    if missing:
        last = f", the last: {failures[-1]}" if failures else ""
        raise RecordError(f"{missing} not answered{last}; the same command tries them again")


def generate(
    model: str,
    name: str,
    cases: list[Case],
    args: GenerationArguments,
    chat_args: SamplingArguments,
    processes: Processes,
) -> tuple[dict[str, Generated], list[str]]:
    """Have one candidate answer what is missing; return its answers, old and new, by case id, and the failures."""
    chat = chat_args.load(model, args.seed)
    settings = set_up(chat)
    file = Path(args.output) / "responses.jsonl"
    log = Log(file, Generated, (name,), settings, processes)
    with log:
        done = answered(log, cases)  # refuses another candidate's before anything is written
        if processes.rank == 0:
            record_run(log.run_file, args, chat_args)
        answer_missing(chat, cases, log, done)
    records, failures = answered(log, cases), chat.failures
    if processes.rank == 0:
        print(summary(name, list(records.values()), log.new))
    print_notes(chat.notes(), processes)
    del chat
    gc.collect()  # the next candidate needs the memory
    return records, failures


if __name__ == "__main__":
    run(main)
