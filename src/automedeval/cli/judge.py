"""Judge the responses of a file of cases: scores or choices for all answers and, by a judge that writes, a rationale.

    automedeval judge answers.csv
    automedeval judge sample
    automedeval judge cases.jsonl --judge openai:MODEL --base_url http://localhost:8000/v1
    accelerate launch --config_file accelerate_configs/single.yaml recipes/judge.py --judge MODEL --cases F --output DIR
    automedeval judge model-a=samples_medtext.jsonl model-b=run.eval

Writes OUTPUT/verdicts.jsonl as it goes; the same command again does only what is missing. Several processes share the cases.
Logs are joined into OUTPUT/cases.jsonl. Not for clinical use.
"""

import shlex
import webbrowser
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from automedeval.cli import report
from automedeval.evidence.arguments import EvidenceArguments
from automedeval.harness.joining import LogArguments, join_logs
from automedeval.harness.logs import is_log
from automedeval.judges.base import BaseJudge
from automedeval.judges.judge import (
    CRITERIA,
    GUIDED,
    VARIABLE,
    AskingArguments,
    default_judge,
    judge_rubric,
    load_judge,
    planner,
    references_note,
)
from automedeval.judges.requests import Planner, Request, Requests
from automedeval.judges.run import (
    dry_run,
    first_unread,
    judge_by_file,
    judge_missing,
    refuse_failures,
    settings_alike,
    verdict_log,
)
from automedeval.meta_evaluation.facts import WARNINGS, lines_of, spent
from automedeval.meta_evaluation.standings import MEAN, rank
from automedeval.meta_evaluation.verdicts.cases import Cases, units_of
from automedeval.models.arguments import ChatArguments, EncoderArguments, next_command, parse_model
from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    Verdict,
    check_least,
    errors_at,
    named_file,
    option,
    read_records,
)
from automedeval.records.arguments import BaselineArguments, comma_list
from automedeval.records.command_line import parse
from automedeval.records.journal import Processes, write_lines
from automedeval.records.log import Log
from automedeval.records.offline import is_offline
from automedeval.records.processes import is_first, join_processes, print_notes
from automedeval.records.readers import SAMPLE
from automedeval.records.run_record import BESIDE, judged_files, record_run, refuse_others
from automedeval.records.tables.cases import CaseFile
from automedeval.records.tables.columns import NOT_JUDGED
from automedeval.records.text import RANKED, format_table, in_a_row, printable
from automedeval.records.thoughts import note_on_thoughts
from automedeval.rubrics import Rubric
from automedeval.rubrics.published import PACKAGED
from automedeval.study.introspection.mistakes import read_recorded

LONGEST_NAME = 150  # letters of a folder's name; file systems take 255 bytes


