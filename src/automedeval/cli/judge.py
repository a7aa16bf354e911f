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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import automedeval
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
from automedeval.judges.requests import Request, Requests
from automedeval.judges.run import (
    dry_run,
    first_unread,
    judge_by_file,
    judge_missing,
    refuse_failures,
    shorter_settings,
    verdict_log,
)
from automedeval.meta_evaluation.facts import WARNINGS, lines_of, spent
from automedeval.meta_evaluation.standings import MEAN, rank
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.models.arguments import ChatArguments, EncoderArguments, next_command, parse_model
from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    Verdict,
    check_least,
    named_file,
    option,
    read_records,
)
from automedeval.records.arguments import BaselineArguments, comma_list
from automedeval.records.command_line import parse
from automedeval.records.journal import ALONE, Processes, write_lines
from automedeval.records.log import Log
from automedeval.records.offline import is_offline
from automedeval.records.processes import join_processes, print_notes
from automedeval.records.run_record import record_run, run_arguments
from automedeval.records.tables.cases import CaseFile, read_cases
from automedeval.records.tables.columns import NOT_JUDGED
from automedeval.records.text import RANKED, format_table, in_a_row, printable
from automedeval.rubrics import Rubric
from automedeval.rubrics.published import PACKAGED
from automedeval.study.introspection.mistakes import read_recorded

