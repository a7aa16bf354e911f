"""Get the verdicts of an audit: recorded ones, or those of a judge on the cases as they are and on changed cases.

Verdicts are appended to the same log as `automedeval judge` writes; a case that has its verdict is not judged again.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from automedeval.audit.perturbations import Trial
from automedeval.audit.trials import Outcome, Templates, outcome, plan_trials
from automedeval.judges.base import BaseJudge, windows_of
from automedeval.judges.chat_judge import ChatJudge
from automedeval.judges.requests import Request, plan_requests
from automedeval.judges.run import judge_missing, verdict_log
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, read_verdicts
from automedeval.records import Case, RecordError, Verdict, verdicts_file
from automedeval.records.journal import ALONE, Processes, write_lines
from automedeval.rubrics import Rubric, read_rubric

# Of the clean run: each response once in each slot, the fewest orders that separate slots and responses.
ORDERS = "latin"


def recorded(place: str, cases: Cases, rubric: str | None, judge_name: str | None, notes: list[str]) -> JudgeVerdicts:
    """Read the recorded verdicts of one judge in a file, or in a folder that holds a verdicts.jsonl.

    Args:
        rubric: the path of the judge's own rubric, if it is no packaged one.
        notes: the report's notes; those about the verdicts are added.

    Raises:
        RecordError: a fault of `read_verdicts`, or the file holds several judges' verdicts and no name is given.
    """
    path = verdicts_file(place)
    custom = read_rubric(rubric) if rubric and rubric.endswith((".yaml", ".yml")) else None
    judges, verdict_notes = read_verdicts([str(path)], cases, rubric if custom else None)
    chosen = [each for each in judges if judge_name in (None, each.judge)]
    if custom is not None and len(chosen) > 1:
        chosen = [each for each in chosen if each.rubric_name == custom.name]
    if len(chosen) != 1:
        names = ", ".join(f"{each.judge} by {each.rubric_name}" for each in judges)
        raise RecordError(f"{path}: holds verdicts of {names}; --judge_name chooses one")
    notes += verdict_notes + chosen[0].notes()
    return chosen[0]


def decodings_of(judge: BaseJudge, score_decoding: str, checks: Sequence[str]) -> dict[str, BaseJudge]:
    """Return the judge in each decoding that is audited, by the decoding's name; the first is audited by all checks.

    Args:
        score_decoding: "constrained", "free", or "both" where the judge can: the second decoding is then only attacked by
            planted texts.

    Raises:
        RecordError: constrained decoding by a judge that cannot.
    """
    if not isinstance(judge, ChatJudge):
        return {"counts" if judge.chat is None else "likelihood": judge}
    both = ["constrained", "free"] if judge.chat.constrains else ["free"]
    first, *rest = both if score_decoding == "both" else [score_decoding]
    judges: dict[str, BaseJudge] = {first: replace(judge, score_decoding=first, orders=ORDERS)}
    return judges | {name: replace(judge, score_decoding=name) for name in rest if "planting" in checks}


def judge_tampered(
    judge: BaseJudge,
    cases: Cases,
    folder: Path,
    checks: Sequence[str],
    templates: Templates,
    rubric: Rubric,
    seed: int,
    people: People | None,
    notes: list[str],
    processes: Processes = ALONE,
) -> tuple[JudgeVerdicts, list[Outcome]]:
    """Judge the cases as they are, and then each case as a trial changes it; return the clean verdicts and the outcomes.

    Writes FOLDER/clean/verdicts.jsonl, FOLDER/trials.jsonl (the changed cases; each names its clean one under "audit") and
    FOLDER/trials/verdicts.jsonl.

    Args:
        rubric: the rubric at which the planted texts aim; the judge's own where it has one.
        notes: the report's notes; cases without a valid clean verdict are added.
        processes: the processes that share the judging; all of them return the same.
    """
    planned = {case.id: judge.plan(case) for case in cases.records}
    verdicts = judge_all(judge, list(chain.from_iterable(planned.values())), folder / "clean", processes)
    if not verdicts:
        raise RecordError(f"{cases.source}: nothing to judge by {judge.rubric_name}: no case has two responses")
    clean = [(base, verdicts[base.key]) for base in first_requests(judge, cases.records, rubric, seed)]
    if skipped := sum(not verdict.valid for _, verdict in clean):
        notes.append(f"{folder.name}: {skipped} of {len(clean)} cases have no valid clean verdict, and no trial")
    ratings = None
    if people is not None:
        split = np.split(people.scores, cases.start[1:-1])
        ratings = {case.id: scores for case, scores in zip(cases.records, split)}
    trials = plan_trials(clean, checks, templates, rubric, seed, ratings, judge.apart)
    after = judge_trials(judge, trials, folder, processes)
    judged = JudgeVerdicts(cases, list(verdicts.values()), None if judge.apart else rubric)
    return judged, [outcome(trial, verdicts[trial.clean.key], after[trial.request.key], judged) for trial in trials]


def first_requests(judge: BaseJudge, cases: Sequence[Case], rubric: Rubric, seed: int) -> list[Request]:
    """Return one request of each case that has any, in the seeded order: the first of all orders is that of the file."""
    planned = (judge.plan(case) if judge.apart else plan_requests(case, rubric, "1", seed) for case in cases)
    return [request for requests in planned for request in requests[:1]]


def judge_trials(
    judge: BaseJudge, trials: Sequence[Trial], folder: Path, processes: Processes = ALONE
) -> dict[tuple, Verdict]:
    """Write the changed cases to FOLDER/trials.jsonl, and judge them as `judge_all` does."""
    if processes.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(folder / "trials.jsonl", (trial.case.to_dict() for trial in trials))
    return judge_all(judge, [trial.request for trial in trials], folder / "trials", processes)


def judge_all(
    judge: BaseJudge, requests: Sequence[Request], folder: Path, processes: Processes = ALONE
) -> dict[tuple, Verdict]:
    """Judge what a folder does not hold yet; return the verdicts of all requests by `Request.key`, in the order of requests.

    RecordError if the folder holds verdicts of another judge of that name, on cases of other texts, or an endpoint failed.
    """
    log = verdict_log(folder, judge, processes=processes)
    with log:
        done = log.done({request.case.id: request.digest for request in requests})
        missing = [request for request in requests if request.key not in done]
        for window in windows_of(missing[processes.rank :: processes.count]):
            judge.refuse_overlong(window)
        processes.wait()  # until every process has checked its share
        judge_missing(judge, requests, len(requests), log, done, f"{folder.parent.name}, {folder.name}")
    verdicts = {verdict.key: verdict for verdict in log.records()}
    if unanswered := sum(request.key not in verdicts for request in requests):
        failures = getattr(judge.chat, "failures", ())
        last = f", the last: {failures[-1]}" if failures else ""
        raise RecordError(f"{unanswered} not judged{last}; the same command tries them again")
    return {request.key: verdicts[request.key] for request in requests}