@dataclass
class JudgeArguments(BaselineArguments, EvidenceArguments, AskingArguments):
    """Which judge judges which cases, and how."""

    cases: list[str] = option(
        "cases, or a table with the columns question and one for each model: .jsonl, .csv, .json, .xlsx, .parquet, "
        "or a Hub dataset id; sample: the packaged one; or logs of harnesses as MODEL=FILE, which are joined"
    )
    judge: str | None = option(
        "small (packaged), checkpoint (folder or Hub id), "
        "openai:MODEL (an endpoint, see --base_url), decision:MODEL (one of typed questions), "
        "likelihood:CHECKPOINT (how likely a response makes the question), "
        "small:FOLDER (of recipes/fit_small_judge.py), or baseline:NAME (as in a report); "
        f"default: {VARIABLE}, else small",
        None,
    )
    output: str | None = option(
        "folder (default: verdicts/FILE-JUDGE; of several files, all names)", None
    )
    dataset: str | None = option(
        "data set of recipes/build_dataset.py, folder or Hub id: judge the prompts of its training rows, with their "
        "responses and slots, as a round of introspection needs them; with --rationale false for scores alone",
        None,
    )
    split: str | None = option(
        "of --dataset these splits alone, as datasets writes them: stage1+stage2 (default: all that train)",
        None,
    )
    orders: str = option(
        "orders in which the responses are shown: 1 (drawn by --seed), all permutations, or a latin square",
        "1",
        choices=["1", "all", "latin"],
    )
    runs: int = option("judge every prompt so many times (useful with --temperature)", 1)
    seed: int = option("seed of the orders and of sampling", 0)
    limit: int | None = option("judge only so many cases, the first ones", None)
    dry_run: bool = option("count cases, prompts and tokens; judge nothing", False)
    batch_file: str | None = option(
        "openai:MODEL: ask no server, but write the requests to this file, for `vllm run-batch` on a machine "
        "without a network, or for OpenAI's batches; the same command reads the answers from FILE.answers.jsonl beside it",
        None,
    )
    again: str | None = option(
        "cut: ask again what was cut off, with a larger --max_new_tokens",
        None,
        choices=["cut"],
    )
    open: bool = option("open the report in a browser; of v1=… v2=… it is made in any case", False)

    def __post_init__(self) -> None:
        self.cases = comma_list(self.cases)  # a YAML list arrives joined
        if not self.cases:
            raise RecordError("--cases names no file")
        if self.columns and any(is_log(file) for _, file in map(named_file, self.cases)):
            raise RecordError("--columns are those of tables, not of logs")
        check_least(self, 1, "runs", "limit")
        if self.split and not self.dataset:
            raise RecordError("--split names rows of --dataset, and there is none")
        if self.batch_file:  # a verdict is one request
            if self.score_decoding == "constrained":
                raise RecordError(
                    "--batch_file: --score_decoding constrained takes several requests for a verdict; "
                    "leave it out"
                )
            self.score_decoding = "free"
        if self.dataset and (self.orders != "1" or self.baseline is not None):
            raise RecordError("--dataset: its rows say what is judged: no --orders or --baseline")

    @property
    def folder(self) -> Path:
        """The folder of the verdicts."""
        if self.output:
            return Path(self.output)
        files = list(map(named_file, self.cases))
        name = Path(files[0][1]).stem
        if len(files) > 1:
            versions = [name or Path(file).stem for name, file in files]
            name = "-".join(versions).replace("/", "-")[:LONGEST_NAME]
        # `likelihood:models/x` is likelihood-x
        parts = (self.judge or default_judge()).split(":", 1)
        return Path("verdicts", "-".join([name, *(Path(part).name for part in parts)]))


@dataclass(frozen=True)
class Answers:
    """The cases that are judged, and their one file."""

    file: str
    content: CaseFile
    first_version: str | None = None  # of files NAME=FILE, the baseline of the others


@dataclass(frozen=True)
class Job:
    """What is judged by which judge, and what becomes of the verdicts."""

    args: JudgeArguments
    answers: Answers
    judge: str
    rubric: Rubric
    plan: JsonObject  # what is asked about a case, see `plan_requests`
    requests: Requests
    output: Path
    baseline: str | None  # of the report


def main() -> None:
    """Judge what is missing, print the standings of the models, and of two versions make their report."""
    kinds = (JudgeArguments, LogArguments, EncoderArguments, ChatArguments)
    args, log_args, encoder_args, chat_args = parse(
        kinds, __doc__, first=("cases", "judge", "output")
    )
    processes = join_processes()
    job = plan_job(args, read_answers(args, log_args, processes), processes)
    judge = load(job, encoder_args, chat_args)
    log = log_of_run(job, judge, processes)
    if args.dry_run:
        log.join_parts()
        return tell(dry_run(judge, job.requests, log.done(job.requests.digests)))
    awaited = judge_requests(job, judge, log, encoder_args, chat_args)
    verdicts = print_standings(job, log) if is_first() and (log.new or not awaited) else []
    if awaited:
        tell(awaited)
    print_notes(judge.chat.notes(), processes)
    processes.wait()  # a process that ends with an error stops the others
    refuse_failures(judge, log.path, verdicts, awaited)
    if is_first() and not awaited:
        report_on(job, log)