LONGEST_NAME = 150  # letters of a folder's name; file systems take 255 bytes
SAMPLE = Path(automedeval.__file__).parent / "sample"


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
    judge_by_default: bool = field(default=False, init=False)
    ratings: str | None = field(default=None, init=False)  # of the packaged sample
    # Of every table that was judged into the folder: its --columns, by which a report reads it.
    columns_of: dict[str, list[str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.cases = comma_list(self.cases)  # a YAML list arrives joined
        if not self.cases:
            raise RecordError("--cases names no file")
        if self.columns and len(self.cases) > 1 and any(map(is_log, self.files)):
            raise RecordError("--columns are those of tables, not of logs")
        check_least(self, 1, "runs", "limit")
        if self.split and not self.dataset:
            raise RecordError("--split names rows of --dataset, and there is none")
        if self.batch_file:  # a verdict is one request
            if self.score_decoding == "constrained":
                what = "--score_decoding constrained takes several requests for a verdict"
                raise RecordError(f"--batch_file: {what}; leave it out")
            self.score_decoding = "free"
        if self.dataset and (self.orders != "1" or self.baseline is not None):
            raise RecordError("--dataset: its rows say what is judged: no --orders or --baseline")

    @property
    def file(self) -> str:
        """The file of the cases, once logs are joined into one (`cases_file`)."""
        return self.cases[0]

    @property
    def files(self) -> list[str]:
        """The files that were given, without their names."""
        return [file for _, file in map(named_file, self.cases)]

    @property
    def first_version(self) -> str | None:
        """The name of the first of several tables, which is the baseline of the others; None of one file, or of logs."""
        if len(self.cases) == 1 or is_log(self.files[0]):
            return None
        return named_file(self.file)[0]

    @property
    def plan(self) -> JsonObject:
        """What is asked about a case, see `plan_requests`."""
        return {name: getattr(self, name) for name in ("orders", "seed", "runs", "baseline")}

    def check_batch(self, judge: str, rubric: Rubric, processes: Processes) -> None:
        """Raise RecordError if a file of requests cannot be written."""
        fault = ""
        if parse_model(judge)[0] != "openai":
            fault = "needs --judge openai:MODEL, the name that the model will be served by"
        elif processes.count > 1:
            fault = "is written by one process; start the recipe without accelerate"
        elif rubric.mode == "checklist":
            fault = f"{rubric.name} takes several prompts for each response; leave it out"
        if self.batch_file and fault:
            raise RecordError(f"--batch_file: {fault}")

    def complete(self) -> tuple[str, Path]:
        """Put in what was not given, and the files of the packaged sample; return the judge and the output folder."""
        if self.judge is None:
            self.judge, self.judge_by_default = default_judge(), True
        versions = [name or Path(file).stem for name, file in map(named_file, self.cases)]
        name = Path(self.files[0]).stem
        if self.cases == ["sample"] and not Path("sample").exists():
            self.cases = [str(SAMPLE / "test_cases.jsonl")]
            self.ratings = str(SAMPLE / "test_ratings.jsonl")
        if len(versions) > 1:
            name = "-".join(versions).replace("/", "-")[:LONGEST_NAME]
        self.output = self.output or f"verdicts/{name}-{folder_name(self.judge)}"
        return self.judge, Path(self.output)


def main() -> None:
    """Judge what is missing, print the standings of the models, and of two versions make their report."""
    kinds = (JudgeArguments, LogArguments, EncoderArguments, ChatArguments)
    args, log_args, encoder_args, chat_args = parse(
        kinds, __doc__, first=("cases", "judge", "output")
    )
    judge_name, output = args.complete()
    processes = join_processes()
    version = args.first_version
    textless = read_answers(args, output, log_args, processes)
    if args.judge_by_default:
        tell(processes, f"judge: {judge_name} (--judge names another)")
    rubric = rubric_of_run(args, judge_name, processes)
    # the baseline of the report
    reported = None if rubric.mode == "checklist" or rubric.in_words else args.baseline or version
    # by other rubrics than pairwise ones it changes nothing that is judged
    args.baseline = reported if rubric.mode == "pairwise" and not args.dataset else None
    if rubric.in_words:
        args.ratings = None  # the sample's are of scores
    args.check_batch(judge_name, rubric, processes)
    requests = planned_requests(args, judge_name, rubric, reported)
    tell(processes, *requests.notes, *unread_criteria(args, rubric, requests))
    # No server is asked what it can do, or whether verdicts are this judge's.
    chat_args.unasked = bool(args.batch_file) or (
        args.dry_run and not any(output.glob("verdicts*.jsonl"))
    )
    chat_args.loads = False  # the weights are loaded when something is missing
    judge = load_judge(
        judge_name, rubric, chat_args, name=args.judge_name, cases=requests.cases, encoder=encoder_args,
        rationale=args.rationale, score_decoding=args.score_decoding,
        **args.plan, **args.books(encoder_args, chat_args.device),
    )  # fmt: skip
    tell(processes, *references_note(judge, requests.cases))
    args.score_decoding = judge.score_decoding or args.score_decoding
    log = log_of_run(judge, output, requests, args, processes)
    if args.dry_run:
        log.join_parts()
        return tell(processes, dry_run(judge, requests, log.done(requests.digests)))
    awaited = judge_requests(judge, requests, log, args, encoder_args, chat_args)
    verdicts: list[Verdict] = []
    if processes.rank == 0 and (log.new or not awaited):
        verdicts = print_standings(log, rubric, requests, textless)
    tell(processes, *filter(None, [awaited]))
    print_notes(judge.chat.notes(), processes)
    processes.wait()  # a process that ends with an error stops the others
    refuse_failures(judge, log.path, verdicts)
    if processes.rank == 0 and not awaited:
        args.baseline = reported
        report_on(args, output, requests)


def tell(processes: Processes, *lines: str) -> None:
    """Print lines, of several processes once."""
    if lines and processes.rank == 0:
        print("\n".join(lines), flush=True)


def read_answers(
    args: JudgeArguments, output: Path, log_args: LogArguments, processes: Processes
) -> list[str]:
    """Say what is read of each table, join logs or versions into one file; return the columns without a text.

    These may be a model's. Logs and files of cases are no tables.
    """
    hint = "" if args.columns else " (--columns says it otherwise)"
    textless = set[str]()
    for file in args.files:
        table = None if is_log(file) else CaseFile(file, **args.table).table
        if table is not None:
            tell(processes, printable(f"{file}: {'; '.join(table.notes)}{hint}"))
            textless.update(table.columns.textless)
    args.cases = [cases_file(args, output, log_args, processes)]
    return sorted(textless)


def rubric_of_run(args: JudgeArguments, judge_name: str, processes: Processes) -> Rubric:
    """Return the rubric of a run, and say where a language model sees the references because all cases have one."""
    cases = None if args.rubric or args.dataset else read_cases(args.file, **args.table)
    rubric = judge_rubric(judge_name, args.rubric, cases)
    if cases is not None and rubric.id == GUIDED:
        args.rubric = GUIDED  # an audit of this judge needs it
        tell(
            processes,
            f"rubric: {GUIDED}, which shows the references (without them: --rubric {PACKAGED})",
        )
    return rubric


def planned_requests(
    args: JudgeArguments, judge_name: str, rubric: Rubric, baseline: str | None
) -> Requests:
    """Return what the judge will be asked; RecordError if that is nothing, or has no answer of the baseline."""
    plan = args.dataset and plan_from_dataset(args, args.dataset, rubric)
    plan = plan or planner(judge_name, rubric, **args.plan)
    requests = Requests(args.file, args.limit, plan, **args.table)
    if not requests:
        raise RecordError(
            f"{args.file}: nothing to judge: {rubric.name} compares pairs, and no case has two responses"
        )
    judged = {request.case.models[slot] for request in requests for slot in request.slots}
    if baseline and baseline not in judged:
        raise RecordError(
            f"--baseline: no answer of {baseline!r} is judged, but of {in_a_row(sorted(judged))}"
        )
    return requests


def log_of_run(
    judge: BaseJudge, output: Path, requests: Requests, args: JudgeArguments, processes: Processes
) -> Log:
    """Return the log of the verdicts; from a run with --again cut on, those of both limits stand in it.

    What the record of an earlier run says, and this run does not, is put into the arguments.
    """
    again = {request.key for request in requests} if args.again else ()
    earlier = run_arguments(output / f"run-{judge.fingerprint}.json")
    args.again = args.again or earlier.get("again")
    args.columns_of = earlier.get("columns_of", {}) | {args.file: args.columns}
    alike = shorter_settings(judge, output) if args.again else ()
    return verdict_log(
        output, judge, processes=processes, renewed=requests.digests, alike=alike, again=again
    )


def unread_criteria(args: JudgeArguments, rubric: Rubric, requests: Requests) -> list[str]:
    """Return a line if every case has criteria of its own, and the rubric, which nobody chose, reads none."""
    chosen = args.rubric not in (None, GUIDED) or args.dataset or rubric.mode == "checklist"
    if chosen or not all(case.criteria for case in requests.cases):
        return []
    return [f"the criteria of the cases are not read: that takes a language model, {CRITERIA}"]


def judge_requests(
    judge: BaseJudge, requests: Requests, log: Log, args: JudgeArguments, *more: Any
) -> str | None:
    """Judge what the log lacks, and record the run; return what is to be done where a file of requests awaits answers."""
    judge.chat.prepare()
    with log:
        # refuses another judge's verdicts before anything is written
        done = log.done(requests.digests)
        tell(log.processes, *log.notes(requests.cases))
        if log.processes.rank == 0:
            record_run(log.run_file, args, *more)
        if args.batch_file is None:
            judge_missing(judge, requests, log, done)
            return None
        return judge_by_file(judge, requests, log, done, Path(args.batch_file))


def report_on(args: JudgeArguments, output: Path, requests: Requests) -> None:
    """Say the command that makes the report; of two versions, or with --open, make it."""
    if args.limit:  # the others' verdicts are not missing
        args.cases = [str(output / f"cases-{args.limit}.jsonl")]
        write_lines(Path(args.file), (case.to_dict() for case in requests.cases))
    command = report_command(args, output)
    tell(ALONE, f"\nThe report: {command}")
    if args.open or args.baseline:  # of two versions the report says which is better
        page = report.main(shlex.split(command)[2:])
        if args.open and not webbrowser.open(page.resolve().as_uri()):
            print(f"no browser on this machine: open {page}")


def models_of(cases: Iterable[Case]) -> set[str]:
    return {model for case in cases for model in case.models}


def folder_name(judge: str) -> str:
    """Return a judge's name as a part of a folder's name: `likelihood:models/x` is likelihood-x."""
    kind, model = parse_model(judge)
    parts = [] if kind == "checkpoint" else [kind]
    parts += [Path(model).name] if model else []
    return "-".join(parts)


def print_standings(
    log: Log, rubric: Rubric, requests: Requests, textless: Iterable[str]
) -> list[Verdict]:
    """Print the standings of the models by this judge's verdicts, old and new, the counts of the run, and what is known.

    Columns that are `textless` stand there without a score: they may be a model's.

    The first answer that cannot be read is shown in full. Return the verdicts.
    """
    by_id = {request.case.id: request.case for request in requests}
    cases = Cases(list(by_id.values()), requests.file)
    verdicts = [
        verdict
        for verdict in log.records()
        if verdict.case_id in by_id and max(verdict.order) < len(by_id[verdict.case_id].responses)
    ]
    table, profile = rank(cases, verdicts, rubric, log.path) if verdicts else ([], None)
    table += [{"model": name, MEAN: NOT_JUDGED} for name in textless]
    lines = [f"\n{' by '.join(log.author)}", format_table(table)]
    if any("rank" in row for row in table):
        lines.append(RANKED)
    lines += counts_of(verdicts, log)
    if profile:
        warnings = WARNINGS | {"Harm"} if profile.harm else WARNINGS
        lines += lines_of(profile, warnings)
    tell(ALONE, *lines, f"verdicts: {log.path}")
    return verdicts


def counts_of(verdicts: list[Verdict], log: Log) -> list[str]:
    """Return what is said of a run's verdicts: the invalid ones with their errors, the counts, and what to do about them."""
    errors = Counter(verdict.error for verdict in verdicts if not verdict.valid)
    lines = [f"  invalid, {count}: {error}" for error, count in sorted(errors.items())[:8]]
    lines += first_unread(verdicts)
    judged = len({verdict.case_id for verdict in verdicts})
    counts = f"{judged} cases, {len(verdicts)} verdicts ({log.new} new), "
    cut = [verdict for verdict in verdicts if verdict.truncated]
    if cut:
        counts += f"{len(cut)} cut off at --max_new_tokens, "
    valid_rate = 1 - errors.total() / len(verdicts) if verdicts else 0.0
    lines.append(f"{counts}valid rate {valid_rate:.3f}")
    if tokens := spent(verdicts):
        lines.append(tokens)
    if cut:
        lines.append("cut off: --again cut with a larger --max_new_tokens asks these again")
    unread = errors.total() - sum(not verdict.valid for verdict in cut)
    if unread:
        again = f"a judge that was changed needs a folder of its own, --output {log.path.parent}-2"
        lines.append(f"{unread} invalid for good, and not asked until they can be read: {again}")
    return lines


def report_command(args: JudgeArguments, output: Path) -> str:
    """Return the command that makes the report of these verdicts."""
    own = args.rubric if args.rubric and Path(args.rubric).suffix else None
    return next_command(
        "report", {"offline": is_offline()}, (), verdicts=output, cases=args.file, ratings=args.ratings, blank=args.blank,
        rubric=own, baseline=args.baseline, output=f"reports/{output.name}",
    )  # fmt: skip


def cases_file(
    args: JudgeArguments, output: Path, log_args: LogArguments, processes: Processes
) -> str:
    """Return the file of the cases, beside the verdicts if it is made of logs or of a table for each version.

    Raises:
        RecordError: a fault of `join_logs` or of the table, or the file is there with cases or models that are all others.
    """
    if len(args.cases) == 1 and not named_file(args.file)[0] and not is_log(args.file):
        return args.file
    cases, notes = join_logs(args.cases, log_args, **args.table)
    file = output / "cases.jsonl"
    if file.exists():
        before = list(read_records(file, Case))
        shared = {case.id for case in before} & {case.id for case in cases}
        if not shared or models_of(before) != models_of(cases):
            these = ", ".join(args.cases)
            raise RecordError(f"{file} holds other cases than {these}: choose another --output")
    processes.wait()  # every process has compared before one writes
    if processes.rank == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_lines(file, (case.to_dict() for case in cases))
        print("\n".join([*map(printable, notes), f"cases: {file}"]))
    processes.wait()
    args.columns = []  # those of the tables
    return str(file)


def plan_from_dataset(
    args: JudgeArguments, dataset: str, rubric: Rubric
) -> Callable[[Case], list[Request]]:
    """Return the plan that judges the prompts of a data set's training rows, those by this rubric.

    Raises:
        RecordError: no row by this rubric, or a row whose case is not in --cases or has changed.
    """
    # pyarrow takes its time, and only rows need it
    from automedeval.study.dataset.folder import dataset_folder, read_dataset, read_split

    folder = dataset_folder(dataset)
    training = read_dataset(folder).training
    if args.split:
        training = read_split(folder, args.split).to_pylist()
    rows = [row for row in training if row["rubric"] == rubric.name]
    wanted = {row["case_id"] for row in rows}
    cases = {case.id: case for case in read_cases(args.file, **args.table) if case.id in wanted}
    recorded = {
        row.case.id: row for row in read_recorded(rows, cases, {rubric.name: rubric}, dataset)
    }

    def plan(case: Case) -> list[Request]:
        if (row := recorded.get(case.id)) is None:
            return []
        # The same responses in the same slots (Algorithm 2, line 5).
        rationale = args.rationale and row.reading.rationale is not None
        return [
            Request(row.case, row.order, None, run, rationale, row.original)
            for run in range(args.runs)
        ]

    return plan
