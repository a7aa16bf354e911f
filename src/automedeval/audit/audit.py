"""Audit a judge: judge the cases as they are and as perturbations change them, by one loop, and make the table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from automedeval.audit.outcomes import CriteriaReader, ScoreReader
from automedeval.audit.perturbations import CRITERIA, SCORES, read_perturbations
from automedeval.audit.table import passes, table
from automedeval.audit.trials import Planner, Trial
from automedeval.judges.base import BaseJudge
from automedeval.judges.chat_judge import Judge
from automedeval.judges.judge import AskingArguments, judge_rubric, load_judge, references_note
from automedeval.judges.requests import Request
from automedeval.judges.run import judge_missing, verdict_log
from automedeval.meta_evaluation.page import say
from automedeval.meta_evaluation.verdicts.cases import Cases, units_of
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import JsonObject, RecordError, Verdict, check_least, option
from automedeval.records.arguments import TableArguments
from automedeval.records.journal import Processes, write_lines
from automedeval.records.language import english_only
from automedeval.records.processes import print_notes
from automedeval.records.run_record import describe_result, record_run
from automedeval.rubrics import without_scale
from automedeval.stats.bootstrap import RESAMPLES

# Of the unchanged cases: each response once in each place, the fewest orders that separate places and responses.
ORDERS = "latin"
CLEAN, CHANGED = "clean", "changed"  # folders of the verdicts


@dataclass
class AuditArguments(TableArguments, AskingArguments):
    """Which judge is audited, on which cases, by which perturbations."""

    judge: str = option("the judge, named as for automedeval judge")
    cases: str = option(
        "cases, or a table of answers: .jsonl, .csv, .json, .xlsx, .parquet, or a Hub dataset id"
    )
    output: str = option("folder for audit.json, audit.md, audit.html and the verdicts")
    perturbations: str | None = option(
        "your own perturbations, a .yaml file in place of the packaged ones", None
    )
    edits: int | None = option(
        "most planted texts, and most dangers, per case, drawn by --seed and dealt in turn; default: all",
        None,
    )
    gate: bool = option("false: exit status 0 even if the judge does not pass", True)
    limit: int | None = option("audit only so many cases, the first ones", None)
    seed: int = option("seed of orders and of edits", 0)

    def __post_init__(self) -> None:
        check_least(self, 1, "limit", "edits")


def audit_judge(
    args: AuditArguments, encoder: EncoderArguments, chat: ChatArguments, processes: Processes
) -> JsonObject | None:
    """Audit a judge; write its verdicts on the unchanged and the changed cases as they come.

    Writes OUTPUT/clean/verdicts.jsonl, OUTPUT/changed.jsonl (the changed cases; each names its own under "audit") and
    OUTPUT/changed/verdicts.jsonl. A case that has its verdict there is not judged again.

    Returns:
        what audit.json holds; None in every process but the first.

    Raises:
        RecordError: an input or an argument is wrong, or the judge cannot go on.
    """
    cases = Cases.read(args.cases, args.limit, **args.table)
    rubric = judge_rubric(args.judge, args.rubric)
    if rubric.in_words:
        raise RecordError(
            f"--rubric {rubric.id}: is answered in words, and an audit needs scores or choices"
        )
    checklist = rubric.mode == "checklist"
    perturbations = read_perturbations(args.perturbations, CRITERIA if checklist else SCORES)
    judge = load_judge(
        args.judge, rubric, chat, rationale=args.rationale, seed=args.seed, name=args.judge_name,
        cases=cases.records, encoder=encoder, score_decoding=args.score_decoding,
    )  # fmt: skip
    if isinstance(judge, Judge) and not checklist:
        judge = replace(judge, orders=ORDERS)
    output = Path(args.output)

    planned = [judge.plan(case) for case in cases.records]
    requests = list(chain.from_iterable(planned))
    if not requests:
        raise RecordError(
            f"{cases.source}: nothing to judge by {judge.rubric_name}: no case has two responses"
        )
    arguments = (args, encoder, chat)
    verdicts = judge_all(judge, requests, output / CLEAN, processes, *arguments)
    by = None if without_scale(judge.rubric_name) else rubric
    judged = VerdictTable(cases, list(verdicts.values()), by)
    reader = CriteriaReader(judged) if checklist else ScoreReader(judged)

    answers = []
    for of_case in planned:
        of_verdicts = [verdicts[request.key] for request in of_case]
        answers.append(reader.answers(of_case, of_verdicts) if of_case else [])
    planner = Planner(rubric, judge.apart, args.edits, args.seed)
    trials = []
    for perturbation in perturbations:
        trials += planner.plan(perturbation, answers)
    sides = _new_sides(trials, verdicts)
    if processes.rank == 0:
        changed = {side.case.id: side.case.to_dict() for side in sides}
        write_lines(output / f"{CHANGED}.jsonl", changed.values())
    verdicts |= judge_all(judge, sides, output / CHANGED, processes, *arguments)
    print_notes(judge.chat.notes(), processes)
    if processes.rank > 0:
        return None

    outcomes = [
        reader.compare(trial, verdicts[trial.before.key], verdicts[trial.after.key])
        for trial in trials
    ]
    rows = table(perturbations, outcomes, reader, cases)
    left_out = {kind: Counter(reasons.values()) for kind, reasons in planner.left_out.items()}
    invalid = sum(not of_case for of_case in answers)
    return {
        "cases": {"file": cases.source, "cases": len(cases), "responses": cases.responses},
        "judge": {
            "name": judge.name, "rubric": judge.rubric_name, "settings": judge.fingerprint,
            "checkpoint": judge.chat.checkpoint, "unit": reader.unit,
        },
        "passes": passes(rows),
        "perturbations": rows,
        "verdicts": len(requests),
        "changed": len(sides),
        "notes": [
            *cases.notes, *references_note(judge, cases.records), *english_only(cases.records, "edits of texts"),
            *say("audit_left_out", cases=len(cases), invalid=invalid, left_out=left_out),
        ],
        "settings": describe_result(
            "audit", resamples=RESAMPLES, units=units_of(cases.records), seed=args.seed
        ),
    }  # fmt: skip


def _new_sides(trials: Sequence[Trial], verdicts: Mapping[tuple, Verdict]) -> list[Request]:
    """Return the requests of trials, each once, that have no verdict yet."""
    sides = chain.from_iterable((trial.before, trial.after) for trial in trials)
    by_key = {side.key: side for side in sides}
    return [side for key, side in by_key.items() if key not in verdicts]


def judge_all(
    judge: BaseJudge,
    requests: Sequence[Request],
    folder: Path,
    processes: Processes,
    *arguments: Any,
) -> dict[tuple, Verdict]:
    """Judge what a folder does not hold yet; return the verdicts of all requests by `Request.key`, in the order of requests.

    The record of the run beside the verdicts has the `arguments`.
    RecordError if the folder holds verdicts of another judge of that name, on cases of other texts, or an endpoint failed.
    """
    log = verdict_log(folder, judge, processes=processes)
    with log:
        done = log.done({request.case.id: request.digest for request in requests})
        if processes.rank == 0:
            record_run(log.run_file, *arguments)
        judge_missing(judge, requests, log, done, folder.name)
    verdicts = {verdict.key: verdict for verdict in log.records()}
    if unanswered := sum(request.key not in verdicts for request in requests):
        last = f", the last: {judge.chat.failures[-1]}" if judge.chat.failures else ""
        raise RecordError(f"{unanswered} not judged{last}; the same command tries them again")
    return {request.key: verdicts[request.key] for request in requests}