def tell(*lines: str) -> None:
    """Print lines, of several processes once."""
    if lines and is_first():
        print("\n".join(lines), flush=True)


def read_answers(args: JudgeArguments, log_args: LogArguments, processes: Processes) -> Answers:
    """Say what is read of each table; join logs, or tables of versions, into one file.

    RecordError if the default folder has verdicts, and none on these files.
    """
    if args.output is None:
        refuse_others(args.folder, dict(judged_files(args.folder)), BESIDE.join(args.cases))
    contents = {}
    for value in args.cases:
        _, file = named_file(value)
        if is_log(file):
            continue
        contents[value] = CaseFile(file, **args.table)
        tell(*map(printable, contents[value].notes))
    version, file = named_file(args.cases[0])
    if args.cases == [file] and contents:
        return Answers(file, contents[file])
    cases, notes = join_logs(args.cases, log_args, contents)
    joined = args.folder / "cases.jsonl"
    write_joined(joined, cases, args.cases, processes)
    tell(*map(printable, notes), f"cases: {joined}")
    first_version = version if version and len(args.cases) > 1 else None
    return Answers(str(joined), CaseFile(joined), first_version)


def write_joined(file: Path, cases: list[Case], given: Sequence[str], processes: Processes) -> None:
    """Write the cases of several files; RecordError if the file has cases or models that are all others."""
    if file.exists():
        before = list(read_records(file, Case))
        shared = {case.id for case in before} & {case.id for case in cases}
        if not shared or models_of(before) != models_of(cases):
            raise RecordError(
                f"{file} holds other cases than {', '.join(given)}: choose another --output"
            )
    processes.wait()  # every process has compared before one writes
    if is_first():
        write_lines(file, (case.to_dict() for case in cases))
    processes.wait()


def models_of(cases: Iterable[Case]) -> set[str]:
    return set(chain.from_iterable(case.models for case in cases))


def plan_job(args: JudgeArguments, answers: Answers, processes: Processes) -> Job:
    """Choose the judge, the rubric and the baseline, and plan what is asked.

    RecordError if nothing is asked, or nothing about the baseline.
    """
    judge = args.judge or default_judge()
    if args.judge is None:
        tell(f"judge: {judge} (--judge names another)")
    cases = answers.content.first(args.limit)
    of_file = chain(cases, answers.content)
    rubric = judge_rubric(judge, args.rubric, None if args.dataset else of_file)
    if rubric.id == GUIDED and not (args.rubric or args.dataset):
        tell(f"rubric: {GUIDED}, which shows the references (without them: --rubric {PACKAGED})")
    if args.batch_file:
        check_batch(judge, rubric, processes)
    baseline = args.baseline or answers.first_version
    if rubric.mode == "checklist" or rubric.in_words:
        baseline = None
    # By other rubrics than pairwise ones the baseline changes nothing that is judged.
    compared = baseline if rubric.mode == "pairwise" and not args.dataset else None
    asked = {"orders": args.orders, "seed": args.seed, "runs": args.runs, "baseline": compared}
    plan = (
        plan_from_dataset(args, args.dataset, rubric, of_file)
        if args.dataset
        else planner(judge, rubric, **asked)
    )
    requests = Requests(cases, plan)
    if not requests:
        raise RecordError(
            f"{answers.file}: nothing to judge: {rubric.name} compares pairs, and no case has two responses"
        )
    judged = models_of(cases)
    if baseline and baseline not in judged:
        raise RecordError(
            f"--baseline: no answer of {baseline!r} is judged, but of {in_a_row(sorted(judged))}"
        )
    tell(*note_on_thoughts(cases))
    is_own_choice = args.rubric not in (None, GUIDED) or args.dataset or rubric.mode == "checklist"
    if not is_own_choice and all(case.criteria for case in cases):
        tell(f"the criteria of the cases are not read: that takes a language model, {CRITERIA}")
    return Job(args, answers, judge, rubric, asked, requests, args.folder, baseline)


def check_batch(judge: str, rubric: Rubric, processes: Processes) -> None:
    """Raise RecordError if a file of requests cannot be written."""
    with errors_at("--batch_file"):
        if parse_model(judge)[0] != "openai":
            raise RecordError(
                "needs --judge openai:MODEL, the name that the model will be served by"
            )
        if processes.count > 1:
            raise RecordError("is written by one process; start the recipe without accelerate")
        if rubric.mode == "checklist":
            raise RecordError(
                f"{rubric.name} takes several prompts for each response; leave it out"
            )


def plan_from_dataset(
    args: JudgeArguments, dataset: str, rubric: Rubric, cases: Iterable[Case]
) -> Planner:
    """Return the plan that judges the prompts of a data set's training rows, those by this rubric.

    Raises:
        RecordError: no row by this rubric, or a row whose case is not among these or has changed.
    """
    # pyarrow takes its time, and only rows need it
    from automedeval.study.dataset.folder import dataset_folder, read_dataset, read_split

    folder = dataset_folder(dataset)
    training = read_dataset(folder).training
    if args.split:
        training = read_split(folder, args.split).to_pylist()
    rows = [row for row in training if row["rubric"] == rubric.name]
    row_of = read_recorded(rows, cases, {rubric.name: rubric}, dataset)

    def plan(case: Case) -> list[Request]:
        if (row := row_of.get(case.id)) is None:
            return []
        # The same responses in the same slots (Algorithm 2, line 5).
        rationale = args.rationale and row.reading.rationale is not None
        return [
            Request(row.case, row.order, None, run, rationale, row.original)
            for run in range(args.runs)
        ]

    return plan


def load(job: Job, encoder_args: EncoderArguments, chat_args: ChatArguments) -> BaseJudge:
    """Load the judge, without the weights of a model; say where it does not read the references of the cases."""
    args = job.args
    # No server is asked what it can do, or whether verdicts are this judge's.
    chat_args.unasked = bool(args.batch_file) or (
        args.dry_run and not any(job.output.glob("verdicts*.jsonl"))
    )
    chat_args.loads = False  # the weights are loaded when something is missing
    judge = load_judge(
        job.judge, job.rubric, chat_args, name=args.judge_name, cases=job.requests.cases, encoder=encoder_args,
        rationale=args.rationale, score_decoding=args.score_decoding,
        **job.plan, **args.books(encoder_args, chat_args.device),
    )  # fmt: skip
    tell(*references_note(judge, job.requests.cases))
    return judge


def log_of_run(job: Job, judge: BaseJudge, processes: Processes) -> Log:
    """Return the log of the verdicts; from a run with --again cut on, those of all limits stand in it."""
    again = {request.key for request in job.requests} if job.args.again else set()
    return verdict_log(
        job.output,
        judge,
        processes=processes,
        renewed=job.requests.digests,
        alike=settings_alike(judge, job.output, bool(again)),
        again=again,
    )


def judge_requests(job: Job, judge: BaseJudge, log: Log, *more: Any) -> str | None:
    """Judge what the log lacks, and record the run; return what is to be done where a file of requests awaits answers.

    The record has the arguments that the run settled.
    """
    columns = job.args.columns if job.answers.content.table else []
    guided = GUIDED if job.rubric.id == GUIDED else None  # an audit of this judge needs it
    settled = SimpleNamespace(
        judge=job.judge,
        rubric=job.args.rubric or guided,
        score_decoding=judge.score_decoding or job.args.score_decoding,
        again="cut" if log.alike else None,
        columns_of=dict(judged_files(job.output)) | {BESIDE.join(job.args.cases): columns},
    )
    judge.chat.prepare()
    with log:
        # refuses another judge's verdicts before anything is written
        done = log.done(job.requests.digests)
        tell(*log.notes())
        if is_first():
            record_run(log.run_file, job.args, settled, *more)
        if job.args.batch_file is None:
            judge_missing(judge, job.requests, log, done)
            return None
        return judge_by_file(judge, job.requests, log, done, Path(job.args.batch_file))


def print_standings(job: Job, log: Log) -> list[Verdict]:
    """Print the standings of the models by this judge's verdicts, old and new, the counts of the run, and what is known.

    Columns without a text stand there without a score: they may be a model's. The first answer that cannot be read is shown
    in full. Return the verdicts.
    """
    by_id = {request.case.id: request.case for request in job.requests}
    cases = Cases(list(by_id.values()), job.answers.file)
    verdicts = []
    for verdict in log.records():
        case = by_id.get(verdict.case_id)
        if case is None or max(verdict.order) >= len(case.responses):
            continue
        verdicts.append(verdict.for_figures())
    table, profile = rank(cases, verdicts, job.rubric, log.path) if verdicts else ([], None)
    if read := job.answers.content.table:
        table += [{"model": name, MEAN: NOT_JUDGED} for name in read.columns.textless]
    lines = [f"\n{log.by}", format_table(table)]
    if any("rank" in row for row in table):
        lines.append(RANKED.format(units_of(cases.records)))
    lines += counts_of(verdicts, log)
    if profile:
        lines += lines_of(profile, WARNINGS | {"Harm"} if profile.harm else WARNINGS)
    tell(*lines, f"verdicts: {log.path}")
    return verdicts


def counts_of(verdicts: list[Verdict], log: Log) -> list[str]:
    """Return what is said of a run's verdicts: the invalid ones with their errors, the counts, and what to do about them."""
    invalid = [verdict for verdict in verdicts if not verdict.valid]
    cut = sum(verdict.truncated for verdict in verdicts)
    errors = Counter(verdict.error for verdict in invalid)
    lines = [f"  invalid, {count}: {error}" for error, count in sorted(errors.items())]
    if more := len(lines[8:]):
        lines[8:] = [f"  and {more} more"]
    lines += first_unread(invalid)
    judged = {verdict.case_id for verdict in verdicts}
    lines.append(f"cases: {len(judged)}, verdicts: {len(verdicts)} (new: {log.new})")
    if tokens := spent(verdicts, [log.path]):
        lines.append(tokens)
    if cut:
        lines.append(
            f"cut off at --max_new_tokens: {cut}; "
            "--again cut with a larger --max_new_tokens asks these again"
        )
    if unread := sum(not verdict.truncated for verdict in invalid):
        again = f"a judge that was changed needs a folder of its own, --output {log.path.parent}-2"
        lines.append(f"{unread} invalid for good, and not asked until they can be read: {again}")
    return lines


def report_on(job: Job, log: Log) -> None:
    """Say the command that makes this judge's report; of two versions, or with --open, make it."""
    args = job.args
    cases = job.answers.file
    own_rubric = args.rubric if Path(args.rubric or "").suffix else None
    ratings = None
    if job.answers.content.path == SAMPLE / "test_cases.jsonl" and not job.rubric.in_words:
        ratings = SAMPLE / "test_ratings.jsonl"
    if args.limit:  # the others' verdicts are not missing
        cases = str(job.output / f"cases-{args.limit}.jsonl")
        write_lines(Path(cases), (case.to_dict() for case in job.requests.cases))
    # A report is by the first judge of a folder; harm is read of all.
    main_judge = log.by if log.is_shared and not job.rubric.in_words else None
    # Runs called alike in different folders have reports of their own.
    is_in_verdicts = job.output.parent.resolve() == Path("verdicts").resolve()
    folder = Path("reports", job.output.name) if is_in_verdicts else job.output / "report"
    command = next_command(
        "report", {"offline": is_offline()}, (), verdicts=job.output, cases=cases, ratings=ratings, blank=args.blank,
        rubric=own_rubric, main_judge=main_judge, baseline=job.baseline, output=folder,
    )  # fmt: skip
    tell(f"\nThe report: {command}")
    if (
        args.open or job.baseline or job.answers.first_version
    ):  # of two versions the report says which is better
        page = report.main(shlex.split(command)[2:])
        if args.open and not webbrowser.open(page.resolve().as_uri()):
            print(f"no browser on this machine: open {page}")
